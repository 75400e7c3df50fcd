"""
Write models that fail under a 16-bit policy in one known place, and models that do not fail:
``python planted_failures.py DIR --library keras|tf_keras --seed N``, under the interpreter
with the library.

DIR gets a model and its inputs for each case, the module with the custom class, and
``cases.json``, which names the planted place of each model, a set of layers that repairs it in
float32, and the arguments that ``check`` needs to load it. The seed selects widths, names, depths,
nesting, file formats and the variant of a weakness. ``KERAS_BACKEND`` selects the backend of keras.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import zlib
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

LIBRARIES: Final = ("keras", "tf_keras")
FLOAT16: Final = "mixed_float16"
BFLOAT16: Final = "mixed_bfloat16"

WORDS: Final = (
    *("stem", "trunk", "mixer", "branch", "encoder", "gate", "level", "unit", "stage", "tower"),
    *("bridge", "path", "block", "node", "column", "track", "lane", "core", "wing", "port"),
)

CUSTOM: Final = "planted_block"
"""The module with the custom class, written beside the models."""

CUSTOM_CLASS: Final = "EnergyBlock"

CUSTOM_SOURCE: Final = '''"""A custom layer that computes an energy between two inner layers."""

import {library} as keras
{ops}


@keras.saving.register_keras_serializable(package="Planted{seed}")
class EnergyBlock(keras.layers.Layer):
    """Divides the squares of a projection by their sum, and projects the shares."""

    def __init__(self, units, gain, {first}="{first}", {last}="{last}", **options):
        super().__init__(**options)
        self.units = units
        self.gain = gain
        self.{first} = keras.layers.Dense(units, name={first}, dtype=self.{policy})
        self.{last} = keras.layers.Dense(units, name={last}, dtype=self.{policy})
        self.names = {first}, {last}

{build}    def call(self, inputs):
        energy = ops.square(self.{first}(inputs) * self.gain)
        return self.{last}(energy / ops.{sum}(energy, axis=-1, keepdims=True))

    def get_config(self):
        return {{
            **super().get_config(),
            "units": self.units,
            "gain": self.gain,
            "{first}": self.names[0],
            "{last}": self.names[1],
        }}
'''

CUSTOM_BUILD: Final = """    def build(self, shape):
        self.{first}.build(shape)
        self.{last}.build((*shape[:-1], self.units))
        super().build(shape)

"""
"""What Keras 3 needs to load weights; in tf_keras the variables would have the same names."""


@dataclass(frozen=True)
class Planted:
    """What is planted in a stage; paths are names of layers within it."""

    place: str
    repair: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    code_of: bool = False
    call: int = 1


@dataclass(frozen=True)
class Case:
    """A line of ``cases.json``."""

    name: str
    library: str
    seed: int
    variant: str
    model: str
    """The file, relative to the directory, as ``inputs`` and ``module`` are."""

    inputs: str
    policy: str
    to: str | None
    """The policy for ``--to``; None if the layers of the file have the policy already."""

    fails: bool
    """Whether ``check`` is to exit with 1."""

    shows_in_outputs: bool
    """Whether the outputs are worse than rounding explains, in a row or a channel of its own."""

    repairable: bool
    place: str | None = None
    """
    The path of the planted layer or op, or of the custom layer whose code is planted; None for
    models without a weakness.
    """

    class_name: str | None = None
    code_of: bool = False
    call: int = 1
    also: tuple[str, ...] = ()
    """
    Other places that may be named: layers whose rounding the planted op only makes visible.
    """

    repair: tuple[str, ...] = ()
    """Paths of layers with which in float32 the check passes, chosen by hand."""

    arguments: tuple[str, ...] = ()
    """What ``check`` needs to load the model, in the directory."""

    not_comparable: tuple[str, ...] = ()
    """Outputs of which the reference says nothing."""


class Kit:
    """A Keras, and the choices that a seed makes for one case."""

    def __init__(self, library: str, case: str, seed: int) -> None:
        self.library = library
        self.seed = seed
        self.keras: Any = importlib.import_module(library)
        self.layers: Any = self.keras.layers
        self.rng = np.random.default_rng([zlib.crc32(case.encode()), seed])
        self.words = list(self.rng.permutation(WORDS))
        self.variant = ""
        self.in_file = bool(self.rng.random() < 0.25)
        """Whether the file is to have the policy, so that no layer is kept in float32 by a rule."""

        self.head: Any = None
        """The dtype of the layers that make the outputs."""

    @property
    def tf(self) -> Any:
        """TensorFlow, which only tf_keras needs."""
        return importlib.import_module("tensorflow")

    @property
    def is_keras3(self) -> bool:
        """Whether this is Keras 3."""
        return self.library == "keras"

    def op(self, name: str, *arguments: Any, **options: Any) -> Any:
        """Call an op by its name in ``keras.ops``."""
        if self.is_keras3:
            return getattr(self.keras.ops, name)(*arguments, **options)
        here = {"sum": "reduce_sum", "mean": "reduce_mean", "power": "pow"}.get(name, name)
        home = self.tf if hasattr(self.tf, here) else self.tf.math
        return getattr(home, here)(*arguments, **options)

    def array(self, tensor: Any) -> Any:
        """Return a tensor or a variable as an array."""
        return self.keras.ops.convert_to_numpy(tensor) if self.is_keras3 else np.asarray(tensor)

    def name(self) -> str | None:
        """Return a new name, or None for the name that the library gives."""
        if self.rng.random() < 0.2:
            return None
        return self.own_name()

    def own_name(self) -> str:
        """Return a new name."""
        if not self.words:
            self.words = [f"{word}_{self.rng.integers(10, 100)}" for word in WORDS]
        return f"{self.words.pop()}_{self.rng.integers(1, 10)}"

    def pick(self, *values: Any) -> Any:
        """Return one of the values."""
        return values[int(self.rng.integers(len(values)))]

    def select(self, *variants: str) -> str:
        """Return one of the variants of a weakness, and note it."""
        self.variant = self.pick(*variants)
        return self.variant

    def between(self, low: float, high: float) -> float:
        """Return a number in a range, evenly in its logarithm."""
        return float(np.exp(self.rng.uniform(np.log(low), np.log(high))))

    def width(self) -> int:
        """Return a number of channels."""
        return int(self.pick(8, 12, 16, 24))

    def normal(self, *shape: int) -> Any:
        """Return normally distributed values."""
        return self.rng.standard_normal(shape).astype("float32")


class Stage:
    """A chain of layers from an input, and what the chain makes of the data."""

    def __init__(self, kit: Kit, source: Any, data: Any) -> None:
        self.kit = kit
        self.source = source
        self.tensor = source
        self.data = data

    def add(self, layer: Any) -> str:
        """Call a layer on the end of the chain; return its name."""
        self.tensor = layer(self.tensor)
        return str(layer.name)

    def end(self, tensor: Any) -> str:
        """Make a tensor the end of the chain; return the name of the layer or op that made it."""
        self.tensor = tensor
        return owner(tensor)

    def values(self, tensor: Any = None) -> Any:
        """Return the values at the end of the chain, or of a tensor in it."""
        expected = self.tensor if tensor is None else tensor
        if expected is self.source:
            return self.data
        return self.kit.array(self.kit.keras.Model(self.source, expected)(self.data))

    def dense(
        self, units: int, *, largest: float | None = None, name: str | None = "", **options: Any
    ) -> str:
        """
        Add a Dense, whose kernel is scaled so that its largest output on the data, before the
        activation, is ``largest``.
        """
        options = {"kernel_initializer": initializer(self.kit), **options}
        layer = self.kit.layers.Dense(
            units, name=self.kit.name() if name == "" else name, **options
        )
        before = self.values() if largest is not None else None
        self.add(layer)
        if largest is not None:
            kernel = self.kit.array(layer.kernel)
            layer.kernel.assign(kernel * largest / np.abs(before @ kernel).max())
        return str(layer.name)


def initializer(kit: Kit) -> Any:
    """Return an initializer with the case's own seed."""
    return kit.keras.initializers.GlorotUniform(seed=int(kit.rng.integers(1 << 30)))


