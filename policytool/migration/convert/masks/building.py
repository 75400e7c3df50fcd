"""Masks written into a functional graph, as operations of Keras 3."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from policytool.migration.convert.architecture import Network, Role, Unit
from policytool.migration.convert.masks.expressions import (
    Mask,
    MaskOp,
    MaskTable,
    Scope,
    ScopedTensor,
)
from policytool.migration.convert.masks.operations import CAST, MaskOperations
from policytool.migration.convert.tensor_dtypes import of_network
from policytool.model.calls import Call, Reference
from policytool.releases.keras_operations import MODULES
from policytool.releases.policy import policy_from_name

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from policytool.migration.convert.architecture import Value
    from policytool.model.calls import Argument

_NUMPY: Final = f"{MODULES}numpy"
_CORE: Final = f"{MODULES}core"
_DEPTH: Final = 32
"""How far masks may be made of masks; deeper ones are refused."""


class MaskBuilder:
    """Puts operations that make masks into one network."""

    def __init__(self, network: Network, scope: Scope, table: MaskTable) -> None:
        self._network = network
        self._scope = scope
        self._table = table
        self._names = {unit.name for unit in network.units}
        self._known = MaskOperations(network, scope, table).reusable()
        self._added: list[Unit] = []

    def take(self) -> list[Unit]:
        """Return the operations that were put since the last call of this."""
        added, self._added = self._added, []
        return added

    def put(self, mask: Mask, taker: Unit, depth: int = 0) -> Reference | None:
        """Return the tensor of a mask; None for one that no operations make in this network."""
        reference = self._known.get(mask)
        if reference is None and depth <= _DEPTH:
            reference = self._put(mask, taker, depth + 1)
            if reference is not None:
                self._known[mask] = reference
        return reference

    def dtype(self, tensor: Reference) -> str | None:
        """Return the dtype of a tensor; None if it is not known."""
        return of_network(self._network).of(tensor)

    def copy(self, tensor: Reference, taker: Unit) -> Reference:
        """Return a tensor's values without its mask."""
        return self.operation("Copy", taker, (tensor,))

    def cast(self, tensor: Reference, dtype: str, taker: Unit) -> Reference:
        """Return a tensor in another dtype, with its mask."""
        policy = policy_from_name(dtype)
        config: dict[str, Value] = {"trainable": True, "dtype": policy, "activation": "linear"}
        return self._add(Unit(class_name="Activation", name=CAST, config=config), taker, (tensor,))

    def attention_mask(
        self,
        parts: AbstractSet[tuple[str, Mask]],
        query: Reference,
        given: Argument,
        taker: Unit,
    ) -> Reference | None:
        """
        Return the argument ``attention_mask``, of shape (batch, queries, keys); None for masks that
        cannot be made.

        :param given: the argument that the call has already
        """
        found = [given] if isinstance(given, Reference) else []
        if not found and not any(place in {"rows", "full"} for place, _ in parts):
            ones = self._table.mask(MaskOp.ONES, ScopedTensor(self._scope, query))
            parts = {*parts, ("rows", ones)}  # not all releases broadcast along the queries
        for place, mask in sorted(parts, key=lambda part: (part[0], part[1].number)):
            reference = self.put(mask, taker)
            if reference is None:
                return None
            if place != "full":
                axis = -1 if place == "rows" else 1
                reference = self.operation("ExpandDims", taker, (reference,), axis=axis)
            found.append(reference)
        return self._fold("LogicalAnd", taker, found)

    def _put(self, mask: Mask, taker: Unit, depth: int) -> Reference | None:
        first, *others = mask.parts
        if isinstance(first, ScopedTensor) and first.scope != self._scope:
            return None
        if mask.op is MaskOp.TENSOR and isinstance(first, ScopedTensor):
            return first.reference
        if mask.op is MaskOp.NONZERO and isinstance(first, ScopedTensor):
            return self._put_nonzero(first.reference, others, taker)
        if mask.op is MaskOp.ONES and isinstance(first, ScopedTensor):
            return self._put_ones(first.reference, taker)
        if mask.op is MaskOp.LAYER:
            return None
        parts = [self.put(part, taker, depth) for part in mask.parts if isinstance(part, Mask)]
        known = [part for part in parts if part is not None]
        if len(known) < len(parts):
            return None
        if mask.op is MaskOp.JOIN:
            items: list[Argument] = [*known]
            return self.operation("Concatenate", taker, (items,), axis=1)
        if mask.op is MaskOp.ANY:
            return self.operation("Any", taker, (known[0],), axis=-1, keepdims=False)
        name = "LogicalOr" if mask.op is MaskOp.EITHER else "LogicalAnd"
        return self._fold(name, taker, known)

    def _put_nonzero(
        self, tensor: Reference, others: list[Mask | ScopedTensor | str | float | None], taker: Unit
    ) -> Reference:
        value, *dtype = others
        if dtype:
            tensor = self.operation(CAST, taker, (tensor,), _CORE, dtype=str(dtype[0]))
        number = value if isinstance(value, float) else 0.0
        compared = int(number) if number.is_integer() else number
        return self.operation("NotEqual", taker, (tensor, compared))

    def _put_ones(self, tensor: Reference, taker: Unit) -> Reference:
        zero = self.operation("Equal", taker, (tensor, 0))
        other = self.operation("NotEqual", taker, (tensor, 0))
        either = self.operation("LogicalOr", taker, (zero, other))  # NaN is other than 0, too
        return self.operation("Any", taker, (either,), axis=-1, keepdims=False)

    def _fold(self, name: str, taker: Unit, tensors: list[Reference]) -> Reference:
        result = tensors[0]
        for one in tensors[1:]:
            result = self.operation(name, taker, (result, one))
        return result

    def operation(
        self,
        class_name: str,
        taker: Unit,
        args: tuple[Argument, ...],
        module: str = _NUMPY,
        **config: Value,
    ) -> Reference:
        """Put an operation into the network, and return what it gives."""
        made = Unit(
            class_name=class_name,
            name=class_name,
            config=dict(config),
            role=Role.OPERATION,
            module=module,
        )
        return self._add(made, taker, args)

    def _add(self, unit: Unit, taker: Unit, args: tuple[Argument, ...]) -> Reference:
        name = f"{taker.name}_{unit.name.lower()}"
        while name in self._names:
            name = f"{name}_"
        self._names.add(name)
        self._added.append(replace(unit, name=name, path=taker.path, calls=(Call(args=args),)))
        return Reference(layer=name)
