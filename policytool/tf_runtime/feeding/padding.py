"""Where the sequences of a batch are padded, in the values that a model masks."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from .recipes import Recipe

PADDING_WAYS = 4
"""Nowhere, at the end, at the beginning, everywhere."""

_NOWHERE, _END, _BEGINNING, _EVERYWHERE = range(PADDING_WAYS)
_SENTENCES_RANK = 3


def pad_tails(array: Any, parts: Any, padding: float) -> None:
    """End every other sequence early, but never before its first element."""
    for row in range(1, array.shape[0], 2):
        array[row, _kept(array, parts, row) :] = padding


def pad_every_way(array: Any, parts: Any, recipe: Recipe, *, first: int, place: int) -> None:
    """
    Pad the rows in the different ways in turn. In ``WAYS`` rows, all inputs have the same mask; in
    the next ``WAYS`` rows, each input has another mask.

    ``first`` is the number of the first row over all batches, ``place`` the number of the input
    among the padded inputs. In ids of several sentences, every other sentence also ends early.
    """
    for row in range(array.shape[0]):
        number = first + row
        way = (
            number + (place if number % (2 * PADDING_WAYS) >= PADDING_WAYS else 0)
        ) % PADDING_WAYS
        kept = _kept(array, parts, row)
        if way == _END:
            array[row, kept:] = recipe.padding
        elif way == _BEGINNING:
            array[row, : array.shape[1] - kept] = recipe.padding
        elif way == _EVERYWHERE:
            array[row] = recipe.padding
        if array.ndim == _SENTENCES_RANK and recipe.limit is not None:
            array[row, 1::2, array.shape[2] // 2 :] = recipe.padding


def _kept(array: Any, parts: Any, row: int) -> int:
    """Return how many elements of a row's sequence stay."""
    return max(1, int(parts[row] * array.shape[1]))