def owner(tensor: Any) -> str:
    """Return the name of the layer or op that made a symbolic tensor."""
    history = tensor._keras_history  # noqa: SLF001
    return str(history[0].name)


# before and after


def vector_block(kit: Kit, stage: Stage) -> None:
    """Add a block of a network on vectors."""
    kind = kit.pick("dense", "dense", "norm", "dropout", "residual")
    if kind == "norm":
        stage.add(kit.layers.LayerNormalization(name=kit.name()))
    elif kind == "dropout":
        stage.dense(kit.width(), activation="relu")
        stage.add(kit.layers.Dropout(0.1, name=kit.name()))
    elif kind == "residual":
        shortcut = stage.tensor
        stage.dense(int(shortcut.shape[-1]), activation="tanh")
        stage.end(kit.layers.Add(name=kit.name())([shortcut, stage.tensor]))
    else:
        stage.dense(kit.width(), activation=kit.pick("relu", "tanh", "gelu"))


def sequence_block(kit: Kit, stage: Stage) -> None:
    """Add a block of a network on sequences."""
    if kit.pick(True, False):
        layer = kit.layers.Conv1D(
            kit.pick(2, 3, 4),
            3,
            padding="same",
            activation="relu",
            name=kit.name(),
            kernel_initializer=initializer(kit),
        )
        stage.add(layer)
    else:
        stage.dense(kit.pick(2, 3, 4), activation="tanh")


def image_block(kit: Kit, stage: Stage) -> None:
    """Add a block of a network on images."""
    layer = kit.layers.Conv2D(
        kit.pick(2, 4),
        3,
        padding="same",
        activation="relu",
        name=kit.name(),
        kernel_initializer=initializer(kit),
    )
    stage.add(layer)


def linear_block(kit: Kit, stage: Stage) -> None:
    """Add a block that keeps zeros zero and the proportions of rows."""
    stage.dense(kit.width(), activation=kit.pick("relu", None), use_bias=False)


def settle(kit: Kit, stage: Stage) -> str:
    """Add what brings large activations back to the size of usual ones; return its name."""
    kind = kit.pick("norm", "batch", "dense")
    if kind == "norm":
        return stage.add(kit.layers.LayerNormalization(name=kit.name()))
    if kind == "dense":
        return stage.dense(kit.width(), largest=kit.between(2, 5))
    values = stage.values()
    layer = kit.layers.BatchNormalization(name=kit.name())
    name = stage.add(layer)
    axes = tuple(range(values.ndim - 1))
    layer.moving_mean.assign(values.mean(axes))
    layer.moving_variance.assign(values.var(axes) + 1e-3)
    return name


# the weaknesses


def overflow(kit: Kit, stage: Stage) -> Planted:
    """Use large weights, whose products exceed float16."""
    stage.dense(kit.width(), largest=kit.between(20, 60), activation="relu")
    kind = kit.select("dense", "dense", "conv")
    largest = kit.between(2e5, 8e5)
    if kind == "dense":
        place = stage.dense(kit.width(), largest=largest)
        return Planted(place, (place, settle(kit, stage)))
    stage.add(kit.layers.Reshape((-1, 4), name=kit.name()))
    layer = kit.layers.Conv1D(6, 2, name=kit.name(), kernel_initializer=initializer(kit))
    place = stage.add(layer)
    layer.kernel.assign(kit.array(layer.kernel) * largest / np.abs(stage.values()).max())
    repair = place, settle(kit, stage)
    stage.add(kit.layers.GlobalMaxPooling1D(name=kit.name()))
    return Planted(place, repair)


