"""
Extra batches: constant positive values, and the edges of the range of each input.

Random values cancel in long sums, and seldom come to the end of their range. These do neither, so
that sums and products come as close to an overflow as the range allows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from typing import Any, Callable, Sequence

    from .recipes import Recipe

CONSTANT, EDGES = "constant", "edges"
KINDS = (CONSTANT, EDGES)
LABELS = {CONSTANT: "constant values", EDGES: "the lowest and highest values"}
"""What sentences call the batches."""

_CONSTANT, _HIGHEST, _LOWEST, _EVEN, _ODD = range(5)
_WAYS = {CONSTANT: (_CONSTANT,), EDGES: (_HIGHEST, _LOWEST, _EVEN, _ODD)}
"""Rows of each kind: in the last two, high values alternate with low ones."""


class ExtremeBatch:
    """One extra batch, made when it is asked for."""

    def __init__(
        self, kinds: Sequence[str], make: Callable[[Sequence[str], int], Any], first: int = 0
    ) -> None:
        """``make`` returns tensors for kinds and the number of the first row of theirs."""
        self.kinds = tuple(kinds)
        self._make = make
        self._first = first
        self._made: Any = None

    @property
    def tensors(self) -> Any:
        """The inputs, as the call takes them."""
        if self._made is None:
            self._made = self._make(self.kinds, self._first)
        return self._made

    def parts(self) -> list[ExtremeBatch]:
        """Return a batch for each kind; nothing for a batch of one kind."""
        if len(self.kinds) == 1:
            return []
        return [ExtremeBatch([kind], self._make) for kind in self.kinds]


WAYS = sum(len(ways) for ways in _WAYS.values())
"""Rows of a batch that has each row of all kinds once."""


def extreme_batches(rows: int, make: Callable[[Sequence[str], int], Any]) -> list[ExtremeBatch]:
    """
    Return the extra batches: one of all kinds if it has enough rows, because each
    costs as much time as a random one.
    """
    if rows >= WAYS:
        return [ExtremeBatch(KINDS, make)]
    return [
        ExtremeBatch([kind], make, first)
        for kind in KINDS
        for first in range(0, len(_WAYS[kind]), rows)
    ]


def extreme_values(
    recipe: Recipe, kinds: Sequence[str], shape: Sequence[int], first: int = 0
) -> Any:
    """
    Return an array for one input; ``first`` is the number of its first row among those of its
    kinds.
    """
    lowest, highest = (_filled(edge, shape) for edge in recipe.edges)
    constant = _filled(recipe.constant, shape)
    ways = [way for kind in kinds for way in _WAYS[kind]]
    if not shape:
        return constant if ways[first % len(ways)] == _CONSTANT else highest
    array = np.array(highest)
    for row in range(shape[0]):
        way = ways[(first + row) % len(ways)]
        if way == _CONSTANT:
            array[row] = constant[row]
        elif way == _LOWEST:
            array[row] = _lowest_row(recipe, lowest[row], highest[row])
        elif way in (_EVEN, _ODD):
            is_odd = way == _ODD and not recipe.is_mask
            array[row] = np.where(_places(array[row]) % 2 == is_odd, highest[row], lowest[row])
    return array


def _lowest_row(recipe: Recipe, lowest: Any, highest: Any) -> Any:
    """
    Return the lowest values of a row; a mask keeps the first place of each sequence, because no
    model is made for sequences of which nothing is left.
    """
    is_sequence = recipe.is_mask and np.ndim(lowest) and np.shape(lowest)[-1] > 1
    return np.where(_places(lowest) == 0, highest, lowest) if is_sequence else lowest


def _places(row: Any) -> Any:
    """Return the place of each value on the last axis."""
    shape = np.shape(row)
    return np.broadcast_to(np.arange(shape[-1] if shape else 1).reshape(shape[-1:]), shape)


def _filled(value: Any, shape: Sequence[int]) -> Any:
    array = np.asarray(value)
    return np.broadcast_to(
        array.astype(object) if array.dtype.kind in "US" else array, tuple(shape)
    )
