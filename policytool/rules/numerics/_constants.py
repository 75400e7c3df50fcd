"""Numbers in configs that layers cast to their compute dtype."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.rules.numerics._judging import ROUNDS_TO_INFINITY, ROUNDS_TO_ZERO
from policytool.support.text.jsontext import number

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

OVERFLOW: Final = "infinite"
FLUSH: Final = "0"

CAST: Final[Mapping[str, Mapping[str, frozenset[str]]]] = {
    "ELU": {"alpha": frozenset({OVERFLOW})},
    "LeakyReLU": {"alpha": frozenset({OVERFLOW}), "negative_slope": frozenset({OVERFLOW})},
    "Masking": {"mask_value": frozenset({OVERFLOW, FLUSH})},
    "Normalization": {"mean": frozenset({OVERFLOW}), "variance": frozenset({OVERFLOW, FLUSH})},
    "ReLU": {"negative_slope": frozenset({OVERFLOW})},
    "Rescaling": {"scale": frozenset({OVERFLOW, FLUSH}), "offset": frozenset({OVERFLOW})},
}
"""
Class to its config keys to what of float16 changes what the layer gives.

Measured on CPU with tf_keras 2.21 and Keras 3.15, which agree: each key with 1e6 and 1e-8, under
float32 and mixed_float16. An offset or a slope that becomes 0 was next to nothing before, and a
bound of ReLU that becomes infinite bounds nothing either way.
"""


def out_of_range(class_name: str, config: Mapping[str, object]) -> Iterator[tuple[str, float, str]]:
    """Yield each key of a config with a number that float16 does not hold, and what it becomes."""
    for key, counts in CAST.get(class_name, {}).items():
        for value in numbers(config.get(key)):
            becomes = _becomes(value)
            if becomes in counts:
                yield key, value, becomes or ""
                break


def _becomes(value: float) -> str | None:
    if ROUNDS_TO_INFINITY <= abs(value) < float("inf"):
        return OVERFLOW
    return FLUSH if 0 < abs(value) <= ROUNDS_TO_ZERO else None


def numbers(value: object) -> list[float]:
    """Return the numbers in a value of a config: itself, or those in a list of lists."""
    found: list[float] = []
    pending = [value]
    while pending:
        one = pending.pop()
        if isinstance(one, list):
            pending += reversed(one)
        elif (held := number(one)) is not None:
            found.append(held)
    return found