def data_overflow(kit: Kit, stage: Stage) -> Planted:
    """Exceed float16 only in rows of large values."""
    stage.dense(kit.width(), largest=kit.between(600, 2000), use_bias=False)
    if kit.select("dense", "multiply") == "dense":
        place = stage.dense(kit.width(), largest=kit.between(3e5, 8e5), use_bias=False)
    else:
        layer = kit.layers.Multiply(name=kit.name())
        place = stage.end(layer([stage.tensor, stage.tensor]))
    return Planted(place, (place, stage.add(kit.layers.LayerNormalization(name=kit.name()))))


def tiny_epsilon(kit: Kit, stage: Stage) -> Planted:
    """Normalize rows of zeros with an epsilon that is zero in float16."""
    if kit.in_file:  # with --to, layers of this class stay in float32
        kit.variant = "unit"
        place = stage.add(kit.layers.UnitNormalization(name=kit.name()))
        return Planted(place, (place,))
    kit.variant = "ops"
    producer = stage.dense(kit.width(), use_bias=False)
    squares = kit.op("sum", kit.op("square", stage.tensor), axis=-1, keepdims=True)
    shifted = kit.op("add", squares, kit.pick(1e-8, 1e-10, 1e-12))
    root = kit.op("sqrt", shifted)
    place = stage.end(kit.op("divide", stage.tensor, root))
    return Planted(place, (producer,), (owner(shifted), owner(root)))


def small_divisor(kit: Kit, stage: Stage) -> Planted:
    """Divide by a constant that is zero in float16."""
    producer = stage.dense(kit.width(), activation="tanh")
    place = stage.end(kit.op("divide", stage.tensor, kit.pick(1e-8, 2e-8)))
    return Planted(place, (producer, settle(kit, stage)))


def log_of_zero(kit: Kit, stage: Stage) -> Planted:
    """Take the logarithm of probabilities, some of which are zero in float16."""
    largest = kit.between(24, 40)
    stage.dense(kit.width(), largest=largest)
    kind = kit.select("softmax", "sigmoid")
    producer = stage.add(kit.layers.Activation(kind, name=kit.name()))
    place = stage.end(kit.op("log", stage.tensor))
    return Planted(place, (producer,), (producer,))


def drifting_cumsum(kit: Kit, stage: Stage) -> Planted:
    """Add up a long axis step by step, until the sum stops growing."""
    producer = stage.dense(kit.pick(2, 4), largest=kit.between(2, 3), activation="softplus")
    place = stage.end(kit.op("cumsum", stage.tensor, axis=1))
    stage.add(kit.layers.GlobalMaxPooling1D(name=kit.name()))
    return Planted(place, (producer,))


def long_sum(kit: Kit, stage: Stage) -> Planted:
    """Add up a long axis."""
    largest = kit.between(200, 400) if kit.select("overflow", "drift") == "overflow" else 2
    producer = stage.dense(kit.pick(2, 4), largest=largest, activation="softplus")
    place = stage.end(kit.op("sum", stage.tensor, axis=1))
    return Planted(place, (producer, stage.dense(kit.width(), largest=kit.between(2, 5))))


def long_mean(kit: Kit, stage: Stage) -> Planted:
    """Average a long axis, whose sum stops growing."""
    producer = stage.dense(kit.pick(2, 4), largest=kit.between(8, 20), activation="softplus")
    if kit.is_keras3:  # its mean adds up in float32
        terms = float(stage.tensor.shape[1])
        total = kit.op("sum", stage.tensor, axis=1)
        place = owner(total)
        stage.end(kit.op("divide", total, terms))
    else:
        place = stage.end(kit.op("mean", stage.tensor, axis=1))
    return Planted(place, (producer,))


def underflow_chain(kit: Kit, stage: Stage) -> Planted:
    """Multiply by two small scales, of which the second flushes to zero, and by two large ones."""
    kind = kit.select("dense", "rescaling")

    def scale(by: float) -> str:
        if kind == "rescaling":
            return stage.add(kit.layers.Rescaling(by, name=kit.name()))
        now = float(np.abs(stage.values()).max())
        return stage.dense(int(stage.tensor.shape[-1]), largest=now * by, use_bias=False)

    scale(kit.between(1e-4, 3e-4))
    small = scale(kit.between(2e-5, 6e-5))
    large = scale(kit.between(8e3, 2e4))
    scale(kit.between(5e3, 2e4))
    return Planted(small, (small, large))


def shared_nested(kit: Kit, stage: Stage) -> Planted:
    """Call a nested model twice, which overflows in its second call."""
    width = kit.width()
    stage.dense(width, largest=3, activation="tanh")
    source = kit.keras.Input((width,))
    inner = Stage(kit, source, stage.values())
    for _ in range(kit.rng.integers(0, 2)):
        inner.dense(kit.width(), use_bias=False, largest=3)
    place = inner.dense(width, largest=kit.between(600, 1500), use_bias=False)
    nested = kit.keras.Model(source, inner.tensor, name=kit.name())
    stage.add(nested)
    if kit.select("between", "direct") == "between":
        stage.add(kit.layers.Activation("relu", name=kit.name()))
    stage.add(nested)
    name = str(nested.name)
    return Planted(f"{name}/{place}", (f"{name}/{place}", settle(kit, stage)), call=2)


def subclassed_block(kit: Kit, stage: Stage) -> Planted:
    """Overflow in the code of a custom layer, between its inner layers."""
    module = importlib.import_module(custom_module(kit.library, kit.seed))
    stage.dense(kit.width(), largest=3, activation="tanh")
    layer = getattr(module, CUSTOM_CLASS)(
        kit.width(), kit.between(500, 2000), kit.own_name(), kit.own_name(), name=kit.name()
    )
    place = stage.add(layer)
    return Planted(place, (place,), code_of=True)


