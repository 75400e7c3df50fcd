"""
Models in models in every arrangement: chains, nests, diamonds, repeated calls and long names.

A small text describes a model whose parts are reached on exponentially many ways; every command
must follow it once.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from random import Random

    from tests.fuzz.sound_configs import Config

_BYTES: Final = 150_000
"""Of a config; larger ones differ only in size."""

_LEVELS: Final = (1, 2, 3, 8, 20, 40, 59, 62)
_CALLS: Final = (1, 1, 2, 2, 3, 8)
_NAMES: Final = (1, 1, 8, 300, 5_000)
_OPERATIONS: Final = ("Add", "Multiply", "Concatenate", "Activation", "Masking", "Dense")


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """The arrangement of the layers of a model."""

    keras3: bool
    levels: int
    """Nested models inside the model."""

    width: int
    """Layers beside the nested model, each called once."""

    calls: int
    """Calls of the nested model, and of each layer after it."""

    models: int
    """Nested models in each model; the first holds the next level."""

    name_length: int
    chained: bool
    """Whether each call uses the output of the call before it, instead of the input."""

    merged: bool
    """Whether a layer at the end of each model combines all calls."""

    wrapped: bool
    """Whether each nested model stands in a TimeDistributed layer."""


def draw(rng: Random) -> Shape:
    """Draw an arrangement."""
    return Shape(
        keras3=rng.random() < 0.5,
        levels=rng.choice(_LEVELS),
        width=rng.choice((0, 1, 5, 50, 400)),
        calls=rng.choice(_CALLS),
        models=rng.choice((1, 1, 2)),
        name_length=rng.choice(_NAMES),
        chained=rng.random() < 0.6,
        merged=rng.random() < 0.6,
        wrapped=rng.random() < 0.15,
    )


def config(rng: Random) -> bytes:
    """Return the JSON of a model, of at most 150 kB."""
    shape = draw(rng)
    while len(data := json.dumps(_framed(model(shape, rng))).encode()) > _BYTES:
        shape = replace(
            shape,
            width=shape.width // 4,
            name_length=max(1, shape.name_length // 4),
            calls=max(1, shape.calls - 1),
            levels=shape.levels if shape.name_length > 1 or shape.width else shape.levels // 2,
            models=1,
        )
    return data


def _framed(model: Config) -> Config:
    keras3 = "module" in model
    return {**model, "keras_version": "3.15.1" if keras3 else "2.15.0", "backend": "tensorflow"}


def model(shape: Shape, rng: Random) -> Config:
    """Return the config of an arrangement, built from the innermost model outwards."""
    inner: Config | None = None
    for level in range(shape.levels, -1, -1):
        inner = _functional(shape, rng, level, inner)
    assert inner is not None
    return inner


def _functional(shape: Shape, rng: Random, level: int, inner: Config | None) -> Config:
    graph = _Graph(shape, level)
    models = (
        []
        if inner is None
        else [inner, *(_leaf(shape, level, at) for at in range(1, shape.models))]
    )
    for at, nested in enumerate(models):
        entry = nested if not shape.wrapped else _wrapper(shape, level, at, nested)
        graph.add(entry, shape.calls)
    for at in range(shape.width):
        class_name = rng.choice(_OPERATIONS[3:])
        graph.add(_layer(shape, class_name, f"w{at}"), 1)
    if shape.merged:
        graph.merge(_layer(shape, rng.choice(_OPERATIONS[:3]), "merged"))
    return graph.config()


def _leaf(shape: Shape, level: int, at: int) -> Config:
    graph = _Graph(shape, level * 10 + at + 1_000)
    graph.add(_layer(shape, "Dense", "d"), shape.calls)
    return graph.config()


def _wrapper(shape: Shape, level: int, at: int, nested: Config) -> Config:
    plain = {key: value for key, value in nested.items() if key != "inbound_nodes"}
    return _entry(shape, "TimeDistributed", f"t{level}_{at}", {"layer": plain})


def _layer(shape: Shape, class_name: str, name: str) -> Config:
    arguments: dict[str, Config] = {
        "Dense": {"units": 4, "activation": "linear"},
        "Activation": {"activation": "relu"},
        "Masking": {"mask_value": 0.0},
        "Concatenate": {"axis": -1},
    }
    return _entry(shape, class_name, name, arguments.get(class_name, {}))


def _entry(shape: Shape, class_name: str, name: str, arguments: Config) -> Config:
    full = name.ljust(shape.name_length, "x")
    config = {"name": full, "trainable": True, "dtype": "float32", **arguments}
    entry: Config = {"class_name": class_name, "config": config, "name": full}
    if shape.keras3:
        module = "keras.src.models.functional" if class_name == "Functional" else "keras.layers"
        entry |= {"module": module, "registered_name": class_name, "build_config": None}
    return entry


class _Graph:
    """A model under construction: its layers, and what the next call may use."""

    def __init__(self, shape: Shape, level: int) -> None:
        self._shape = shape
        self._name = f"m{level}"
        key = "batch_shape" if shape.keras3 else "batch_input_shape"
        source = _entry(shape, "InputLayer", "in", {key: [None, 4]})
        self._entries: list[Config] = [{**source, "inbound_nodes": []}]
        self._outputs: list[tuple[str, int]] = [(source["name"], 0)]

    def add(self, entry: Config, calls: int) -> None:
        """Add a layer with so many calls."""
        nodes = []
        for call in range(calls):
            nodes.append(self._node([self._outputs[-1 if self._shape.chained else 0]]))
            self._outputs.append((entry["name"], call))
        self._entries.append({**entry, "inbound_nodes": nodes})

    def merge(self, entry: Config) -> None:
        """Add a layer that uses the outputs of all calls."""
        sources = self._outputs[-8:] * (1 if len(self._outputs) > 1 else 2)
        self._entries.append({**entry, "inbound_nodes": [self._node(sources)]})
        self._outputs.append((entry["name"], 0))

    def config(self) -> Config:
        """Return the model."""
        name, call = self._outputs[-1]
        ends = {
            "input_layers": [[self._entries[0]["name"], 0, 0]],
            "output_layers": [[name, call, 0]],
        }
        return _entry(self._shape, "Functional", self._name, {"layers": self._entries, **ends})

    def _node(self, sources: list[tuple[str, int]]) -> Any:
        if not self._shape.keras3:
            return [[name, call, 0, {}] for name, call in sources]
        tensors = [
            {
                "class_name": "__keras_tensor__",
                "config": {"shape": [None, 4], "dtype": "float32", "keras_history": [*source, 0]},
            }
            for source in sources
        ]
        return {"args": [tensors if len(tensors) > 1 else tensors[0]], "kwargs": {}}
