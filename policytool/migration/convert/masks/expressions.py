"""
Masks as expressions over the tensors of a model, so that masks of two releases can be compared, and
those that stand as operations in a functional graph of Keras 3.

A table holds each expression once: two masks are the same object if the same operations make them
of the same tensors, in any order and however often each is repeated.

In a graph an Embedding writes ``NotEqual``, a Masking ``NotEqual`` and ``Any``, merging layers
``LogicalOr``, a Concatenate a chain that ends in ``Any`` (``compute_mask`` of each in
keras/src/layers).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from policytool.migration.convert.architecture import Network, Role, Unit, references
from policytool.migration.convert.tensor_dtypes import called_class
from policytool.model.calls import Call, Reference
from policytool.releases.dtypes import HALVES
from policytool.releases.layer_classes import layer_facts, operation_facts
from policytool.support import steps

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from policytool.model.calls import Argument

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


CAST: Final = "Cast"
_COPY: Final = "ConvertToTensor"
"""
What the Attention layers of Keras 3 make of a mask before they hand it on (``compute_mask`` in
keras/src/layers/attention/attention.py).
"""

_LOGICAL: Final = frozenset({"LogicalAnd", "LogicalOr"})
_REUSED: Final = _LOGICAL | {"NotEqual", "Any"}
_MASK_OPS: Final = _REUSED | {CAST, _COPY, "ExpandDims", "OnesLike", "ZerosLike"}


_FROM_FUNCTIONS: Final = _REUSED | {CAST, "Equal", "ExpandDims", "Where", "ZerosLike"}
"""The operations that are read of op layers of Keras 2, too."""

_TENSORS: Final = frozenset({"x", "y"})
_CONFIG: Final = frozenset({"axis", "dtype", "keepdims"})


class MaskOperations:
    """What the operations of one network say as masks, as Keras 3 or Keras 2 writes them."""

    def __init__(self, network: Network, scope: Scope, table: MaskTable) -> None:
        self.units = {unit.name: _as_operation(unit) for unit in network.units}
        """The units of the network, op layers of Keras 2 as the operations of Keras 3."""

        self._scope = scope
        self._table = table
        self._masks: dict[str, Mask] = {}
        for name in self._in_order():
            mask = self._mask(self._operation(name))
            if mask is not None:
                self._masks[name] = mask

    def tensor(self, reference: Reference) -> ScopedTensor:
        """Return a tensor of this network."""
        return ScopedTensor(self._scope, reference)

    def mask(self, reference: Reference) -> Mask:
        """Return what a tensor says as a mask."""
        return self._masks.get(reference.layer) or self._table.mask(
            MaskOp.TENSOR, self.tensor(reference)
        )

    def reusable(self) -> dict[Mask, Reference]:
        """Return the masks that one operation says of others, with their tensors."""
        return {
            mask: Reference(layer=name)
            for name, mask in reversed(self._masks.items())
            if self.units[name].class_name in _REUSED
            and not (mask.op is not MaskOp.ANY and self.units[name].class_name == "Any")
        }

    def attention(self, reference: Reference) -> set[tuple[str, Mask]]:
        """Return the places and masks that the argument ``attention_mask`` is made of."""
        found: set[tuple[str, Mask]] = set()
        pending, seen = [reference], {reference}
        while pending:
            one = pending.pop()
            unit = self._operation(one.layer)
            given = [item for item in _arguments(unit) if isinstance(item, Reference)]
            axis = unit.config.get("axis") if unit is not None else None
            if unit is not None and unit.class_name == "LogicalAnd":
                pending += [item for item in given if item not in seen]
                seen.update(given)
            elif unit is not None and unit.class_name == "ExpandDims" and axis in (-1, 1) and given:
                mask = self.mask(given[0])
                if axis != -1 or mask.op is not MaskOp.ONES:
                    found.add(("rows" if axis == -1 else "columns", mask))
            else:
                found.add(("full", self.mask(one)))
        return found

    def before_cast(self, reference: Reference) -> Reference:
        """
        Return what a tensor was before Keras 3 cast it to a layer's compute dtype, which both
        libraries do before they compare.
        """
        unit = self._operation(reference.layer)
        if unit is None or unit.class_name != CAST:
            return reference
        source = next(iter(_arguments(unit)), None)
        return source if isinstance(source, Reference) else reference

    def _in_order(self) -> Iterator[str]:
        """Yield the operations, each behind those that it takes."""
        seen: set[str] = set()
        for first, unit in self.units.items():
            pending = [(first, False)] if unit.role is Role.OPERATION else []
            while pending:
                name, left = pending.pop()
                unit_of = self._operation(name)
                if left:
                    yield name
                elif unit_of is not None and name not in seen:
                    seen.add(name)
                    pending.append((name, True))
                    pending += [(one.layer, False) for one in references(_arguments(unit_of))]

    def _operation(self, name: str) -> Unit | None:
        unit = self.units.get(name)
        called_once = unit is not None and len(unit.calls) == 1
        return unit if called_once and unit is not None and unit.role is Role.OPERATION else None

    def _mask(self, unit: Unit | None) -> Mask | None:
        """Return what an operation says, those that it takes being known."""
        args = _arguments(unit)
        if unit is not None and _joins(unit):
            return self._steps_joined(unit)
        if unit is None or not args or not isinstance(args[0], Reference):
            return None
        given = [one for one in args if isinstance(one, Reference)]
        if unit.class_name == "NotEqual" and len(args) > 1 and isinstance(args[1], int | float):
            return self._nonzero(args[0], float(args[1]))
        if unit.class_name == "Any" and unit.config.get("axis") in (-1, [-1]):
            return (
                self._join_mask(args[0])
                or self._ones(args[0])
                or self._table.mask(MaskOp.ANY, self.mask(args[0]))
            )
        if unit.class_name in _LOGICAL and len(given) == len(args):
            combine = self._table.either if unit.class_name == "LogicalOr" else self._table.both
            return combine(self.mask(one) for one in given)
        return self.mask(args[0]) if unit.class_name == _COPY else None

    def _steps_joined(self, unit: Unit) -> Mask | None:
        """Return the mask that :class:`MaskBuilder` makes of several along the steps."""
        items = next(iter(_arguments(unit)), None)
        if not isinstance(items, list | tuple) or unit.config.get("axis") != 1:
            return None
        found = [self.mask(one) for one in items if isinstance(one, Reference)]
        return self._table.mask(MaskOp.JOIN, *found) if len(found) == len(items) else None

    def _nonzero(self, tensor: Reference, value: float) -> Mask:
        source = self.before_cast(tensor)
        dtype = self.units[tensor.layer].config.get("dtype") if source != tensor else None
        cast = (str(dtype),) if dtype in HALVES else ()
        return self._table.mask(MaskOp.NONZERO, self.tensor(source), value, *cast)

    def _ones(self, reference: Reference) -> Mask | None:
        """Return ones for ``x == 0 or x != 0``, which :class:`MaskBuilder` writes."""
        unit = self._operation(reference.layer)
        given = [
            self._operation(one.layer) for one in _arguments(unit) if isinstance(one, Reference)
        ]
        names = [one.class_name for one in given if one is not None]
        tensors = {str(_arguments(one)[0]) for one in given if _arguments(one)}
        if names != ["Equal", "NotEqual"] or len(tensors) > 1:
            return None
        tensor = _arguments(given[0])[0]
        return (
            self._table.mask(MaskOp.ONES, self.tensor(tensor))
            if isinstance(tensor, Reference)
            else None
        )

    def _join_mask(self, reference: Reference) -> Mask | None:
        """Return the mask of a Concatenate of Keras 3; None for any other tensor."""
        unit = self._operation(reference.layer)
        if unit is None or not _joins(unit):
            return None
        args = _arguments(unit)
        items = args[0] if args and isinstance(args[0], list | tuple) else args
        parts = [self._part(item) for item in items if isinstance(item, Reference)]
        found = [part for part in parts if part is not None]
        if not found or len(found) != len(items):
            return None
        if unit.config.get("axis") != -1:
            ones = [self._table.mask(MaskOp.ONES, tensor) for tensor, _ in found]
            masks = [mask for _, mask in found]
            return self._table.mask(
                MaskOp.JOIN, *(a or b for a, b in zip(masks, ones, strict=True))
            )
        present = [mask for _, mask in found if mask is not None]
        if len(present) < len(found):
            return self._table.mask(MaskOp.ONES, found[0][0])
        return self._table.either(present)

    def _part(self, reference: Reference) -> tuple[ScopedTensor, Mask | None] | None:
        """Return a tensor and its mask as a Concatenate broadcasts it."""
        unit = self._operation(reference.layer)
        given = [one for one in _arguments(unit) if isinstance(one, Reference)]
        if unit is None or not given:
            return None
        if unit.class_name == "OnesLike":
            return self.tensor(given[0]), None
        if unit.class_name != "LogicalOr" or len(given) != 2:  # noqa: PLR2004  # a mask and zeros
            return None
        expanded, zeros = (self._operation(one.layer) for one in given)
        mask, source = (next(iter(_arguments(one)), None) for one in (expanded, zeros))
        is_broadcast = (
            expanded is not None
            and zeros is not None
            and (expanded.class_name, zeros.class_name) == ("ExpandDims", "ZerosLike")
        )
        if is_broadcast and isinstance(mask, Reference) and isinstance(source, Reference):
            return self.tensor(source), self.mask(mask)
        return None


def is_mask_operation(unit: Unit) -> bool:
    """Return whether a unit is one of the operations that the masks of Keras 3 consist of."""
    return unit.role is Role.OPERATION and (unit.class_name in _MASK_OPS or _joins(unit))


def _joins(unit: Unit) -> bool:
    return operation_facts(unit.class_name).joins == "axis"


def _arguments(unit: Unit | None) -> list[Argument]:
    calls = unit.calls[:1] if unit is not None else ()
    return [one for call in calls for one in (*call.args, *call.kwargs.values())]


def _as_operation(unit: Unit) -> Unit:
    """Return an op layer as the operation that does the same; any other unit as it is."""
    row = called_class(unit).row if layer_facts(unit.class_name).is_op_layer else None
    if row is None or row.op not in _FROM_FUNCTIONS or unit.custom or len(unit.calls) != 1:
        return unit
    kwargs = unit.calls[0].kwargs
    others = (value for key, value in sorted(kwargs.items()) if key in _TENSORS)
    config = {
        key: value
        for key, value in kwargs.items()
        if key in _CONFIG and isinstance(value, bool | int | str)
    }
    call = Call(args=(*unit.calls[0].args, *others))
    return replace(unit, class_name=row.op, role=Role.OPERATION, config=config, calls=(call,))
