"""
Write models with weak layers at random places, and small models with random weights:
``python -m tests.helpers.planted_tunes --library keras|tf_keras --seed N [--random] DIR``, in the
root of the repository, under the interpreter with TensorFlow.

For each seed, DIR gets a model, its inputs, unseen inputs from the same distribution, and a JSON
file with the truth: the layers that have to stay in float32, harmless layers that ``migrate`` keeps
by rule, and a tolerance. The library itself verified the truth on these inputs: without any one of
the layers the error is at least three times the tolerance, and with all of them at most half of it.
"""

from __future__ import annotations

import argparse
import copy
import json
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tests.helpers.planted_failures import (
    BFLOAT16,
    FLOAT16,
    LIBRARIES,
    Kit,
    Stage,
    initializer,
    owner,
    sequence_block,
    vector_block,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

ATTEMPTS: Final = 60
"""Models that are drawn for a placement until the library confirms one."""

ROWS: Final = 32
"""Rows of the inputs, of which ``tune`` searches with the first half."""

CLEARLY_FAILS: Final = 3.0
CLEARLY_PASSES: Final = 0.5
"""Errors of a placement, in multiples of its tolerance."""

LARGEST_TOLERANCE: Final = 0.1
_PART_SLACK, _PART_LEAST = 8.0, 0.25
"""What ``check`` allows a row or a channel: multiples of the tolerance, and at least so much."""


@dataclass(frozen=True)
class Found:
    """Layers that a plant adds, by their paths within the stage."""

    planted: tuple[str, ...] = ()
    either: tuple[str, ...] = ()
    """Layers of which one has to stay in float32, no matter which."""


@dataclass(frozen=True)
class Placement:
    """The truth about a model."""

    library: str
    seed: int
    attempt: int
    model: str
    inputs: str
    unseen: str
    to: str
    tolerance: float
    planted: tuple[str, ...]
    either: tuple[tuple[str, ...], ...]
    decoys: tuple[str, ...]
    """Layers that ``migrate`` keeps by rule and that may be converted."""

    kinds: tuple[str, ...]
    passes: float
    """The error with the planted layers in float32."""

    fails: Mapping[str, float | None]
    """The error with each of them converted alone; None if it is not finite."""


class Trunk(Stage):
    """A stage of a model with several inputs."""

    def __init__(self, kit: Kit, source: Any, data: Any) -> None:
        super().__init__(kit, source, data)
        self.sources = [source]
        self.arrays = [data]
        self.names = [""]

    def values(self, tensor: Any = None) -> Any:
        """Return the values at the end of the chain, or of a tensor in it."""
        expected = self.tensor if tensor is None else tensor
        if expected is self.source:
            return self.data
        return np.asarray(self.kit.keras.Model(self.sources, expected)(self.arrays))


@dataclass
class Draft:
    """A model in the making."""

    kit: Kit
    stage: Trunk
    found: list[Found] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    decoys: list[str] = field(default_factory=list)
    draws: list[Callable[[], Any]] = field(default_factory=list)
    """Return new rows of each input."""

    unseen: list[Any] = field(default_factory=list)


def is_sequence(stage: Stage) -> bool:
    """Return whether the values of a stage have steps."""
    return len(stage.tensor.shape) == 3


def named(stage: Stage, layer: Any) -> tuple[str, ...]:
    """Add a layer; return the paths of it and of the layers inside it."""
    name = stage.add(layer)
    inner = [
        getattr(layer, attribute).name
        for attribute in ("layer", "forward_layer", "backward_layer")
        if hasattr(layer, attribute)
        and not (attribute == "layer" and hasattr(layer, "forward_layer"))
    ]
    return (name, *(f"{name}/{item}" for item in inner))


# layers that make large values, and layers that need them


def produce(kit: Kit, stage: Stage, largest: float, kind: str = "") -> tuple[str, ...]:
    """Add a layer whose largest output is ``largest``; return the weak layers."""
    layers = kit.layers
    kinds = ["dense", "dense", "rescaling", "batch", "multiply", "shared"]
    kind = kind or kit.pick(*kinds, *(["conv", "distributed"] if is_sequence(stage) else []))
    kit.variant = kind
    if kind == "dense":
        return (stage.dense(kit.width(), largest=largest),)
    if kind == "rescaling":
        scale = largest / float(np.abs(stage.values()).max())
        return (stage.add(layers.Rescaling(scale, name=kit.name())),)
    if kind == "batch":
        layer = layers.BatchNormalization(name=kit.name())
        scale = largest / float(np.abs(stage.values()).max())
        name = stage.add(layer)
        layer.gamma.assign(np.full(layer.gamma.shape, scale, "float32"))
        return (name,)
    if kind == "multiply":
        stage.dense(kit.width(), largest=largest**0.5, use_bias=False)
        layer = layers.Multiply(name=kit.name())
        return (stage.end(layer([stage.tensor, stage.tensor])),)
    if kind == "shared":
        units = int(stage.tensor.shape[-1])
        layer = layers.Dense(
            units, use_bias=False, name=kit.name(), kernel_initializer=initializer(kit)
        )
        stage.add(layer)
        stage.add(layer)
        gain = (largest / float(np.abs(stage.values()).max())) ** 0.5
        layer.kernel.assign(np.asarray(layer.kernel) * gain)
        return (str(layer.name),)
    if kind == "conv":
        layer = layers.Conv1D(
            kit.width(),
            3,
            padding="same",
            name=kit.name(),
            kernel_initializer=initializer(kit),
        )
        name = stage.add(layer)
    else:
        layer = layers.Dense(kit.width(), name=kit.name(), kernel_initializer=initializer(kit))
        name = stage.add(layers.TimeDistributed(layer, name=kit.name()))
        if not kit.is_keras3:  # whose wrapper decides for the layer in it
            name += f"/{layer.name}"
    scale = largest / float(np.abs(stage.values()).max())
    layer.kernel.assign(np.asarray(layer.kernel) * scale)
    return (name,)


def consume(kit: Kit, stage: Stage, kind: str = "") -> tuple[str, ...]:
    """Add a layer that brings large values back to usual ones; return the weak layers."""
    layers = kit.layers
    recurrent = ["lstm", "gru", "bidirectional"] if is_short(stage) else []
    kind = kind or kit.pick(
        *("norm", "batch", "dense", "rescaling"),
        *([*recurrent, "conv", "distributed"] if is_sequence(stage) else []),
    )
    kit.variant += f" {kind}"
    values = stage.values()
    largest = float(np.abs(values).max())
    if kind == "norm":
        paths = named(stage, layers.LayerNormalization(name=kit.name()))
        return () if kit.is_keras3 else paths  # Keras 3 does not cast its inputs
    if kind == "rescaling":
        return named(stage, layers.Rescaling(kit.between(2, 5) / largest, name=kit.name()))
    if kind == "batch":
        layer = layers.BatchNormalization(name=kit.name())
        paths = named(stage, layer)
        axes = tuple(range(values.ndim - 1))
        layer.moving_mean.assign(values.mean(axes))
        layer.moving_variance.assign(values.var(axes) + 1e-3)
        return paths
    if kind == "dense":
        return (stage.dense(kit.width(), largest=kit.between(2, 5)),)
    gain = 4 / largest
    if kind == "conv":
        layer = layers.Conv1D(6, 2, name=kit.name(), kernel_initializer=initializer(kit))
        paths = named(stage, layer)
        weak = [layer]
    elif kind == "distributed":
        layer = layers.Dense(kit.width(), name=kit.name(), kernel_initializer=initializer(kit))
        paths = named(stage, layers.TimeDistributed(layer, name=kit.name()))
        paths = paths[:1] if kit.is_keras3 else paths
        weak = [layer]
    elif kind == "bidirectional":
        inner = layers.LSTM(6, return_sequences=True, name=kit.own_name())
        layer = layers.Bidirectional(inner, name=kit.name())
        paths = named(stage, layer)
        weak = [layer.forward_layer.cell, layer.backward_layer.cell]
    else:
        layer = (layers.LSTM if kind == "lstm" else layers.GRU)(
            8, return_sequences=True, name=kit.name()
        )
        paths = named(stage, layer)
        weak = [layer.cell]
    for item in weak:
        item.kernel.assign(np.asarray(item.kernel) * gain)
    return paths


def is_short(stage: Stage) -> bool:
    """Return whether the values of a stage have few steps."""
    return is_sequence(stage) and int(stage.tensor.shape[1]) <= 64


# plants


def overflow(kit: Kit, stage: Stage, *, producer: str = "", consumer: str = "") -> Found:
    """Exceed float16 between two layers."""
    result = produce(kit, stage, kit.between(2e5, 8e5), producer)
    return Found((*result, *consume(kit, stage, consumer)))


def flushed(kit: Kit, stage: Stage) -> Found:
    """Make values that are zero in float16, and enlarge them."""
    result = stage.dense(kit.width(), largest=kit.between(1e-9, 1e-8), use_bias=False)
    scale = kit.between(1, 4) / float(np.abs(stage.values()).max())
    return Found((result, stage.add(kit.layers.Rescaling(scale, name=kit.name()))))


def squares(kit: Kit, stage: Stage) -> Found:
    """Exceed float16 in ops, whose producer decides their dtype."""
    result = stage.dense(kit.width(), largest=kit.between(900, 3000))
    stage.end(kit.op("sqrt", kit.op("add", kit.op("square", stage.tensor), 1.0)))
    if kit.select("large", "dense") == "dense":
        stage.dense(kit.width(), largest=kit.between(2, 5))
    return Found((result,))


def log_of_zero(kit: Kit, stage: Stage) -> Found:
    """Take the logarithm of probabilities, some of which are zero in float16."""
    stage.dense(kit.width(), largest=kit.between(24, 40))
    kind = kit.select("softmax", "layer")
    layer = (
        kit.layers.Softmax(name=kit.name())
        if kind == "layer"
        else kit.layers.Activation("softmax", name=kit.name())
    )
    result = stage.add(layer)
    stage.end(kit.op("log", stage.tensor))
    return Found((result,))


def product(kit: Kit, stage: Stage) -> Found:
    """Exceed float16 in the product of two layers, if both compute in float16."""
    source, units = stage.tensor, kit.width()
    result = stage.dense(units, largest=kit.between(500, 900))
    first = stage.tensor
    stage.tensor = source
    second = stage.dense(units, largest=kit.between(500, 900))
    stage.end(kit.op("sqrt", kit.op("abs", kit.op("multiply", first, stage.tensor))))
    return Found(either=(result, second))


def large_mean(kit: Kit, stage: Stage, *, mean: float = 3e4) -> Found:
    """Add a mean of which 16 bits leave nothing else, and remove it."""
    mean *= kit.between(0.8, 1.5)
    result = stage.dense(kit.width(), largest=kit.between(1, 3))
    producer = stage.tensor._keras_history[0]  # noqa: SLF001
    producer.bias.assign(np.full(producer.bias.shape, mean, "float32"))
    kind = kit.select("batch", "norm", "rescaling", "op", "softmax")
    if kind == "op":
        stage.end(kit.op("subtract", stage.tensor, mean))
        return Found((result,))
    layer: Any
    if kind == "batch":
        layer = kit.layers.BatchNormalization(name=kit.name())
        name = stage.add(layer)
        layer.moving_mean.assign(np.full(layer.moving_mean.shape, mean, "float32"))
        return Found((result, name))
    layer = {
        "norm": lambda: kit.layers.LayerNormalization(name=kit.name()),
        "rescaling": lambda: kit.layers.Rescaling(1.0, -mean, name=kit.name()),
        "softmax": lambda: kit.layers.Softmax(name=kit.name()),
    }[kind]()
    name = stage.add(layer)
    is_safe = kind == "norm" and kit.is_keras3  # which does not cast its inputs
    return Found((result,) if is_safe else (result, name))


def difference(kit: Kit, stage: Stage, *, mean: float = 3e4) -> Found:
    """Subtract large numbers that differ little."""
    source, units = stage.tensor, kit.width()
    created, tensors = [], []
    for _ in range(2):
        stage.tensor = source
        created.append(stage.dense(units, largest=kit.between(1, 3)))
        layer = stage.tensor._keras_history[0]  # noqa: SLF001
        layer.bias.assign(np.full(layer.bias.shape, mean, "float32"))
        tensors.append(stage.tensor)
    kind = kit.select("layer", "op") if kit.is_keras3 else kit.select("layer")
    if kind == "op":  # its dtype is that of the wider argument
        stage.end(kit.op("subtract", *tensors))
    else:
        created.append(stage.end(kit.layers.Subtract(name=kit.name())(tensors)))
    return Found(tuple(created))


def small_mean(kit: Kit, stage: Stage) -> Found:
    """Add a mean that is too large for bfloat16."""
    return large_mean(kit, stage, mean=1500)


def small_difference(kit: Kit, stage: Stage) -> Found:
    """Subtract numbers that are equal in bfloat16."""
    return difference(kit, stage, mean=1500)


def pooled(kit: Kit, stage: Stage) -> Found:
    """Average many large values."""
    stage.dense(kit.pick(4, 8), largest=kit.between(2000, 4000), activation="softplus")
    steps = int(stage.tensor.shape[1])
    if not kit.is_keras3 and kit.select("average", "global") == "global":
        result = stage.add(kit.layers.GlobalAveragePooling1D(name=kit.name()))
    else:
        result = stage.add(kit.layers.AveragePooling1D(steps, name=kit.name()))
        stage.add(kit.layers.Flatten(name=kit.name()))
    stage.dense(kit.width(), largest=kit.between(2, 5))
    return Found((result,))


def summed(kit: Kit, stage: Stage) -> Found:
    """Add up a long axis step by step."""
    result = stage.dense(kit.pick(2, 4), largest=kit.between(2, 3), activation="softplus")
    stage.end(kit.op("cumsum", stage.tensor, axis=1))
    stage.add(kit.layers.GlobalMaxPooling1D(name=kit.name()))
    stage.dense(kit.width(), largest=kit.between(2, 5))
    return Found((result,))


def growing(kit: Kit, stage: Stage) -> Found:
    """Grow the state of a recurrent layer with every step."""
    steps, units = int(stage.tensor.shape[1]), kit.width()
    layer = kit.layers.SimpleRNN(
        units, activation="linear", name=kit.name(), kernel_initializer=initializer(kit)
    )
    result = stage.add(layer)
    growth = kit.between(1e6, 1e7) ** (1 / steps)
    layer.cell.recurrent_kernel.assign((np.eye(units) * growth).astype("float32"))
    return Found((result, *consume(kit, stage)))


SHORT: Final[Mapping[str, Sequence[Callable[[Kit, Stage], Found]]]] = {
    FLOAT16: (overflow, overflow, overflow, flushed, squares, large_mean, difference),
    BFLOAT16: (small_mean, small_mean, small_difference),
}
"""Plants for vectors and sequences; they keep the number of dimensions."""


NOT_RETRACED: Final = ("mean", "difference")
"""Words in the kinds of placements that are not written as SavedModels."""


# branches with an input of their own


def ids_branch(draft: Draft, to: str, *, is_weak: bool) -> None:
    """Look up float ids behind a layer that casts them."""
    kit = draft.kit
    count, width = int(kit.pick(4, 6)), 6
    exact = {FLOAT16: 2000, BFLOAT16: 250}[to]
    largest = kit.pick(5000, 6000) if is_weak else exact

    def draw() -> Any:
        return kit.rng.integers(exact // 2 if is_weak else 0, largest, (ROWS, count)).astype(
            "float32"
        )

    source = kit.keras.Input((count,), name=kit.own_name())
    layer = (
        kit.layers.Reshape((count,), name=kit.name())
        if kit.pick(True, False)
        else kit.layers.Activation("linear", name=kit.name())
    )
    tensor = layer(source)
    table = kit.layers.Embedding(
        largest + 64,  # what an ID may be rounded to
        width,
        name=kit.name(),
        embeddings_initializer=kit.keras.initializers.RandomNormal(
            stddev=2.0, seed=int(kit.rng.integers(1 << 30))
        ),
    )
    tensor = kit.layers.Flatten(name=kit.name())(table(tensor))
    join(draft, source, draw, tensor)
    if is_weak:
        draft.found.append(Found((str(layer.name),)))
        draft.kinds.append("ids")
    else:
        draft.decoys.append(str(layer.name))


def statistics_branch(draft: Draft, to: str) -> None:
    """Normalize features with a large mean, which ``migrate`` keeps by rule as well."""
    kit = draft.kit
    count = int(kit.pick(3, 5))
    mean = kit.between(1e5, 1e6) if to == FLOAT16 else kit.between(2e3, 2e4)

    def draw() -> Any:
        return mean + kit.normal(ROWS, count)

    source = kit.keras.Input((count,), name=kit.own_name())
    layer = kit.layers.Normalization(mean=[mean] * count, variance=[1.0] * count, name=kit.name())
    join(draft, source, draw, layer(source))
    draft.found.append(Found((str(layer.name),)))
    draft.kinds.append("statistics")


def pool_branch(draft: Draft) -> None:
    """Average a window of more than 2048 values, most of which are zero."""
    kit = draft.kit
    steps = 2304

    def draw() -> Any:
        values = np.zeros((ROWS, steps, 1), "float32")
        for row in values:
            row[kit.rng.permutation(steps)[:12], 0] = kit.rng.uniform(50, 150, 12)
        return values

    source = kit.keras.Input((steps, 1), name=kit.own_name())
    layer = kit.layers.AveragePooling1D(steps, name=kit.name())
    tensor = kit.layers.Flatten(name=kit.name())(layer(source))
    join(draft, source, draw, tensor)
    draft.decoys.append(str(layer.name))


def join(draft: Draft, source: Any, draw: Callable[[], Any], tensor: Any) -> None:
    """Concatenate a branch with the trunk."""
    stage = draft.stage
    stage.sources.append(source)
    stage.arrays.append(draw())
    stage.names.append(source.name.split(":")[0])
    draft.draws.append(draw)
    layer = draft.kit.layers.Concatenate(name=draft.kit.name())
    stage.end(layer([stage.tensor, tensor]))


def decoy(draft: Draft, to: str) -> None:
    """Add a layer that ``migrate`` keeps by rule, on harmless values."""
    kit, stage = draft.kit, draft.stage
    kinds = ["normalization"]
    if to == FLOAT16:
        kinds += ["unit", "exponential"]
        if not kit.is_keras3 and is_sequence(stage):
            kinds += ["group", "group"]
    kind = kit.pick(*kinds)
    if kind == "exponential":
        stage.dense(kit.width(), largest=1.5, use_bias=False)
        draft.decoys.append(stage.add(kit.layers.Activation("exponential", name=kit.name())))
        return
    if kind == "group":
        stage.dense(8, activation="tanh")
    width = int(stage.tensor.shape[-1])
    layer = {
        "normalization": lambda: kit.layers.Normalization(
            mean=[0.25] * width, variance=[1.5] * width, name=kit.name()
        ),
        "unit": lambda: kit.layers.UnitNormalization(name=kit.name()),
        "group": lambda: kit.layers.GroupNormalization(2, name=kit.name()),
    }[kind]()
    draft.decoys.append(stage.add(layer))


# models


def drawn(library: str, seed: int, attempt: int) -> tuple[Draft, Any, str]:
    """Return a model with planted layers, not verified yet, and the policy they are weak under."""
    kit = started_kit(library, f"placement-{attempt}", seed)
    form = FORMS[library][(seed - 1) % len(FORMS[library])]
    to = form.to
    ending = form.ending
    is_long = ending in {"pooled", "summed"}
    has_steps = bool(ending) or form.has_steps or kit.rng.random() < 0.5
    shape = (
        (int(kit.pick(384, 512)) if is_long else int(kit.rng.integers(16, 32)), 6)
        if has_steps
        else (int(kit.pick(10, 16, 20)),)
    )

    def draw() -> Any:
        return kit.normal(ROWS, *shape)

    name = kit.own_name()
    draft = Draft(kit, Trunk(kit, kit.keras.Input(shape, name=name), draw()), draws=[draw])
    draft.stage.names = [name]
    count = int(kit.pick(0, 0, 1, 1, 2))
    before = int(kit.rng.integers(0, count + 1)) if has_steps else 0
    fill(draft)
    early = [kit.pick(*SHORT[to]) for _ in range(before)]
    late = [kit.pick(*options(kit, to)) for _ in range(count - before)]
    if form.plant is not None:
        into = early if form.has_steps else late
        into.insert(int(kit.rng.integers(0, len(into) + 1)), form.plant)
    for one in early:
        plant(draft, one)
        fill(draft)
    if kit.rng.random() < 0.4:
        decoy(draft, to)
    if has_steps:
        end_sequence(draft, ending, to)
    if kit.rng.random() < 0.4:
        decoy(draft, to)
    fill(draft)
    for one in late:
        plant(draft, one)
        fill(draft)
    branch = form.branch or kit.pick("", "", "", "ids", "exact-ids", "pool")
    if branch in {"ids", "exact-ids"}:
        ids_branch(draft, to, is_weak=branch == "ids")
    elif branch == "statistics":
        statistics_branch(draft, to)
    elif branch and to == FLOAT16:
        pool_branch(draft)
    return draft, head(draft), to


def options(kit: Kit, to: str) -> Sequence[Callable[[Kit, Stage], Found]]:
    """Return the plants for vectors."""
    if to == BFLOAT16:
        return SHORT[to]
    return (*SHORT[to], log_of_zero, *((product, product) if kit.is_keras3 else ()))


def started_kit(library: str, case: str, seed: int) -> Kit:
    """Return a kit whose library has forgotten other models."""
    kit = Kit(library, f"{library}-{case}", seed)
    kit.keras.backend.clear_session()
    kit.keras.utils.set_random_seed(int(kit.rng.integers(1 << 30)))
    return kit


def fill(draft: Draft) -> None:
    """Add blocks without a weakness."""
    kit, stage = draft.kit, draft.stage
    for _ in range(kit.rng.integers(0, 3)):
        (sequence_block if is_sequence(stage) else vector_block)(kit, stage)


def plant(draft: Draft, what: Callable[[Kit, Stage], Found]) -> None:
    """Add a plant to the trunk or in a nested model."""
    kit, stage = draft.kit, draft.stage
    kit.variant = ""
    nests = kit.rng.random() < 0.4
    if not nests:
        draft.found.append(what(kit, stage))
    else:
        source = kit.keras.Input(tuple(stage.tensor.shape[1:]))
        inner = Stage(kit, source, stage.values())
        if kit.pick(True, False):
            (sequence_block if is_sequence(stage) else vector_block)(kit, inner)
        result = what(kit, inner)
        nested = nested_model(kit, inner)
        stage.add(nested)
        draft.found.append(
            Found(
                tuple(f"{nested.name}/{item}" for item in result.planted),
                tuple(f"{nested.name}/{item}" for item in result.either),
            )
        )
    draft.kinds.append(
        " ".join(filter(None, (name_of(what), kit.variant.strip(), "nested" if nests else "")))
    )


def name_of(what: Any) -> str:
    """Return the name of a function that plants."""
    return str(getattr(what, "func", what).__name__)


def nested_model(kit: Kit, inner: Stage) -> Any:
    """Return the model of a stage, a Sequential if its layers alone are the same."""
    model = kit.keras.Model(inner.source, inner.tensor, name=kit.own_name())
    shape = tuple(inner.source.shape[1:])
    try:
        chain = kit.keras.Sequential(
            [kit.keras.Input(shape), *model.layers[1:]], name=kit.own_name()
        )
        is_same = np.array_equal(chain(inner.data), model(inner.data))
    except (TypeError, ValueError):  # a layer with several inputs
        return model
    return chain if is_same else model


def end_sequence(draft: Draft, ending: str, to: str) -> None:
    """Make vectors of sequences, with or without a weakness."""
    kit, stage = draft.kit, draft.stage
    kit.variant = ""
    if ending in ENDINGS:
        draft.found.append(ENDINGS[ending](kit, stage))
        if is_sequence(stage):
            stage.add(kit.layers.GlobalMaxPooling1D(name=kit.name()))
        draft.kinds.append(f"{ending} {kit.variant}".strip())
        return
    kind = kit.pick("average", "max", "lstm", "gru", "bidirectional")
    if kind == "average":
        name = stage.add(kit.layers.GlobalAveragePooling1D(name=kit.name()))
        if not kit.is_keras3 and to == FLOAT16:
            draft.decoys.append(name)
    elif kind == "max":
        stage.add(kit.layers.GlobalMaxPooling1D(name=kit.name()))
    elif kind == "bidirectional":
        inner = kit.layers.LSTM(6, name=kit.own_name())
        stage.add(kit.layers.Bidirectional(inner, name=kit.name()))
    else:
        stage.add((kit.layers.LSTM if kind == "lstm" else kit.layers.GRU)(8, name=kit.name()))


ENDINGS: Final[Mapping[str, Callable[[Kit, Stage], Found]]] = {
    "pooled": pooled,
    "summed": summed,
    "growing": growing,
}


def head(draft: Draft) -> Any:
    """Return the model with its output, which stays in float32."""
    kit, stage = draft.kit, draft.stage
    stage.dense(int(kit.pick(3, 5)), largest=kit.between(2, 4))
    if kit.rng.random() < 0.25:
        stage.add(kit.layers.Softmax(name=kit.name()))  # no decoy: it is part of the output
        stage.add(kit.layers.Rescaling(10.0, name=kit.name()))
    return kit.keras.Model(stage.sources, stage.tensor, name=kit.own_name())


@dataclass(frozen=True)
class Form:
    """What the placement of a seed has, beside what is drawn."""

    to: str
    plant: Callable[[Kit, Stage], Found] | None = None
    has_steps: bool = False
    """Whether the plant is for sequences."""

    ending: str = ""
    branch: str = ""


def _forms(library: str) -> tuple[Form, ...]:
    overflows = [
        ("distributed", "distributed"),
        ("conv", "bidirectional"),
        ("dense", "lstm"),
        ("rescaling", "gru"),
    ]
    return (
        *(
            Form(FLOAT16, partial(overflow, producer=one, consumer=other), has_steps=True)
            for one, other in overflows
        ),
        Form(FLOAT16, partial(overflow, producer="shared")),
        Form(FLOAT16, ending="pooled"),
        Form(FLOAT16, product) if library == "keras" else Form(FLOAT16, squares),
        Form(FLOAT16, branch="ids"),
        Form(BFLOAT16, branch="statistics"),
        Form(BFLOAT16, small_mean),
        Form(BFLOAT16, small_difference),
        Form(FLOAT16, log_of_zero),
        Form(BFLOAT16, ending="summed"),
        Form(FLOAT16, ending="growing"),
        Form(FLOAT16, partial(overflow, producer="batch", consumer="norm")),
    )


FORMS: Final = {library: _forms(library) for library in LIBRARIES}
"""The forms of the seeds from 1, over and over."""


# policies


def with_policies(kit: Kit, model: Any, to: str, kept: frozenset[str] | None, fixed: str) -> Any:
    """
    Return a copy of a model that computes in 16 bits, except for the layers with these paths and
    the output. None keeps all.
    """
    config = copy.deepcopy(model.get_config())
    if kept is not None:
        _set_policies(kit, config["layers"], f"{model.name}/", to, kept | {fixed})
    result = type(model).from_config(config)
    result.set_weights(model.get_weights())
    return result


def _set_policies(
    kit: Kit, entries: Sequence[Any], above: str, to: str, kept: frozenset[str]
) -> None:
    for entry in entries:
        config = entry["config"]
        path = above + str(config.get("name"))
        if "layers" in config:
            _set_policies(kit, config["layers"], f"{path}/", to, kept)
        if entry["class_name"] in {"InputLayer", "Functional", "Sequential", "TFOpLambda"}:
            continue
        if entry["class_name"] == "Bidirectional" and "backward_layer" not in config:
            _split_bidirectional(config)
        _set_policies(
            kit,
            [config[key] for key in ("layer", "backward_layer") if config.get(key)],
            f"{path}/",
            to,
            kept,
        )
        if config.get("dtype") is not None:
            config["dtype"] = _policy(kit, "float32" if path in kept else to)


def _split_bidirectional(config: dict[str, Any]) -> None:
    """Give the two layers of a Bidirectional configs of their own, as they are named when built."""
    name = config["layer"]["config"]["name"]
    config["backward_layer"] = copy.deepcopy(config["layer"])
    config["backward_layer"]["config"].update(name=f"backward_{name}", go_backwards=True)
    config["layer"]["config"]["name"] = f"forward_{name}"


def _policy(kit: Kit, name: str) -> Any:
    if kit.is_keras3:
        return {"module": "keras", "class_name": "DTypePolicy", "config": {"name": name}}
    return name if name == "float32" else {"class_name": "Policy", "config": {"name": name}}


# the truth


@dataclass(frozen=True)
class Errors:
    """What a copy of a model comes to on one batch."""

    total: float
    """The relative error of the output; infinity if values are not finite."""

    part: float
    """That of the worst row or channel."""


def errors(expected: Any, made: Any) -> Errors:
    """Return the relative errors of an output."""
    expected, made = (np.asarray(item, "float64") for item in (expected, made))
    if not np.isfinite(made).all():
        return Errors(np.inf, np.inf)
    off = np.square(made - expected)
    size = np.square(expected)
    parts = [off.sum(axis) / np.maximum(size.sum(axis), 1e-300) for axis in (0, 1)]
    return Errors(
        float(np.sqrt(off.sum() / size.sum())),
        float(np.sqrt(max(part.max() for part in parts))),
    )


class Unverified(Exception):  # noqa: N818
    """A drawn model does not have the truth that was meant."""


def verified(draft: Draft, model: Any, to: str) -> tuple[float, float, dict[str, float | None]]:
    """
    Return a tolerance, the error with the planted layers kept, and that with each converted alone.

    :raises Unverified: unless they are clearly below and above the tolerance.
    """
    kit, stage = draft.kit, draft.stage
    above = f"{model.name}/"
    output = above + owner(stage.tensor)
    draft.unseen = [draw() for draw in draft.draws]
    halves = [
        [array[: ROWS // 2] for array in stage.arrays],
        [array[ROWS // 2 :] for array in stage.arrays],
        draft.unseen,
    ]
    expected = [np.asarray(model(batch)) for batch in halves]
    if not all(np.isfinite(item).all() and item.std() > 1e-3 for item in expected):
        raise Unverified

    def measured(kept: frozenset[str]) -> list[Errors]:
        try:
            result = with_policies(kit, model, to, kept, output)
            return [errors(one, result(batch)) for one, batch in zip(expected, halves, strict=True)]
        except (TypeError, ValueError, kit.tf.errors.OpError):  # layers whose dtypes do not fit
            return [Errors(np.inf, np.inf)] * len(halves)

    planted = frozenset(above + item for found in draft.found for item in found.planted)
    choices = [
        tuple(above + item for item in found.either) for found in draft.found if found.either
    ]
    chosen = frozenset(item[0] for item in choices)
    if not planted | chosen:
        raise Unverified
    passing = measured(planted | chosen)
    for place, options in enumerate(choices):
        for other in options[1:]:
            rest = frozenset(item[0] for item in choices[:place] + choices[place + 1 :])
            passing += measured(planted | rest | {other})
    lower = max(item.total for item in passing)
    part = max(item.part for item in passing)
    everything = frozenset(paths(model))
    missing = planted - everything
    assert not missing, missing
    alone = {path: measured(everything - {path}) for path in sorted(planted)}
    alone |= {" or ".join(item): measured(everything - set(item)) for item in choices}
    smallest = min(item.total for found in alone.values() for item in found[:2])
    least = max(2.2 * lower, 0.002)
    most = min(smallest / 3.3, LARGEST_TOLERANCE)
    if not least < most:
        raise Unverified
    tolerance = float(f"{np.exp(kit.rng.uniform(np.log(least), np.log(most))):.2g}")
    if not (
        lower <= CLEARLY_PASSES * tolerance
        and part <= CLEARLY_PASSES * max(_PART_SLACK * tolerance, _PART_LEAST)
        and smallest >= CLEARLY_FAILS * tolerance
    ):
        raise Unverified
    return tolerance, lower, {path: finite(found[0].total) for path, found in alone.items()}


def finite(number: float) -> float | None:
    """Return a number; None if it is not finite."""
    return number if np.isfinite(number) else None


def paths(model: Any, above: str | None = None) -> Iterator[str]:
    """Yield the paths of all layers."""
    above = f"{model.name}/" if above is None else above
    for layer in getattr(model, "layers", []):
        yield above + layer.name
        if hasattr(layer, "layers"):
            yield from paths(layer, f"{above}{layer.name}/")
        for attribute in ("layer", "forward_layer", "backward_layer"):
            if hasattr(layer, attribute):
                yield f"{above}{layer.name}/{getattr(layer, attribute).name}"


def write(directory: Path, library: str, seed: int) -> Placement:
    """Write a placement."""
    for attempt in range(ATTEMPTS):
        draft, model, to = drawn(library, seed, attempt)
        try:
            tolerance, passes, fails = verified(draft, model, to)
        except Unverified:
            continue
        above, stage = f"{model.name}/", draft.stage
        # The retraced signature of other models is not recognized as their call: the inputs that
        # are drawn for it are no IDs, and a difference of large numbers enlarges rounding errors.
        is_plain = len(stage.sources) == 1 and not any(
            word in kind for kind in draft.kinds for word in NOT_RETRACED
        )
        suffixes = (".h5", ".keras", "") if is_plain else (".h5", ".keras")
        base = f"{library}-{seed}"
        suffix = ".keras" if library == "keras" else draft.kit.pick(*suffixes)
        placement = Placement(
            library=library,
            seed=seed,
            attempt=attempt,
            model=base + suffix,
            inputs=f"{base}.npz",
            unseen=f"{base}-unseen.npz",
            to=to,
            tolerance=tolerance,
            planted=tuple(above + item for found in draft.found for item in found.planted),
            either=tuple(
                tuple(above + item for item in found.either)
                for found in draft.found
                if found.either
            ),
            decoys=tuple(above + item for item in draft.decoys),
            kinds=tuple(draft.kinds),
            passes=passes,
            fails=fails,
        )
        model.save(directory / placement.model)
        np.savez(directory / placement.inputs, **dict(zip(stage.names, stage.arrays, strict=True)))
        unseen = zip(stage.names, draft.unseen, strict=True)
        np.savez(directory / placement.unseen, **dict(unseen))
        return placement
    raise SystemExit(f"no placement for {library} and seed {seed}")


# models with random weights


def random_model(library: str, seed: int) -> tuple[Any, Trunk, str]:
    """
    Return a model of three to eight layers and an output, its inputs, and a policy; the layers
    differ in what they lose in 16 bits.
    """
    attempt = 0
    while True:
        kit = started_kit(library, f"random-{attempt}", seed)
        to = str(kit.pick(FLOAT16, BFLOAT16))
        has_steps = kit.rng.random() < 0.3
        shape = (int(kit.pick(8, 12)), 4) if has_steps else (int(kit.pick(8, 12)),)
        name = kit.own_name()
        stage = Trunk(kit, kit.keras.Input(shape, name=name), kit.normal(ROWS, *shape))
        stage.names = [name]
        for _ in range(int(kit.rng.integers(3, 9)) - has_steps):
            random_layer(kit, stage)
        if has_steps:
            stage.add(kit.layers.GlobalAveragePooling1D(name=kit.name()))
        stage.dense(int(kit.pick(2, 4)), largest=kit.between(1, 3))
        values = stage.values()
        if np.isfinite(values).all() and (values.std(0) > 1e-2).all():
            return kit.keras.Model(stage.source, stage.tensor, name=kit.own_name()), stage, to
        attempt += 1


def random_layer(kit: Kit, stage: Stage) -> None:
    """Add one layer."""
    layers, width = kit.layers, int(stage.tensor.shape[-1])
    kind = kit.pick("dense", "dense", "dense", "residual", "rescaling", "norm", "batch", "tanh")
    values = stage.values()
    if kind == "dense":
        stage.dense(kit.width(), largest=kit.between(0.5, 20), activation=kit.pick(None, "relu"))
        layer = stage.tensor._keras_history[0]  # noqa: SLF001
        bias = kit.between(0.01, 300) * (1 + 0.1 * kit.normal(*layer.bias.shape))
        layer.bias.assign(bias.astype("float32"))
    elif kind == "residual":
        layer = layers.Dense(width, name=kit.name(), kernel_initializer=initializer(kit))
        before = stage.tensor
        after = layer(before)
        stage.end(kit.op("add", after, before) if kit.is_keras3 else after)
    elif kind == "rescaling":
        mean = float(values.mean())
        stage.add(layers.Rescaling(kit.between(0.3, 3), -mean * kit.pick(0, 1), name=kit.name()))
    elif kind == "norm":
        stage.add(layers.LayerNormalization(name=kit.name()))
    elif kind == "batch":
        layer = layers.BatchNormalization(name=kit.name())
        stage.add(layer)
        axes = tuple(range(values.ndim - 1))
        layer.moving_mean.assign(values.mean(axes))
        layer.moving_variance.assign(values.var(axes) + 1e-3)
    else:
        scale = 1 / max(float(np.abs(values).max()), 1.0)
        if scale < 1:
            stage.add(layers.Rescaling(scale, name=kit.name()))
        else:
            stage.add(layers.Activation("tanh", name=kit.name()))


def write_random(directory: Path, library: str, seed: int) -> dict[str, Any]:
    """Write a model with random weights and its inputs."""
    model, stage, to = random_model(library, seed)
    base = f"random-{library}-{seed}"
    case = {
        "model": base + (".keras" if library == "keras" else ".h5"),
        "inputs": f"{base}.npz",
        "to": to,
    }
    model.save(directory / case["model"])
    np.savez(directory / case["inputs"], **dict(zip(stage.names, stage.arrays, strict=True)))
    return case


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0] if __doc__ else None)
    parser.add_argument("directory", type=Path, metavar="DIR")
    parser.add_argument("--library", choices=LIBRARIES, required=True)
    parser.add_argument("--seed", type=int, action="append", required=True)
    parser.add_argument("--random", action="store_true", help="small models with random weights")
    given = parser.parse_args()
    given.directory.mkdir(parents=True, exist_ok=True)
    for seed in given.seed:
        if given.random:
            truth = write_random(given.directory, given.library, seed)
        else:
            truth = asdict(write(given.directory, given.library, seed))
        name = f"random-{given.library}" if given.random else given.library
        target = given.directory / f"{name}-{seed}.json"
        target.write_text(json.dumps(truth, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
