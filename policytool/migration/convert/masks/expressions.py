"""
Masks as expressions over the tensors of a model, so that masks of two releases can be compared.

A table holds each expression once: two masks are the same object if the same operations make them
of the same tensors, in any order and however often each is repeated.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from policytool.support import steps

if TYPE_CHECKING:
    from collections.abc import Iterable

    from policytool.model.calls import Reference

_NUMBER: Final = attrgetter("number")

Scope = tuple[str, ...]
"""The calls of nested models around a tensor, from the outside in, such as ``encoder:0``."""


class MaskOp(StrEnum):
    """How a mask is made of its parts."""

    NONZERO = "nonzero"
    """``tensor != value``, with the dtype that the tensor is cast to before, if it is."""

    ANY = "any"
    """Whether any value along the last axis of a mask is true."""

    EITHER = "either"
    BOTH = "both"
    JOIN = "join"
    """Masks one behind the other along the steps."""

    ONES = "ones"
    """True at each step of a tensor."""

    TENSOR = "tensor"
    """A tensor that is used as a mask."""

    LAYER = "layer"
    """What a layer makes of the masks of its inputs, by a rule that was not measured."""


@dataclass(frozen=True, slots=True)
class ScopedTensor:
    """One tensor of a model, or of a nested one."""

    scope: Scope
    reference: Reference


@dataclass(frozen=True, slots=True, eq=False)
class Mask:
    """One mask; made by :class:`MaskTable` only."""

    op: MaskOp
    parts: tuple[Mask | ScopedTensor | str | float | None, ...]
    number: int
    """Its place in the table, which orders masks."""


class MaskTable:
    """All masks of one conversion."""

    def __init__(self) -> None:
        self._masks: dict[tuple[object, ...], Mask] = {}

    def mask(self, op: MaskOp, *parts: Mask | ScopedTensor | str | float | None) -> Mask:
        """Return the mask of an operation and its parts."""
        return self._masks.setdefault((op, *parts), Mask(op, parts, len(self._masks)))

    def either(self, masks: Iterable[Mask]) -> Mask:
        """Return the mask that is true where any of one or more masks is true."""
        return self._combine(MaskOp.EITHER, masks)

    def both(self, masks: Iterable[Mask]) -> Mask:
        """Return the mask that is true where all of one or more masks are true."""
        return self._combine(MaskOp.BOTH, masks)

    def _combine(self, op: MaskOp, masks: Iterable[Mask]) -> Mask:
        parts = [
            part
            for mask in dict.fromkeys(masks)
            for part in (mask.parts if mask.op is op else (mask,))
            if isinstance(part, Mask)
        ]
        steps.spend(len(parts), walk="masks in masks")
        # parts of masks are in order: to sort such runs, not a set, takes linear time
        found = list(dict.fromkeys(sorted(parts, key=_NUMBER)))
        return found[0] if len(found) == 1 else self.mask(op, *found)
