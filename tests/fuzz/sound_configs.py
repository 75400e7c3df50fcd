"""
Configs of models as releases write them, with every class that only computes: what attacks are put
into, and what needs no trust without them.

The arguments of a class and their values are those that a release was seen to write
(``data/layer_arguments.json``).
"""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from policytool.releases import data, known_arguments, symbols
from policytool.releases import symbols as _functions
from policytool.releases.layer_classes import Category, classes_of

if TYPE_CHECKING:
    from random import Random

Config = dict[str, Any]

RELEASES: Final = {2: "tf_keras2.21", 3: "keras3.15"}
"""The release whose arguments are written, by the generation of the config."""

DTYPES: Final = {"StringLookup": "string", "IntegerLookup": "int64", "TextVectorization": "string"}
"""What layers compute in that take no numbers of other dtypes."""

_LAYERS: Final = "layers"
HOLDERS: Final = frozenset(
    {
        "Functional",
        "Model",
        "Sequential",
        "InputLayer",
        "Bidirectional",
        "TimeDistributed",
        "RNN",
        "StackedRNNCells",
        "SpectralNormalization",
    }
)
_SHAPES: Final = {
    "1D": [8, 4],
    "2D": [8, 8, 3],
    "3D": [4, 8, 8, 3],
    "LSTM": [8, 4],
    "GRU": [8, 4],
    "RNN": [8, 4],
    "Attention": [8, 4],
    "Random": [8, 8, 3],
}
_ANYWHERE: Final = (
    "Activation",
    "Dropout",
    "Dense",
    "LayerNormalization",
    "ReLU",
    "Flatten",
    "Rescaling",
    "GaussianNoise",
)
"""Layers that take what any other gives."""

_MERGES: Final = frozenset(
    {
        "Add",
        "Average",
        "Concatenate",
        "Dot",
        "Maximum",
        "Minimum",
        "Multiply",
        "Subtract",
        "Attention",
        "AdditiveAttention",
    }
)
_PLAIN: Final = (
    "abs",
    "math.abs",
    "math.tanh",
    "nn.relu",
    "math.reduce_mean",
    "cast",
    "identity",
    "__operators__.add",
    "compat.v1.squeeze",
    "norm",
)


def model(rng: Random, generation: int) -> Config:
    """Return a model: Functional or Sequential, with layers in wrappers and models in models."""
    chosen = _members(rng, generation)
    return (
        sequential(rng, generation, chosen)
        if rng.random() < 0.3
        else functional(rng, generation, chosen)
    )


def _members(rng: Random, generation: int) -> list[Config]:
    actual = [
        layer(rng, generation),
        *(layer(rng, generation, rng.choice(_ANYWHERE)) for _ in range(rng.randrange(3))),
    ]
    if rng.random() < 0.3:
        actual.append(wrapped(rng, generation))
    if rng.random() < 0.2:
        inner = [layer(rng, generation)]
        actual.append(
            sequential(rng, generation, inner)
            if rng.random() < 0.5
            else functional(rng, generation, inner)
        )
    if generation == 2 and rng.random() < 0.3:
        actual.append(
            entry(
                rng,
                generation,
                "TFOpLambda",
                {"function": rng.choice(_PLAIN if rng.random() < 0.8 else _pure_functions())},
            )
        )
    if generation == 3 and rng.random() < 0.3:
        actual.append(
            entry(rng, generation, rng.choice(_operations()), {}, module="keras.src.ops.numpy")
        )
    return actual


def entry(
    rng: Random, generation: int, class_name: str, config: Config, *, module: str = "keras.layers"
) -> Config:
    """Return an object with a name of its own, as a generation writes it."""
    named = {
        "name": f"{class_name.lower()}_{rng.randrange(10**6)}",
        "trainable": True,
        "dtype": DTYPES.get(class_name, "float32"),
        **config,
    }
    if generation == 2:
        return {"class_name": class_name, "config": named}
    if module == "keras.layers" and class_name not in DTYPES:
        named["dtype"] = thing(3, "DTypePolicy", {"name": "float32"}, module="keras")
    return thing(3, class_name, named, module=module)


def thing(
    generation: int, class_name: str, config: Config, *, module: str = "keras.initializers"
) -> Config:
    """Return an object that is no layer."""
    if generation == 2:
        return {"class_name": class_name, "config": config}
    return {"module": module, "class_name": class_name, "config": config, "registered_name": None}


def layer(rng: Random, generation: int, class_name: str | None = None) -> Config:
    """Return a layer of any class that a generation has."""
    class_name = class_name or rng.choice(layer_classes(generation))
    return entry(rng, generation, class_name, arguments(rng, generation, _LAYERS, class_name))