def cancellation(kit: Kit, stage: Stage) -> Planted:
    """Subtract nearly equal large activations."""
    width, before = kit.width(), stage.tensor
    large = kit.between(1500, 6000)
    created = []
    for _ in range(2):
        layer = kit.layers.Dense(
            width,
            name=kit.name(),
            kernel_initializer=initializer(kit),
            bias_initializer=kit.keras.initializers.Constant(large),
        )
        created.append(layer(before))
    producers = owner(created[0]), owner(created[1])
    if kit.select("layer", "op") == "layer":
        place = stage.end(kit.layers.Subtract(name=kit.name())(created))
        return Planted(place, (*producers, place), producers)
    place = stage.end(kit.op("subtract", *created))
    return Planted(place, producers, producers)


def lambda_code(kit: Kit, stage: Stage) -> Planted:
    """Exceed float16 in a Lambda."""
    stage.dense(kit.width(), largest=3, activation="tanh")
    gain = float(round(kit.between(500, 2000)))
    if kit.select("inside", "outside") == "inside":
        layer = kit.layers.Lambda(lambda x: (x * gain) ** 2 / (gain * gain), name=kit.name())
        place = stage.add(layer)
        return Planted(place, (place,))
    layer = kit.layers.Lambda(lambda x: x * gain * gain, name=kit.name())
    place = stage.add(layer)
    return Planted(place, (place, settle(kit, stage)))


def positive_images(kit: Kit, stage: Stage, largest: float) -> None:
    """Add a convolution with positive results up to a size."""
    layer = kit.layers.Conv2D(
        kit.pick(2, 4),
        1,
        activation="softplus",
        name=kit.name(),
        kernel_initializer=initializer(kit),
    )
    before = stage.values()
    stage.add(layer)
    kernel = kit.array(layer.kernel)
    layer.kernel.assign(kernel * largest / np.abs(before @ kernel[0, 0]).max())


def large_pooling(kit: Kit, stage: Stage) -> Planted:
    """Average over a large window."""
    size = int(stage.tensor.shape[1])
    if not kit.in_file:  # with --to, layers with larger windows stay in float32
        kit.variant = "overflow"
        positive_images(kit, stage, kit.between(2500, 5000))
        place = stage.add(kit.layers.AveragePooling2D(int(kit.pick(36, 45)), name=kit.name()))
        stage.add(kit.layers.Flatten(name=kit.name()))
        return Planted(place, (place,))
    positive_images(kit, stage, kit.between(40, 80))
    if kit.select(*(("window",) if kit.is_keras3 else ("window", "global"))) == "window":
        place = stage.add(kit.layers.AveragePooling2D(size, name=kit.name()))
        stage.add(kit.layers.Flatten(name=kit.name()))
    else:
        place = stage.add(kit.layers.GlobalAveragePooling2D(name=kit.name()))
    return Planted(place, (place,))


def group_normalization(kit: Kit, stage: Stage) -> Planted:
    """Normalize groups whose variance exceeds float16, in which tf_keras holds it."""
    positive_images(kit, stage, kit.between(12000, 16000))
    place = stage.add(kit.layers.GroupNormalization(kit.pick(1, 2), name=kit.name()))
    stage.add(kit.layers.MaxPooling2D(16, name=kit.name()))
    stage.add(kit.layers.Flatten(name=kit.name()))
    return Planted(place, (place,))


def float_ids(kit: Kit, stage: Stage) -> Planted:
    """Pass ids as floats through a layer that casts them."""
    steps = int(stage.tensor.shape[1])
    kind = kit.select("reshape", "rescaling", "concatenate")
    if kind == "reshape":
        place = stage.add(kit.layers.Reshape((steps,), name=kit.name()))
    elif kind == "rescaling":
        place = stage.add(kit.layers.Rescaling(1.0, name=kit.name()))
    else:
        place = stage.end(kit.layers.Concatenate(name=kit.name())([stage.tensor, stage.tensor]))
    layer = kit.layers.Embedding(6000, 4, name=kit.name())
    stage.add(layer)
    layer.embeddings.assign(kit.normal(6000, 4))
    stage.add(kit.pick(kit.layers.Flatten, kit.layers.GlobalMaxPooling1D)(name=kit.name()))
    return Planted(place, (place,))


def rnn_blow_up(kit: Kit, stage: Stage) -> Planted:
    """Grow the state of a recurrent layer with every step."""
    steps, units = int(stage.tensor.shape[1]), kit.width()
    layer = kit.layers.SimpleRNN(
        units,
        activation=kit.select("linear", "relu"),
        name=kit.name(),
        kernel_initializer=initializer(kit),
    )
    place = stage.add(layer)
    growth = kit.between(1e6, 1e8) ** (1 / steps)
    recurrent = np.eye(units) * growth
    layer.cell.recurrent_kernel.assign(recurrent.astype("float32"))
    return Planted(place, (place, stage.add(kit.layers.LayerNormalization(name=kit.name()))))


def nan_reference(kit: Kit, stage: Stage) -> Planted:
    """Make NaN in float32 too."""
    if kit.select("weight", "op") == "weight":
        place = stage.dense(kit.width())
        layer = stage.tensor._keras_history[0]  # noqa: SLF001
        kernel = kit.array(layer.kernel).copy()
        kernel[0, :] = np.nan
        layer.kernel.assign(kernel)
    else:
        stage.dense(kit.width(), activation="relu")
        place = stage.end(kit.op("log", kit.op("negative", kit.op("add", stage.tensor, 1.0))))
    return Planted(place)


# cases with outputs of their own


