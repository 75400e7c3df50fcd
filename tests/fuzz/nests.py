"""
Models in models in every arrangement: chains, nests, diamonds, repeated calls and long names.

A small text describes a model whose parts are reached on exponentially many ways; every command
must follow it once.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tests.growth.shapes import Keras2, Keras3, bare

if TYPE_CHECKING:
    from random import Random

    from tests.fuzz.sound_configs import Config

_BYTES: Final = 150_000
"""Of a config; larger ones differ only in size."""

_LEVELS: Final = (1, 2, 3, 8, 20, 40, 59, 62)
_CALLS: Final = (1, 1, 2, 2, 3, 8)
_NAMES: Final = (1, 1, 8, 300, 5_000)
_MERGES: Final = ("Add", "Multiply", "Concatenate")
_LAYERS: Final[dict[str, dict[str, object]]] = {
    "Dense": {"units": 4, "activation": "linear"},
    "Activation": {"activation": "relu"},
    "Masking": {"mask_value": 0.0},
}
_MERGED: Final = 8
"""The last outputs that a layer at the end of a model combines."""


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
    while len(data := json.dumps(model(shape, rng)).encode()) > _BYTES:
        shape = replace(
            shape,
            width=shape.width // 4,
            name_length=max(1, shape.name_length // 4),
            calls=max(1, shape.calls - 1),
            levels=shape.levels if shape.name_length > 1 or shape.width else shape.levels // 2,
            models=1,
        )
    return data


def model(shape: Shape, rng: Random) -> Config:
    """Return the config of an arrangement, built from the innermost model outwards."""
    graph = _Graph(shape)
    graph.add_layers(rng)
    for level in range(shape.levels):
        outer = _Graph(shape)
        outer.add_model(f"m{level}", graph)
        for number in range(1, shape.models):
            leaf = _Graph(shape)
            leaf.add("Dense", "d", shape.calls)
            outer.add_model(f"m{level}_{number}", leaf)
        outer.add_layers(rng)
        graph = outer
    root = graph.library.root(*graph.layers)
    return {**root, "keras_version": "3.15.1" if shape.keras3 else "2.15.0"}


class _Graph:
    """The layers of a model, and what the next call may use."""

    def __init__(self, shape: Shape) -> None:
        self.library = Keras3() if shape.keras3 else Keras2()
        self.layers: list[Config] = [self.library.input("in")]
        self._outputs: list[tuple[str, int]] = [("in", 0)]
        self._shape = shape

    def add(self, class_name: str, name: str, calls: int, **config: object) -> None:
        """Add a layer with so many calls."""
        name = name.ljust(self._shape.name_length, "x")
        sources = self._sources(name, calls)
        self.layers.append(self.library.layer(class_name, name, *sources, **config))

    def add_model(self, name: str, inner: _Graph) -> None:
        """Add a model, with the calls that the arrangement has."""
        calls = self._shape.calls
        if self._shape.wrapped:
            layer = bare(self.library.model(name, inner.layers))
            self.add("TimeDistributed", f"t{name}", calls, layer=layer)
        else:
            name = name.ljust(self._shape.name_length, "x")
            sources = self._sources(name, calls)
            self.layers.append(self.library.model(name, inner.layers, *sources))

    def add_layers(self, rng: Random) -> None:
        """Add the layers beside the nested model, and the one that combines all calls."""
        for number in range(self._shape.width):
            class_name = rng.choice(sorted(_LAYERS))
            self.add(class_name, f"w{number}", 1, **_LAYERS[class_name])
        if self._shape.merged:
            tensors = self._outputs[-_MERGED:] * (1 if len(self._outputs) > 1 else 2)
            name = "merged".ljust(self._shape.name_length, "x")
            self.layers.append(self.library.layer(rng.choice(_MERGES), name, tensors))
            self._outputs.append((name, 0))

    def _sources(self, name: str, calls: int) -> list[list[tuple[str, int]]]:
        """Return the tensors of each call of a layer, whose outputs later calls may use."""
        sources = []
        for call in range(calls):
            sources.append([self._outputs[-1 if self._shape.chained else 0]])
            self._outputs.append((name, call))
        return sources
