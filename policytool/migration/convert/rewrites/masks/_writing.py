"""
Writes masks into the graphs of a model: as arguments of calls, computed by Keras 3 operations, or
removes them by copies of tensors, which have no masks.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from msgspec import structs

from policytool.migration.convert.architecture import (
    Network,
    Role,
    Unit,
    is_attention,
    named_arguments,
    replace_references,
    rewire,
    unused_name,
)
from policytool.migration.convert.masks import (
    CAST,
    Mask,
    MaskOp,
    MaskOperations,
    MaskTable,
    Scope,
    ScopedTensor,
)
from policytool.migration.convert.masks.flow import ATTENTION_MASK, CallKey, Used
from policytool.migration.convert.tensor_facts import compute_dtype, entry_dtypes, network_dtypes
from policytool.model.calls import Call, Reference, tensors
from policytool.releases.keras_operations import MODULES
from policytool.releases.layer_classes import layer_facts
from policytool.releases.policy import policy_from_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from policytool.migration.convert.architecture import Value
    from policytool.model.calls import Argument


def change_networks(
    unit: Unit,
    table: MaskTable,
    change: Callable[[Unit, MaskBuilder], list[Unit]],
    scope: Scope = (),
) -> tuple[Unit, frozenset[CallKey]]:
    """
    Return a model with changed graphs, and the calls that changed.

    :param change: returns the units that replace a unit of a graph, and notes in the builder of the
        graph which calls changed and which tensors replace outputs

    The graph of a model that is called several times is not changed, because its masks differ from
    call to call. Chains are not changed either, because no unit can be added beside a layer there.
    """
    network = unit.network
    if network is None or network.is_chain:
        return unit, frozenset()
    members: list[Unit] = []
    changed_calls: frozenset[CallKey] = frozenset()
    for member in network.units:
        inner = member
        if len(member.calls) == 1:
            inner, below = change_networks(member, table, change, (*scope, f"{member.name}:0"))
            changed_calls |= below
        members.append(inner)
    network = replace(network, units=tuple(members))
    builder = MaskBuilder(network, scope, table)
    units = [changed for member in members for changed in change(member, builder)]
    rewired = rewire(
        replace(network, units=tuple(units)),
        lambda reference: builder.stand_ins.get(reference, reference),
    )
    units = [
        replace(after, calls=before.calls) if before.name in builder.keeping else after
        for before, after in zip(units, rewired.units, strict=True)
    ]
    return replace(unit, network=replace(rewired, units=tuple(units))), changed_calls | builder.done


_NUMPY: Final = f"{MODULES}numpy"
_CORE: Final = f"{MODULES}core"
_DEPTH: Final = 32
"""The largest nesting depth of masks; deeper masks are refused."""


class MaskBuilder:
    """Adds operations that compute masks to a network."""

    def __init__(self, network: Network, scope: Scope, table: MaskTable) -> None:
        self._network = network
        self.scope = scope
        self.done: set[CallKey] = set()
        """The calls that changed."""

        self.stand_ins: dict[Reference, Reference] = {}
        """The tensor that replaces each output of a layer."""

        self.keeping: set[str] = set()
        """The operations that compute these tensors, which keep the original outputs."""

        self._table = table
        self._names = {unit.name for unit in network.units}
        self._known = MaskOperations(network, scope, table).reusable()
        self._added: list[Unit] = []

    def take(self) -> list[Unit]:
        """
        Return the operations that were added since the last call of this method, and forget them.
        """
        added, self._added = self._added, []
        return added

    def add_mask(self, mask: Mask, user: Unit, depth: int = 0) -> Reference | None:
        """Return the tensor of a mask; None if operations in this network cannot compute it."""
        reference = self._known.get(mask)
        if reference is None and depth <= _DEPTH:
            reference = self._add_mask_ops(mask, user, depth + 1)
            if reference is not None:
                self._known[mask] = reference
        return reference

    def dtype(self, tensor: Reference) -> str | None:
        """Return the dtype of a tensor; None if unknown."""
        return network_dtypes(self._network).of(tensor)

    def copy(self, tensor: Reference, user: Unit) -> Reference:
        """Return a tensor's values without its mask."""
        return self.operation("Copy", user, (tensor,))

    def cast(self, tensor: Reference, dtype: str, user: Unit) -> Reference:
        """Return a tensor in another dtype, with its mask."""
        policy = policy_from_name(dtype)
        config: dict[str, Value] = {"trainable": True, "dtype": policy, "activation": "linear"}
        return self._add(Unit(class_name="Activation", name=CAST, config=config), user, (tensor,))

    def attention_mask(
        self,
        parts: AbstractSet[tuple[str, Mask]],
        query: Reference,
        existing_mask: Argument,
        user: Unit,
    ) -> Reference | None:
        """
        Return the argument ``attention_mask``, of shape (batch, queries, keys); None if a mask
        cannot be computed by operations.

        :param existing_mask: the argument that the call already has
        """
        mask_tensors = [existing_mask] if isinstance(existing_mask, Reference) else []
        if not mask_tensors and not any(place in {"rows", "full"} for place, _ in parts):
            ones_mask = self._table.mask(MaskOp.ONES, ScopedTensor(self.scope, query))
            parts = {*parts, ("rows", ones_mask)}  # not all releases broadcast along the queries
        for place, mask in sorted(parts, key=lambda part: (part[0], part[1].number)):
            reference = self.add_mask(mask, user)
            if reference is None:
                return None
            if place != "full":
                axis = -1 if place == "rows" else 1
                reference = self.operation("ExpandDims", user, (reference,), axis=axis)
            mask_tensors.append(reference)
        return self._fold("LogicalAnd", user, mask_tensors)

    def _add_mask_ops(self, mask: Mask, user: Unit, depth: int) -> Reference | None:
        """
        Return the tensor of a mask, with the operations that compute it added; None if no
        operations can.
        """
        first, *others = mask.parts
        if isinstance(first, ScopedTensor) and first.scope != self.scope:
            return None
        if mask.op is MaskOp.TENSOR and isinstance(first, ScopedTensor):
            return first.reference
        if mask.op is MaskOp.NONZERO and isinstance(first, ScopedTensor):
            return self._add_nonzero(first.reference, others, user)
        if mask.op is MaskOp.ONES and isinstance(first, ScopedTensor):
            return self._add_ones(first.reference, user)
        if mask.op is MaskOp.LAYER:
            return None
        parts = [self.add_mask(part, user, depth) for part in mask.parts if isinstance(part, Mask)]
        known = [part for part in parts if part is not None]
        if len(known) < len(parts):
            return None
        if mask.op is MaskOp.JOIN:
            items: list[Argument] = [*known]
            return self.operation("Concatenate", user, (items,), axis=1)
        if mask.op is MaskOp.ANY:
            return self.operation("Any", user, (known[0],), axis=-1, keepdims=False)
        name = "LogicalOr" if mask.op is MaskOp.EITHER else "LogicalAnd"
        return self._fold(name, user, known)

    def _add_nonzero(
        self, tensor: Reference, others: list[Mask | ScopedTensor | str | float | None], user: Unit
    ) -> Reference:
        """
        Add the comparison of a tensor with the value that marks masked steps.

        :param others: the value, 0 if it is not a float, and the dtype of a preceding cast, if any
        """
        value, *dtype = others
        if dtype:
            tensor = self.operation(CAST, user, (tensor,), _CORE, dtype=str(dtype[0]))
        number = value if isinstance(value, float) else 0.0
        compared = int(number) if number.is_integer() else number
        return self.operation("NotEqual", user, (tensor, compared))

    def _add_ones(self, tensor: Reference, user: Unit) -> Reference:
        """
        Add a mask without masked steps, of the length of a tensor: each element equals 0 or differs
        from 0.
        """
        zero = self.operation("Equal", user, (tensor, 0))
        other = self.operation("NotEqual", user, (tensor, 0))
        is_any = self.operation("LogicalOr", user, (zero, other))  # NaN differs from 0, too
        return self.operation("Any", user, (is_any,), axis=-1, keepdims=False)

    def _fold(self, name: str, user: Unit, tensors: list[Reference]) -> Reference:
        """Combine tensors in their order with an operation on two tensors."""
        result = tensors[0]
        for tensor in tensors[1:]:
            result = self.operation(name, user, (result, tensor))
        return result

    def operation(
        self,
        class_name: str,
        user: Unit,
        args: tuple[Argument, ...],
        module: str = _NUMPY,
        **config: Value,
    ) -> Reference:
        """Add an operation to the network, and return its output."""
        unit = Unit(
            class_name=class_name,
            name=class_name,
            config=dict(config),
            role=Role.OPERATION,
            module=module,
        )
        return self._add(unit, user, args)

    def _add(self, unit: Unit, user: Unit, args: tuple[Argument, ...]) -> Reference:
        """Add an operation whose name starts with that of the unit that uses it."""
        name = unused_name(f"{user.name}_{unit.name.lower()}", self._names)
        self._added.append(replace(unit, name=name, path=user.path, calls=(Call(args=args),)))
        return Reference(layer=name)