def flushed_channels(kit: Kit, stage: Stage, *, units: int = 4, only: int | None = None) -> Planted:
    """
    Flush half of a layer's channels to zero, which the outputs, or only one of them, need.
    """
    width = kit.width()
    place = stage.dense(width, largest=kit.between(1, 3), use_bias=False)
    layer = stage.tensor._keras_history[0]  # noqa: SLF001
    scale = np.ones(width, "float32")
    small = kit.rng.permutation(width)[: width // 2]
    scale[small] = kit.between(5e-10, 3e-9)
    layer.kernel.assign(kit.array(layer.kernel) * scale)
    kernel = kit.normal(width, units) / scale[:, None]
    large = np.setdiff1d(np.arange(width), small)
    if only is not None:
        kernel[small] = 0
        kernel[large] *= 1000
        kernel[:, only] = 0
        kernel[small, only] = (kit.normal(len(small)) + 0.5) / scale[small]
    head = kit.layers.Dense(units, name=kit.name(), dtype=kit.head)
    stage.add(head)
    head.kernel.assign(kernel.astype("float32"))
    return Planted(place, (place,))


def zero_unit(kit: Kit, stage: Stage) -> Planted:
    """Make one output zero in float16 beside outputs of thousands."""
    units = int(kit.pick(3, 5, 8))
    return flushed_channels(kit, stage, units=units, only=int(kit.rng.integers(units)))


# the table


@dataclass(frozen=True)
class Recipe:
    """A weakness, and the model around it."""

    plant: Callable[[Kit, Stage], Planted]
    shape: Callable[[Kit], tuple[int, ...]]
    before: Callable[[Kit, Stage], None] | None = vector_block
    rows: int = 24
    policies: Sequence[str] = (FLOAT16,)
    feed: Callable[[Kit, Any], Any] = lambda kit, data: data
    depth: tuple[int, int] = (1, 4)
    """The range of the number of blocks before the weakness."""

    has_head: bool = False
    """Whether the plant ends the model."""

    repairable: bool = True
    nests: bool = True
    in_file: bool = False
    """Whether only a file that has the policy fails, because ``--to`` keeps such layers."""

    trust: bool = False
    custom: bool = False
    rounds: bool = False
    """Whether values are wrong and finite, which a softmax can hide."""


def vector(kit: Kit) -> tuple[int, ...]:
    """Return the shape of a row of features."""
    return (int(kit.pick(10, 16, 20)),)


def sequence(low: int, high: int) -> Callable[[Kit], tuple[int, ...]]:
    """Return the shape of sequences with a number of steps in a range."""
    return lambda kit: (int(kit.rng.integers(low, high)), int(kit.pick(1, 2)))


def image(low: int, high: int) -> Callable[[Kit], tuple[int, ...]]:
    """Return the shape of square images with a size in a range, divisible by 16."""
    return lambda kit: (*((int(kit.rng.integers(low // 16, high // 16 + 1)) * 16,) * 2), 2)


def with_large_rows(kit: Kit, data: Any) -> Any:
    """Multiply two rows."""
    data[kit.rng.permutation(len(data))[:2]] *= 300
    return data


def with_empty_rows(kit: Kit, data: Any) -> Any:
    """Empty three rows."""
    data[kit.rng.permutation(len(data))[:3]] = 0
    return data


def as_ids(kit: Kit, data: Any) -> Any:
    """Return ids up to 5999 as floats."""
    return kit.rng.integers(0, 6000, data.shape).astype("float32")


WEAK: Final[Mapping[str, Recipe]] = {
    "overflow": Recipe(overflow, vector),
    "data-overflow": Recipe(data_overflow, vector, linear_block, feed=with_large_rows),
    "tiny-epsilon": Recipe(tiny_epsilon, vector, linear_block, feed=with_empty_rows),
    "small-divisor": Recipe(small_divisor, vector),
    "log-of-zero": Recipe(log_of_zero, vector),
    "drifting-cumsum": Recipe(
        drifting_cumsum, sequence(6000, 9000), sequence_block, 3, (FLOAT16, BFLOAT16), rounds=True
    ),
    "long-sum": Recipe(long_sum, sequence(20000, 30000), sequence_block, 3, rounds=True),
    "long-mean": Recipe(long_mean, sequence(20000, 30000), sequence_block, 3, rounds=True),
    "underflow-chain": Recipe(underflow_chain, vector, rounds=True),
    "shared-nested": Recipe(shared_nested, vector, nests=False),
    "subclassed-block": Recipe(subclassed_block, vector, custom=True),
    "cancellation": Recipe(cancellation, vector, policies=(FLOAT16, BFLOAT16), rounds=True),
    "lambda": Recipe(lambda_code, vector, trust=True),
    "large-pooling": Recipe(large_pooling, image(96, 128), image_block, 2, rounds=True),
    "group-normalization": Recipe(
        group_normalization, image(96, 128), image_block, 2, rounds=True, in_file=True
    ),
    "float-ids": Recipe(
        float_ids,
        lambda kit: (int(kit.pick(4, 6)),),
        None,
        feed=as_ids,
        in_file=True,
        rounds=True,
        policies=(FLOAT16, BFLOAT16),
        nests=False,
    ),
    "flushed-channels": Recipe(flushed_channels, vector, has_head=True, nests=False),
    "zero-unit": Recipe(zero_unit, vector, has_head=True, nests=False),
    "nan-reference": Recipe(nan_reference, vector, repairable=False),
    "rnn-blow-up": Recipe(rnn_blow_up, sequence(30, 60), sequence_block, 16),
}


def planted(kit: Kit, recipe: Recipe) -> tuple[Any, Any, Planted, str]:
    """Return a model, its inputs by name, what is planted in it, and what stands above its path."""
    shape = recipe.shape(kit)
    data = recipe.feed(kit, kit.normal(recipe.rows, *shape))
    name = kit.own_name()
    stage = Stage(kit, kit.keras.Input(shape, name=name), data)
    if recipe.before is not None:
        for _ in range(kit.rng.integers(*recipe.depth)):
            recipe.before(kit, stage)
    above = ""
    if recipe.nests and kit.rng.random() < 0.35:
        source = kit.keras.Input(tuple(stage.tensor.shape[1:]))
        inner = Stage(kit, source, stage.values())
        result = recipe.plant(kit, inner)
        nested = kit.keras.Model(source, inner.tensor, name=kit.own_name())
        stage.add(nested)
        above = f"{nested.name}/"
    else:
        result = recipe.plant(kit, stage)
    if not recipe.has_head:
        for _ in range(kit.rng.integers(0, 3)):
            if recipe.rounds:  # a normalization hides errors that all channels share
                stage.dense(kit.width(), activation=kit.pick(None, "gelu"))
            else:
                vector_block(kit, stage)
        if len(stage.tensor.shape) > 2:
            stage.add(kit.layers.Flatten(name=kit.name()))
        stage.dense(
            int(kit.pick(2, 3, 5)),
            activation=None if recipe.rounds else kit.pick("softmax", None),
            dtype=kit.head,
        )
    model = kit.keras.Model(stage.source, stage.tensor, name=kit.own_name())
    return model, {name: data}, result, f"{model.name}/{above}"


# models without a weakness, or with a harmless one


def attention_mask(kit: Kit) -> tuple[Any, Any]:
    """Return attention with scores of minus infinity in float16 where a mask is zero."""
    steps, width = int(kit.pick(8, 12)), kit.width()
    names = kit.own_name(), kit.own_name()
    source = kit.keras.Input((steps, width), name=names[0])
    mask = kit.keras.Input((steps,), name=names[1])
    dense = [
        kit.layers.Dense(width, name=kit.name(), kernel_initializer=initializer(kit))(source)
        for _ in range(3)
    ]
    scores = kit.layers.Dot((2, 2), name=kit.name())(dense[:2])
    if kit.select("where", "add") == "where":
        kept = kit.op("greater", kit.layers.Reshape((1, steps), name=kit.name())(mask), 0.5)
        scores = kit.op("where", kept, scores, -1e9)
    else:
        off = kit.layers.Rescaling(6e4, -6e4, name=kit.name())(mask)
        off = kit.layers.Reshape((1, steps), name=kit.name())(off)
        scores = kit.layers.Add(name=kit.name())([scores, off, off])
    shares = kit.layers.Softmax(name=kit.name())(scores)
    mixed = kit.layers.Dot((2, 1), name=kit.name())([shares, dense[2]])
    tensor = kit.layers.GlobalAveragePooling1D(name=kit.name())(mixed)
    head = kit.layers.Dense(3, name=kit.name(), kernel_initializer=initializer(kit), dtype=kit.head)
    lengths = kit.rng.integers(2, steps + 1, 24)
    there = (np.arange(steps)[None] < lengths[:, None]).astype("float32")
    model = kit.keras.Model([source, mask], head(tensor), name=kit.own_name())
    return model, {names[0]: kit.normal(24, steps, width), names[1]: there}


def dead_output(kit: Kit) -> tuple[Any, Any]:
    """Return a model with two outputs, one of which is zero for all inputs."""
    stage = started(kit, vector(kit))
    for _ in range(kit.rng.integers(1, 4)):
        vector_block(kit, stage)
    alive = kit.layers.Dense(
        3, name=kit.own_name(), kernel_initializer=initializer(kit), dtype=kit.head
    )
    dead = kit.layers.Dense(
        2,
        activation="relu",
        name=kit.own_name(),
        kernel_initializer=initializer(kit),
        bias_initializer=kit.keras.initializers.Constant(-100.0),
        dtype=kit.head,
    )
    outputs = [alive(stage.tensor), dead(stage.tensor)]
    model = kit.keras.Model(stage.source, outputs, name=kit.own_name())
    return model, {stage.source.name.split(":")[0]: stage.data}


def started(kit: Kit, shape: tuple[int, ...], data: Any = None, dtype: str = "float32") -> Stage:
    """Return a stage that begins with an input of its own."""
    data = kit.normal(24, *shape) if data is None else data
    return Stage(kit, kit.keras.Input(shape, name=kit.own_name(), dtype=dtype), data)


def finished(kit: Kit, stage: Stage, *, units: int = 3) -> tuple[Any, Any]:
    """Return the model of a stage with a head, and its inputs by name."""
    if len(stage.tensor.shape) > 2:
        stage.add(kit.layers.Flatten(name=kit.name()))
    stage.dense(units, activation=kit.pick("softmax", None), dtype=kit.head)
    model = kit.keras.Model(stage.source, stage.tensor, name=kit.own_name())
    return model, {stage.source.name.split(":")[0]: stage.data}


def clean_dense(kit: Kit) -> tuple[Any, Any]:
    """Return a network of dense layers."""
    stage = started(kit, vector(kit))
    for _ in range(3):
        stage.dense(kit.width(), activation=kit.pick("relu", "tanh", "gelu", "elu"))
    return finished(kit, stage)


def _image(kit: Kit) -> Stage:
    size = int(kit.pick(16, 24, 32))
    return started(kit, (size, size, 3), kit.rng.random((8, size, size, 3)).astype("float32"))


def clean_convolutions(kit: Kit) -> tuple[Any, Any]:
    """Return a network of convolutions."""
    stage = _image(kit)
    for _ in range(2):
        image_block(kit, stage)
        stage.add(
            kit.pick(kit.layers.MaxPooling2D, kit.layers.AveragePooling2D)(2, name=kit.name())
        )
    stage.add(kit.layers.GlobalAveragePooling2D(name=kit.name()))
    return finished(kit, stage)


def clean_batch_normalization(kit: Kit) -> tuple[Any, Any]:
    """Return convolutions with BatchNormalization."""
    stage = _image(kit)
    for _ in range(2):
        image_block(kit, stage)
        settle_images(kit, stage)
        stage.add(kit.layers.ReLU(name=kit.name()))
    stage.add(kit.layers.GlobalAveragePooling2D(name=kit.name()))
    return finished(kit, stage)


def settle_images(kit: Kit, stage: Stage) -> None:
    """Add a BatchNormalization that knows the data."""
    values = stage.values()
    layer = kit.layers.BatchNormalization(name=kit.name())
    stage.add(layer)
    layer.moving_mean.assign(values.mean((0, 1, 2)))
    layer.moving_variance.assign(values.var((0, 1, 2)) + 1e-3)


def clean_depthwise(kit: Kit) -> tuple[Any, Any]:
    """Return depthwise convolutions."""
    stage = _image(kit)
    image_block(kit, stage)
    for _ in range(2):
        stage.add(kit.layers.DepthwiseConv2D(3, padding="same", name=kit.name()))
        stage.add(kit.layers.ReLU(6.0, name=kit.name()))
        image_block(kit, stage)
    stage.add(kit.layers.GlobalAveragePooling2D(name=kit.name()))
    return finished(kit, stage)


def clean_lstm(kit: Kit) -> tuple[Any, Any]:
    """Return a recurrent network."""
    stage = started(kit, (int(kit.rng.integers(10, 30)), 4))
    layer = kit.layers.LSTM(kit.width(), name=kit.name())
    stage.add(kit.layers.Bidirectional(layer, name=kit.name()) if kit.pick(True, False) else layer)
    return finished(kit, stage)


def clean_gru(kit: Kit) -> tuple[Any, Any]:
    """Return two GRUs."""
    stage = started(kit, (int(kit.rng.integers(10, 30)), 4))
    stage.add(kit.layers.GRU(kit.width(), return_sequences=True, name=kit.name()))
    stage.add(kit.layers.GRU(kit.width(), name=kit.name()))
    return finished(kit, stage)


def clean_attention(kit: Kit) -> tuple[Any, Any]:
    """Return self-attention."""
    width = kit.width()
    stage = started(kit, (int(kit.rng.integers(6, 20)), width))
    layer = kit.layers.MultiHeadAttention(2, width // 2, name=kit.name())
    stage.end(layer(stage.tensor, stage.tensor))
    stage.add(kit.layers.GlobalAveragePooling1D(name=kit.name()))
    return finished(kit, stage)


def clean_embedding(kit: Kit) -> tuple[Any, Any]:
    """Return an Embedding of integer ids, and pooling."""
    ids = kit.rng.integers(1, 5000, (24, 12))
    stage = started(kit, (12,), ids.astype("int32"), "int32")
    stage.add(kit.layers.Embedding(5000, 8, name=kit.name()))
    stage.add(kit.layers.GlobalAveragePooling1D(name=kit.name()))
    return finished(kit, stage)


def clean_residual(kit: Kit) -> tuple[Any, Any]:
    """Return residual blocks."""
    stage = started(kit, vector(kit))
    stage.dense(16)
    for _ in range(3):
        shortcut = stage.tensor
        stage.dense(16, activation="relu")
        stage.dense(16)
        stage.end(kit.layers.Add(name=kit.name())([shortcut, stage.tensor]))
        stage.add(kit.layers.LayerNormalization(name=kit.name()))
    return finished(kit, stage)


def clean_outputs(kit: Kit) -> tuple[Any, Any]:
    """Return a model with two inputs and three outputs."""
    names = kit.own_name(), kit.own_name()
    first, second = (kit.keras.Input((8,), name=name) for name in names)
    tensor = kit.layers.Concatenate(name=kit.name())([first, second])
    tensor = kit.layers.Dense(16, "relu", name=kit.name())(tensor)
    outputs = [
        kit.layers.Dense(units, kind, name=kit.own_name(), dtype=kit.head)(tensor)
        for units, kind in ((3, "softmax"), (1, None), (2, "sigmoid"))
    ]
    model = kit.keras.Model([first, second], outputs, name=kit.own_name())
    return model, {name: kit.normal(24, 8) for name in names}


def clean_nested(kit: Kit) -> tuple[Any, Any]:
    """Return a nested model that is called twice."""
    stage = started(kit, vector(kit))
    stage.dense(12, activation="relu")
    inner = started(kit, (12,), stage.values())
    inner.dense(kit.width(), activation="tanh")
    inner.dense(12)
    nested = kit.keras.Model(inner.source, inner.tensor, name=kit.name())
    stage.add(nested)
    stage.add(nested)
    return finished(kit, stage)


def clean_transformer(kit: Kit) -> tuple[Any, Any]:
    """Return a transformer block with LayerNormalization."""
    width = 16
    stage = started(kit, (int(kit.rng.integers(6, 20)), width))
    for _ in range(2):
        shortcut = stage.tensor
        stage.add(kit.layers.LayerNormalization(epsilon=1e-6, name=kit.name()))
        layer = kit.layers.MultiHeadAttention(2, width // 2, name=kit.name())
        stage.end(layer(stage.tensor, stage.tensor))
        stage.end(kit.layers.Add(name=kit.name())([shortcut, stage.tensor]))
        shortcut = stage.tensor
        stage.add(kit.layers.LayerNormalization(epsilon=1e-6, name=kit.name()))
        stage.dense(2 * width, activation="gelu")
        stage.dense(width)
        stage.end(kit.layers.Add(name=kit.name())([shortcut, stage.tensor]))
    stage.add(kit.layers.GlobalAveragePooling1D(name=kit.name()))
    return finished(kit, stage)


def clean_classes(kit: Kit) -> tuple[Any, Any]:
    """Return a classifier of a thousand classes."""
    stage = started(kit, vector(kit))
    stage.dense(kit.width(), activation="relu")
    stage.dense(1000, largest=kit.between(5, 15))
    stage.add(kit.layers.Softmax(name=kit.name(), dtype=kit.head))
    model = kit.keras.Model(stage.source, stage.tensor, name=kit.own_name())
    return model, {stage.source.name.split(":")[0]: stage.data}


HARMLESS: Final[Mapping[str, Callable[[Kit], tuple[Any, Any]]]] = {
    "attention-mask": attention_mask,
    "dead-output": dead_output,
    "clean-dense": clean_dense,
    "clean-convolutions": clean_convolutions,
    "clean-batch-normalization": clean_batch_normalization,
    "clean-depthwise": clean_depthwise,
    "clean-lstm": clean_lstm,
    "clean-gru": clean_gru,
    "clean-attention": clean_attention,
    "clean-embedding": clean_embedding,
    "clean-residual": clean_residual,
    "clean-outputs": clean_outputs,
    "clean-nested": clean_nested,
    "clean-transformer": clean_transformer,
    "clean-classes": clean_classes,
}


# writing


def write(directory: Path, library: str, seed: int, only: Sequence[str] = ()) -> list[Case]:
    """Write the models of a library; return the cases, all or those of the names given."""
    directory.mkdir(parents=True, exist_ok=True)
    policy = "dtype_policy" if library == "keras" else "_dtype_policy"
    rng = np.random.default_rng(seed)
    first, last = (str(word) for word in rng.permutation(["inner", "project", "mix", "out"])[:2])
    names = {"first": first, "last": last}
    build = CUSTOM_BUILD.format(**names) if library == "keras" else ""
    ops = {"ops": "from keras import ops", "sum": "sum"}
    if library != "keras":
        ops = {"ops": "import tensorflow as ops", "sum": "reduce_sum"}
    source = CUSTOM_SOURCE.format(
        library=library, policy=policy, build=build, seed=seed, **ops, **names
    )
    (directory / f"{custom_module(library, seed)}.py").write_text(source, encoding="utf-8")
    sys.path.insert(0, str(directory))
    expected = [name for name in (*WEAK, *HARMLESS) if not only or name in only]
    return [write_case(directory, name, library, seed) for name in expected]


def write_case(directory: Path, name: str, library: str, seed: int) -> Case:
    """Write a model and its inputs; return the case."""
    recipe = WEAK.get(name)
    kit, model, inputs, case = built(name, library, seed)
    if kit.in_file or (recipe is not None and recipe.in_file):
        weights = model.get_weights()
        with np.errstate(all="ignore"):  # activations that are measured in 16 bits
            _, model, _, _ = built(name, library, seed, policy=case.policy)
        kit.keras.mixed_precision.set_global_policy("float32")
        model.set_weights(weights)
        case = replace(case, to=None)
    model.save(directory / case.model)
    np.savez(directory / case.inputs, **inputs)
    return case


def built(
    name: str, library: str, seed: int, *, policy: str = "float32"
) -> tuple[Kit, Any, Any, Case]:
    """
    Return a model, its inputs by name, and its case. Its layers are the same under any policy; its
    outputs are in float32.
    """
    kit = Kit(library, name, seed)
    kit.head = None if policy == "float32" else "float32"
    kit.keras.backend.clear_session()
    kit.keras.mixed_precision.set_global_policy(policy)
    kit.keras.utils.set_random_seed(int(kit.rng.integers(1 << 30)))
    for _ in range(kit.rng.integers(0, 4)):  # numbers in the names that the library gives
        kit.layers.Dense(1)(kit.keras.Input((1,)))
    suffix = "keras" if kit.is_keras3 else kit.pick("h5", "h5", "keras")
    case = Case(
        name=name,
        library=library,
        seed=seed,
        variant="",
        model=f"{library}-{name}.{suffix}",
        inputs=f"{library}-{name}.npz",
        policy=FLOAT16,
        to=FLOAT16,
        fails=False,
        shows_in_outputs=False,
        repairable=True,
    )
    recipe = WEAK.get(name)
    if recipe is None:
        model, inputs = HARMLESS[name](kit)
        if name == "dead-output":
            case = replace(case, not_comparable=(str(model.output_names[1]),))
        return kit, model, inputs, replace(case, variant=kit.variant)
    chosen = kit.pick(*recipe.policies)
    model, inputs, result, above = planted(kit, recipe)
    case = replace(
        case,
        policy=chosen,
        to=chosen,
        variant=kit.variant,
        arguments=arguments(recipe, library, seed),
    )
    if name == "group-normalization" and kit.is_keras3:  # it computes in float32
        return kit, model, inputs, case
    case = replace(
        case,
        fails=True,
        shows_in_outputs=True,
        repairable=recipe.repairable,
        place=above + result.place,
        class_name=class_of(model, above + result.place),
        code_of=result.code_of,
        call=result.call,
        also=tuple(above + item for item in result.also),
        repair=tuple(above + item for item in result.repair),
    )
    return kit, model, inputs, case


def custom_module(library: str, seed: int) -> str:
    """Return the module with the custom class, which one process may load for several seeds."""
    return f"{CUSTOM}_{library}_{seed}"


def arguments(recipe: Recipe, library: str, seed: int) -> tuple[str, ...]:
    """Return the arguments that loading takes."""
    if recipe.custom:
        return ("--custom-objects", custom_module(library, seed))
    return ("--trust",) if recipe.trust else ()


def class_of(model: Any, path: str) -> str:
    """Return the name of the class of the layer or op at a path."""
    result = model
    for part in path.split("/")[1:]:
        inner = getattr(result, "operations", None) or result.layers
        result = next(item for item in inner if item.name == part)
    return type(result).__name__


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0] if __doc__ else None)
    parser.add_argument("directory", type=Path, metavar="DIR")
    parser.add_argument("--library", choices=LIBRARIES, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", action="append", default=[], metavar="CASE")
    given = parser.parse_args()
    cases = write(given.directory.resolve(), given.library, given.seed, given.only)
    lines = json.dumps([asdict(case) for case in cases], indent=1)
    (given.directory / "cases.json").write_text(lines + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
