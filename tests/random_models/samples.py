"""Values that models are called with: whole numbers and steps with padding, images, words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from tests.random_models.description import Graph, InputSpec

BATCH: Final = 4
WORDS: Final = ("red", "green", "blue", "Yellow!", "unknown")


def samples(graph: Graph, seed: int) -> list[Any]:
    """Return an array for each input of a graph."""
    random = np.random.default_rng(seed)
    return [_values(spec, random) for spec in graph.inputs]


def kept_steps(length: int) -> list[list[bool]]:
    """
    Return which steps each row of a batch has: all, none, a beginning, and all but a hole.
    """
    part = max(1, length // 2)
    return [
        [True] * length,
        [False] * length,
        [step < part for step in range(length)],
        [step != 1 for step in range(length)],
    ]


def _values(spec: InputSpec, random: np.random.Generator) -> Any:
    shape = (spec.batch or BATCH, *(size or 1 for size in spec.sample))
    match spec.values:
        case "ids":
            result: Any = random.integers(1, max(2, spec.bound), shape)
            result = np.where(_kept(shape), result, 0)
        case "mask":
            result = _kept(shape)
        case "ints":
            result = random.integers(0, max(1, spec.bound), shape)
        case "padded":
            kept = _kept(shape[:2]).reshape(*shape[:2], *(1 for _ in shape[2:]))
            result = np.where(kept, random.normal(size=shape), 0.0)
        case "image":
            result = random.uniform(0, 255, shape)
        case "words":
            return random.choice(np.array(WORDS), shape)
        case _:
            result = random.normal(size=shape)
    return result.astype("float32" if spec.dtype == "bfloat16" else spec.dtype)


def _kept(shape: tuple[int, ...]) -> Any:
    rows = np.array(kept_steps(shape[1]))[np.arange(shape[0]) % BATCH]
    return np.broadcast_to(rows.reshape(*rows.shape, *(1 for _ in shape[2:])), shape)