def wrapped(rng: Random, generation: int) -> Config:
    """Return a layer that holds another."""
    if rng.random() < 0.5:
        return entry(
            rng,
            generation,
            "Bidirectional",
            {"layer": layer(rng, generation, rng.choice(("LSTM", "GRU"))), "merge_mode": "concat"},
        )
    return entry(rng, generation, "TimeDistributed", {"layer": layer(rng, generation, "Dense")})


def arguments(rng: Random, generation: int, kind: str, class_name: str) -> Config:
    """Return the arguments of a class as its release writes them."""
    found: Config = {}
    for key, values in (
        known_arguments.measurements()[kind].get(class_name, {}).get("writes", {}).items()
    ):
        fitting = [
            value
            for value, columns in values.items()
            if RELEASES[generation] in known_arguments._columns(columns)  # noqa: SLF001
        ]
        if fitting:
            found[key] = _value(rng, generation, rng.choice(fitting))
    return found


def _value(rng: Random, generation: int, text: str) -> Any:
    """Return a recorded value: JSON, or a class."""
    if not text.startswith("@"):
        return json.loads(text)
    name = text[1:]
    if name in known_arguments.measurements()[_LAYERS]:
        return layer(rng, generation, name)
    kind, module = (
        ("optimizers", "keras.optimizers")
        if name == "Adam"
        else ("initializers", "keras.initializers")
    )
    return thing(generation, name, arguments(rng, generation, kind, name), module=module)


def sequential(rng: Random, generation: int, layers: list[Config]) -> Config:
    """Return a Sequential model."""
    return entry(
        rng,
        generation,
        "Sequential",
        {"layers": [_input(generation, layers), *layers]},
        module="keras",
    )


def functional(rng: Random, generation: int, layers: list[Config]) -> Config:
    """Return a model whose layers are called one after the other."""
    entries, before = [_input(generation, layers)], "in"
    for one in layers:
        name = one["config"]["name"]
        entries.append(
            {
                **one,
                "name": name,
                "inbound_nodes": [_call(generation, before, twice=one["class_name"] in _MERGES)],
            }
        )
        before = name
    entries[0] |= {"name": "in", "inbound_nodes": []}
    ends: Any = ([["in", 0, 0]], [[before, 0, 0]])
    return entry(
        rng,
        generation,
        "Functional",
        {"layers": entries, "input_layers": ends[0], "output_layers": ends[1]},
        module="keras.src.models.functional",
    )


def _call(generation: int, before: str, *, twice: bool) -> Any:
    if generation == 2:
        return [[before, 0, 0, {}]] * (2 if twice else 1)
    tensor = {
        "class_name": "__keras_tensor__",
        "config": {"shape": [None, 4], "dtype": "float32", "keras_history": [before, 0, 0]},
    }
    return {"args": [[tensor, tensor] if twice else tensor], "kwargs": {}}


def _input(generation: int, layers: list[Config]) -> Config:
    name = layers[0]["class_name"]
    shape = [None, *next((shape for part, shape in _SHAPES.items() if part in name), [4])]
    if generation == 2:
        return {
            "class_name": "InputLayer",
            "config": {
                "batch_input_shape": shape,
                "dtype": "float32",
                "sparse": False,
                "ragged": False,
                "name": "in",
            },
        }
    return thing(
        3,
        "InputLayer",
        {"batch_shape": shape, "dtype": "float32", "sparse": False, "name": "in"},
        module="keras.layers",
    )


@cache
def layer_classes(generation: int) -> tuple[str, ...]:
    """Return the layers that only compute and stand for themselves, of a generation."""
    known = known_arguments.measurements()[_LAYERS].keys() - HOLDERS - classes_of(Category.OP_LAYER)
    return tuple(
        sorted(
            name for name in known if symbols.is_pure_class(name) and is_released(name, generation)
        )
    )


def is_released(class_name: str, *generations: int) -> bool:
    """Return whether one of the releases whose arguments are written has a layer."""
    row = known_arguments.measurements()[_LAYERS][class_name]
    missing = known_arguments._columns(row.get("missing", ""))  # noqa: SLF001
    return any(RELEASES[generation] not in missing for generation in generations or RELEASES)


@cache
def _pure_functions() -> tuple[str, ...]:
    return tuple(sorted(_functions._pure()))  # noqa: SLF001


@cache
def _operations() -> tuple[str, ...]:
    return tuple(sorted(data.read("pure_classes")["classes"]["operations of Keras 3"]))
