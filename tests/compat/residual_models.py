"""
Write residual streams with classes that are far apart: ``python -m tests.compat.residual_models DIR
NAME...``, under an interpreter with both libraries or one of them.

In ``NAME.keras`` (Keras 3) and ``NAME.h5`` (tf_keras), blocks leave the range of float16 and come
back, or the stream does, or it has an offset of which bfloat16 rounds the differences away.
``inputs.npz`` is for all of them; in ``large-row.npz``, the last of many rows is large.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

BLOCKS: Final = 24
CLASSES: Final = 8
ROWS: Final = 400
"""Without a change, 299 rows show that at most 1% change."""

GAIN: Final = 3e4
"""A block with it has activations beyond 65,504, the largest value of float16."""

OFFSET: Final = 256.0
"""From here on, two values of bfloat16 are 2 apart, and two of float16 0.25."""

DEEP: Final = 100
"""Blocks of a deep stream."""

LARGE: Final = 3e4
"""A row of it leaves the range of float16 in the first block."""

MANY: Final = 1200
"""More rows than those in which layers are compared."""

SUFFIXES: Final = {"keras": ".keras", "tf_keras": ".h5"}


@dataclass(frozen=True, kw_only=True)
class Stream:
    """A stream that adds two layers for each block to it."""

    overflowing: Collection[int] = ()
    """The blocks that leave the range of float16."""

    blocks: int = BLOCKS
    offset: float = 0.0
    scale: float = 1.0
    """How many times as large as the inputs the stream is."""

    is_nested: bool = False
    """Whether the layers of each block are a model."""


STREAMS: Final = {
    "one": Stream(overflowing=(9,)),
    "some": Stream(overflowing=range(5, 17)),
    "all": Stream(overflowing=range(BLOCKS)),
    "offset": Stream(offset=OFFSET),
    "plain": Stream(),
    "deep-most": Stream(overflowing=range(3, DEEP), blocks=DEEP),
    "deep-middle": Stream(overflowing=range(40, 60), blocks=DEEP),
    "deep-nested": Stream(overflowing=range(3, DEEP), blocks=DEEP, is_nested=True),
    "deep-stream": Stream(blocks=DEEP, scale=1e5),
}


def residual(keras: Any, settings: Stream) -> Any:
    """Return the model of a stream."""
    random = np.random.default_rng(1)
    eye, shifts = np.eye(CLASSES), np.full(CLASSES, settings.offset)
    weights: dict[str, list[Any]] = {"stem": [eye * settings.scale, shifts]}
    stream = inputs = keras.Input((CLASSES,), name="x")
    stream = keras.layers.Dense(CLASSES, name="stem")(stream)
    for number in range(settings.blocks):
        up, down = _weights(random, number, settings)
        block, inner = _block(keras, number, settings), stream
        for layer in block:
            inner = layer(inner)
        for layer, values in zip(
            block, [[*up, *down]] if len(block) == 1 else [up, down], strict=True
        ):
            layer.set_weights(values)
        stream = keras.layers.Add(name=f"add_{number}")([stream, inner])
        shifts = shifts + down[1]
    outputs = keras.layers.Dense(CLASSES, activation="softmax", name="head")(stream)
    weights["head"] = [eye / settings.scale, -shifts]
    model = keras.Model(inputs, outputs, name="net")
    for name, values in weights.items():
        model.get_layer(name).set_weights(values)
    return model


def _weights(random: Any, number: int, settings: Stream) -> tuple[list[Any], list[Any]]:
    """Return the weights of both layers of a block."""
    gain = GAIN if number in settings.overflowing else 1.0
    up = random.normal(size=(CLASSES, CLASSES)) * gain
    zeros = np.zeros(CLASSES)
    shift = random.normal(size=CLASSES) if settings.offset else zeros
    down = random.normal(size=(CLASSES, CLASSES)) * 0.003 / gain
    return [up, zeros], [down, shift]


def _block(keras: Any, number: int, settings: Stream) -> list[Any]:
    """Return the two layers of a block, each in a model of its own if they are nested."""
    activation = "tanh" if settings.offset else None
    if settings.is_nested:
        inner = [keras.layers.Dense(CLASSES, name=name) for name in ("up", "down")]
        return [keras.Sequential([keras.Input((CLASSES,)), *inner], name=f"blk_{number}")]
    return [
        keras.layers.Dense(CLASSES, activation=activation, name=f"blk_{number}_up"),
        keras.layers.Dense(CLASSES, name=f"blk_{number}_down"),
    ]


def main(directory: Path, names: Sequence[str]) -> None:
    """Write models, and their inputs."""
    random = np.random.default_rng(2)
    classes = random.integers(CLASSES, size=ROWS)
    rows = 4 * np.eye(CLASSES)[classes] + random.normal(size=(ROWS, CLASSES)) * 0.3
    np.savez(directory / "inputs.npz", x=rows.astype("float32"))
    many = np.tile(rows, (MANY // ROWS, 1)).astype("float32")
    many[-1] = LARGE
    np.savez(directory / "large-row.npz", x=many)
    for library, suffix in SUFFIXES.items():
        if importlib.util.find_spec(library) is None:
            continue
        keras = importlib.import_module(library)
        for name in names:
            residual(keras, STREAMS[name]).save(directory / f"{name}{suffix}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