def with_masks(
    unit: Unit,
    scopes: Sequence[Scope],
    needed: Mapping[CallKey, Used],
    wrong: Mapping[CallKey, tuple[Used, Used]],
    table: MaskTable,
) -> Unit:
    """
    Return a model with the masks of some calls written into its functional graphs.

    :param scopes: the scope of each call of the model; all calls share one graph
    """
    network = unit.network
    if network is None:
        return unit
    builder = MaskBuilder(network, scopes[0], table)
    units: list[Unit] = []
    for member in network.units:
        numbers = range(1 if network.is_chain else len(member.calls))
        calls = list(member.calls)
        keys = [[(scope, member.name, number) for scope in scopes] for number in numbers]
        for number, call_keys in enumerate(keys):
            masks = _masks_of_all(call_keys, needed, wrong)
            if masks is not None and not network.is_chain:
                calls[number] = _masked_call(member, calls[number], masks, builder)
        units += [*builder.take(), replace(member, calls=tuple(calls))]
        if keys and not any(key in wrong for call_keys in keys for key in call_keys):
            inner = [
                (*scope, f"{name}:{number}")
                for call_keys in keys
                for scope, name, number in call_keys
            ]
            units[-1] = with_masks(units[-1], inner, needed, wrong, table)
    return replace(unit, network=replace(network, units=tuple(units)))


