"""
In which order HDF5 has a layer's variables, and what it calls them.

A group for each layer of the root model, with all that is below it: trainable variables first, then
the others (``_legacy_weights`` in keras/src/legacy/saving/legacy_h5_format.py of Keras 2 and 3).
Loaders go by that order alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.migration.convert.architecture import Role

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.migration.convert.target import Target
    from policytool.migration.convert.variables._holders import Holder, Stored

_CELL: Final = ("cell",)
"""
What an RNN makes follows its ``trainable``; a MultiHeadAttention's projections, when it is loaded,
do not (Keras 3.15).
"""

Named = tuple[str, "Holder", "Stored"]


def weights(holder: Holder, target: Target) -> list[Named]:
    """Return a layer's variables by their names, in the order in which the target reads them."""
    if target.is_keras3:
        every = list(_all(holder, ()))
        if not holder.trainable:
            return [named for named, _ in every]
        return [named for named, trainable in every if trainable] + [
            named for named, trainable in every if not trainable
        ]
    return [*_trainable(holder, ()), *_others(holder, ())]


def _all(holder: Holder, scopes: tuple[str, ...]) -> Iterator[tuple[Named, bool]]:
    """Yield variables as ``Layer.weights`` of Keras 3 has them, and whether each is trainable."""
    for named in _own(holder, scopes):
        slot = named[2].slot
        follows = slot.within[:1] in {(), _CELL}
        yield named, slot.trainable and (holder.trainable or not follows)
    for inner in holder.below:
        yield from _all(inner, (*scopes, holder.name))


def _own(holder: Holder, scopes: tuple[str, ...]) -> list[Named]:
    return [
        ("/".join((*scopes, holder.name, *stored.slot.scopes, stored.slot.name)), holder, stored)
        for stored in holder.own
        if not stored.again
    ]


def _trainable(holder: Holder, scopes: tuple[str, ...]) -> list[Named]:
    """
    Return what ``trainable_weights`` of Keras 2 has: of a model those of its layers, of a layer its
    own and those of what it holds.
    """
    if not holder.trainable:
        return []
    own = [named for named in _own(holder, scopes) if named[2].slot.trainable]
    below = [named for inner in holder.below for named in _trainable(inner, (*scopes, holder.name))]
    return own + below


def _others(holder: Holder, scopes: tuple[str, ...]) -> list[Named]:
    """Return what ``non_trainable_weights`` of Keras 2 has."""
    inside = (*scopes, holder.name)
    own = _own(holder, scopes)
    if holder.trainable:
        return [named for named in own if not named[2].slot.trainable] + [
            named for inner in holder.below for named in _others(inner, inside)
        ]
    if holder.unit.role is Role.MODEL:  # first what would be trainable
        trainable = [named for inner in holder.below for named in _trainable(inner, inside)]
        return (
            trainable + own + [named for inner in holder.below for named in _others(inner, inside)]
        )
    return own + [
        named
        for inner in holder.below
        for named in (*_trainable(inner, inside), *_others(inner, inside))
    ]
