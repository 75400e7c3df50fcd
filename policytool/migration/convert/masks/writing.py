"""
Writes masks into the graph of a model: as arguments of calls, made by operations, or by copies of
tensors, which have none.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from policytool.migration.convert.architecture import Network, Unit
from policytool.migration.convert.call_arguments import ATTENTION, named_arguments
from policytool.migration.convert.masks.building import MaskBuilder
from policytool.migration.convert.masks.flow import ATTENTION_MASK, CallKey, Used
from policytool.migration.convert.tensor_dtypes import compute_dtype, entry_dtypes
from policytool.migration.convert.traversal import references, replace_references
from policytool.model.calls import Call, Reference, tensors
from policytool.releases.layer_classes import layer_facts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from policytool.migration.convert.architecture import Network, Unit
    from policytool.migration.convert.masks.expressions import MaskTable, Scope
    from policytool.model.calls import Argument


def with_masks(
    unit: Unit,
    scopes: Sequence[Scope],
    needed: Mapping[CallKey, Used],
    wrong: Mapping[CallKey, tuple[Used, Used]],
    table: MaskTable,
) -> Unit:
    """
    Return a model with the masks of some calls written into its functional graphs.

    :param scopes: one for each call of the model, which has one graph for all of them
    """
    network = unit.network
    if network is None:
        return unit
    builder = MaskBuilder(network, scopes[0], table)
    units: list[Unit] = []
    for one in network.units:
        numbers = range(1 if network.is_chain else len(one.calls))
        calls = list(one.calls)
        keys = [[(scope, one.name, number) for scope in scopes] for number in numbers]
        for number, same in enumerate(keys):
            masks = _masks_of_all(same, needed, wrong)
            if masks is not None and not network.is_chain:
                calls[number] = _masked_call(one, calls[number], masks, builder)
        units += [*builder.take(), replace(one, calls=tuple(calls))]
        if keys and not any(key in wrong for same in keys for key in same):
            inner = [(*scope, f"{name}:{number}") for same in keys for scope, name, number in same]
            units[-1] = with_masks(units[-1], inner, needed, wrong, table)
    return replace(unit, network=replace(network, units=tuple(units)))


def _masks_of_all(
    keys: Sequence[CallKey],
    needed: Mapping[CallKey, Used],
    wrong: Mapping[CallKey, tuple[Used, Used]],
) -> tuple[Used, Used] | None:
    """
    Return the masks that a call needs and has in all calls of the models around it; None if they
    are right, or not the same in all.
    """
    found = [wrong[key] for key in keys if key in wrong]
    if not found or (len(keys) > 1 and any(needed.get(key) for key in keys)):
        return None
    first, *others = (has for _, has in found)
    return found[0][0], first.union(*others)


def _masked_call(unit: Unit, call: Call, masks: tuple[Used, Used], builder: MaskBuilder) -> Call:
    """
    Return a call that computes with the masks that it needs, or the call as it was if that cannot
    be written.

    :param masks: those that it needs, and those that it has
    """
    needed, has = masks
    if unit.network is not None:
        return _entering_call(unit, unit.network, call, masks, builder)
    if unit.class_name == ATTENTION and not unit.custom:
        return _masked_attention(unit, call, masks, builder)
    arguments = named_arguments(unit, call)
    first = next(iter(arguments.values()), None)
    inputs = list(references(first))
    if not needed:
        return _copy_tensors(unit, call, set(inputs), builder)
    takes = layer_facts(unit.class_name).takes_mask and not unit.custom
    found = {place: builder.put(mask, unit) for place, mask in needed} if takes else {}
    if not takes or None in found.values():
        unwanted = [place for place, _ in has - needed] if needed < has else []
        places = [int(place) for place in unwanted if int(place) < len(inputs)]
        return _copy_tensors(unit, call, {inputs[place] for place in places}, builder)
    mask: Argument = found.get("0")
    if isinstance(first, list | tuple) and not layer_facts(unit.class_name).takes_states:
        mask = [found.get(str(place)) for place, _ in enumerate(first)]
    return replace(call, kwargs={**call.kwargs, "mask": mask})


def _entering_call(
    unit: Unit, network: Network, call: Call, masks: tuple[Used, Used], builder: MaskBuilder
) -> Call:
    """
    Return a call of a nested model without the masks that shall not enter it. Before inputs that
    would cast a tensor, and in Keras 2 lose its mask, stands a layer that casts it. Masks that a
    layer took off a tensor are arguments of the call.
    """
    needed, found = masks
    inputs = dict(enumerate(tensors(call.args[:1])))
    unwanted = {int(place) for place, _ in found} - {int(place) for place, _ in needed}
    missing = {int(place) for place, _ in needed - found}
    casts = {
        inputs[place]: builder.cast(inputs[place], dtype, unit)
        for place, dtype in enumerate(entry_dtypes(network))
        if place in missing & inputs.keys() and dtype not in (None, builder.dtype(inputs[place]))
    }
    if missing and not casts:
        return _given_call(unit, call, needed, builder)
    changed = Call(
        args=tuple(replace_references(one, lambda one: casts.get(one, one)) for one in call.args),
        kwargs=call.kwargs,
    )
    return _copy_tensors(unit, changed, {inputs[place] for place in unwanted}, builder)


def _given_call(unit: Unit, call: Call, needed: Used, builder: MaskBuilder) -> Call:
    """
    Return a call of a nested model that is given the masks that it needs, on copies of its inputs:
    the masks would else stay on the tensors.
    """
    found = {place: builder.put(mask, unit) for place, mask in needed}
    first = call.args[0] if call.args else None
    if None in found.values() or not isinstance(first, Reference | list | tuple):
        return call
    mask: Argument = found.get("0")
    if not isinstance(first, Reference):
        mask = [found.get(str(place)) for place, _ in enumerate(first)]
    copied = _copy_tensors(unit, call, set(references(first)), builder)
    return replace(copied, kwargs={**copied.kwargs, "mask": mask})


def _masked_attention(
    unit: Unit, call: Call, masks: tuple[Used, Used], builder: MaskBuilder
) -> Call:
    """
    Return a call of a MultiHeadAttention that computes with the masks that it needs. A layer before
    it casts its query, which would lose its mask when the attention does.
    """
    needed, found = masks
    unwanted = {place for place, _ in found - needed}
    arguments = named_arguments(unit, call)
    names = [
        name
        for name, place in (("query", "rows"), ("value", "columns"), ("key", "columns"))
        if place in unwanted
    ]
    copied = {one for name in names for one in references(arguments.get(name))}
    missing = needed - {one for one in found if one[0] not in unwanted}
    query, dtype = arguments.get("query"), compute_dtype(unit)
    if missing and isinstance(query, Reference):
        given = builder.dtype(query)
        is_missed = any(place == "rows" for place, _ in missing)
        if is_missed and dtype is not None and given is not None and dtype != given:
            cast = builder.cast(query, dtype, unit)
            if "query" in call.kwargs:
                return replace(call, kwargs={**call.kwargs, "query": cast})
            return replace(call, args=(cast, *call.args[1:]))
        mask = builder.attention_mask(missing, query, call.kwargs.get(ATTENTION_MASK), unit)
        if mask is None:
            return call
        call = replace(call, kwargs={**call.kwargs, ATTENTION_MASK: mask})
    return _copy_tensors(unit, call, copied, builder)


def _copy_tensors(unit: Unit, call: Call, tensors: set[Reference], builder: MaskBuilder) -> Call:
    """Return a call with copies, which have no masks, in place of some of its tensors."""
    copies = {one: builder.copy(one, unit) for one in sorted(tensors, key=repr)}

    def change(reference: Reference) -> Argument:
        return copies.get(reference, reference)

    return Call(
        args=tuple(replace_references(one, change) for one in call.args),
        kwargs={
            key: value if key == ATTENTION_MASK else replace_references(value, change)
            for key, value in call.kwargs.items()
        },
    )