def _masks_of_all(
    keys: Sequence[CallKey],
    needed: Mapping[CallKey, Used],
    wrong: Mapping[CallKey, tuple[Used, Used]],
) -> tuple[Used, Used] | None:
    """
    Return the masks that a call needs and the masks that it has, for all calls of the models around
    it; None if they are right, or if one of several calls needs a mask.
    """
    mask_pairs = [wrong[key] for key in keys if key in wrong]
    if not mask_pairs or (len(keys) > 1 and any(needed.get(key) for key in keys)):
        return None
    first, *others = (present for _, present in mask_pairs)
    return mask_pairs[0][0], first.union(*others)


def _masked_call(unit: Unit, call: Call, masks: tuple[Used, Used], builder: MaskBuilder) -> Call:
    """
    Return a call that computes with the masks that it needs, or the unchanged call if that cannot
    be written.

    :param masks: the masks that it needs, and the masks that it has
    """
    needed, present = masks
    if unit.network is not None:
        return _entering_call(unit, unit.network, call, masks, builder)
    if is_attention(unit):
        return _masked_attention(unit, call, masks, builder)
    arguments = named_arguments(unit, call)
    first = next(iter(arguments.values()), None)
    inputs = list(tensors(first))
    if not needed:
        return _copy_tensors(unit, call, set(inputs), builder)
    has_mask_argument = layer_facts(unit.class_name).takes_mask and not unit.custom
    mask_by_place = (
        {place: builder.add_mask(mask, unit) for place, mask in needed} if has_mask_argument else {}
    )
    if not has_mask_argument or None in mask_by_place.values():
        unwanted = [place for place, _ in present - needed] if needed < present else []
        positions = [int(place) for place in unwanted if int(place) < len(inputs)]
        return _copy_tensors(unit, call, {inputs[place] for place in positions}, builder)
    tensors_with_masks = None if layer_facts(unit.class_name).takes_states else first
    return _with_mask(call, mask_by_place, tensors_with_masks)


def _with_mask(call: Call, mask_by_place: Mapping[str, Reference | None], first: Argument) -> Call:
    """
    Return a call with the argument ``mask``.

    :param first: the tensors that have the masks; of a list, each has its own
    """
    mask: Argument = mask_by_place.get("0")
    if isinstance(first, list | tuple):
        mask = [mask_by_place.get(str(place)) for place, _ in enumerate(first)]
    return structs.replace(call, kwargs={**call.kwargs, "mask": mask})


def _entering_call(
    unit: Unit, network: Network, call: Call, masks: tuple[Used, Used], builder: MaskBuilder
) -> Call:
    """
    Return a call of a nested model without the masks that must not enter it.

    A layer is added that casts a tensor before an input that would cast it, because the tensor
    would lose its mask in Keras 2. A mask that a layer removed from a tensor becomes an argument of
    the call.
    """
    needed, existing = masks
    inputs = dict(enumerate(tensors(call.args[:1])))
    unwanted = {int(place) for place, _ in existing} - {int(place) for place, _ in needed}
    missing = {int(place) for place, _ in needed - existing}
    casts = {
        inputs[place]: builder.cast(inputs[place], dtype, unit)
        for place, dtype in enumerate(entry_dtypes(network))
        if place in missing & inputs.keys() and dtype not in (None, builder.dtype(inputs[place]))
    }
    if missing and not casts:
        return _call_with_mask_argument(unit, call, needed, builder)
    changed = Call(
        args=tuple(
            replace_references(argument, lambda reference: casts.get(reference, reference))
            for argument in call.args
        ),
        kwargs=call.kwargs,
    )
    return _copy_tensors(unit, changed, {inputs[place] for place in unwanted}, builder)


def _call_with_mask_argument(unit: Unit, call: Call, needed: Used, builder: MaskBuilder) -> Call:
    """
    Return a call of a nested model with the masks that it needs as an argument, on copies of its
    inputs, because the original tensors would keep their masks.
    """
    mask_by_place = {place: builder.add_mask(mask, unit) for place, mask in needed}
    first = call.args[0] if call.args else None
    if None in mask_by_place.values() or not isinstance(first, Reference | list | tuple):
        return call
    copied = _copy_tensors(unit, call, set(tensors(first)), builder)
    return _with_mask(copied, mask_by_place, first)


def _masked_attention(
    unit: Unit, call: Call, masks: tuple[Used, Used], builder: MaskBuilder
) -> Call:
    """
    Return a call of a MultiHeadAttention that computes with the masks that it needs.

    If the attention would cast its query, a layer before it does, because the query would lose its
    mask otherwise.
    """
    needed, existing = masks
    unwanted = {place for place, _ in existing - needed}
    arguments = named_arguments(unit, call)
    names = [
        name
        for name, place in (("query", "rows"), ("value", "columns"), ("key", "columns"))
        if place in unwanted
    ]
    copied = {reference for name in names for reference in tensors(arguments.get(name))}
    missing = needed - {placed_mask for placed_mask in existing if placed_mask[0] not in unwanted}
    query, dtype = arguments.get("query"), compute_dtype(unit)
    if missing and isinstance(query, Reference):
        query_dtype = builder.dtype(query)
        is_missed = any(place == "rows" for place, _ in missing)
        if is_missed and dtype is not None and query_dtype is not None and dtype != query_dtype:
            cast = builder.cast(query, dtype, unit)
            if "query" in call.kwargs:
                return structs.replace(call, kwargs={**call.kwargs, "query": cast})
            return structs.replace(call, args=(cast, *call.args[1:]))
        mask = builder.attention_mask(missing, query, call.kwargs.get(ATTENTION_MASK), unit)
        if mask is None:
            return call
        call = structs.replace(call, kwargs={**call.kwargs, ATTENTION_MASK: mask})
    return _copy_tensors(unit, call, copied, builder)


def _copy_tensors(unit: Unit, call: Call, tensors: set[Reference], builder: MaskBuilder) -> Call:
    """Return a call with copies of some of its tensors, because copies have no masks."""
    copies = {tensor: builder.copy(tensor, unit) for tensor in sorted(tensors, key=repr)}

    def change(reference: Reference) -> Argument:
        return copies.get(reference, reference)

    return Call(
        args=tuple(replace_references(argument, change) for argument in call.args),
        kwargs={
            key: value if key == ATTENTION_MASK else replace_references(value, change)
            for key, value in call.kwargs.items()
        },
    )
