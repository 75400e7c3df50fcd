"""
Layers that merge masked tensors: what Keras 3.4 on computes with the masks, written for releases
that merge the values alone.

Where a step of an input is masked, Multiply takes a factor of 1 there, and Maximum and Minimum take
what the other inputs have; where all are masked, Multiply gives 0 (``_merge_function`` in
keras/src/layers/merging). Here each input gets these values by operations, before the layer.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from policytool.migration.convert.call_arguments import named_arguments
from policytool.migration.convert.masks.building import MaskBuilder
from policytool.migration.convert.masks.networks import change_networks
from policytool.migration.convert.masks.propagation import read_masks, rule_of
from policytool.migration.convert.tensor_dtypes import compute_dtype
from policytool.model.calls import Call, Reference

if TYPE_CHECKING:
    from collections.abc import Mapping

    from policytool.migration.convert.architecture import Network, Unit
    from policytool.migration.convert.masks.expressions import MaskTable, Scope
    from policytool.migration.convert.masks.flow import CallKey, Used
    from policytool.model.calls import Argument

_MERGES: Final = frozenset({"Multiply", "Maximum", "Minimum"})


def with_merged_values(
    root: Unit, needed: Mapping[CallKey, Used], release: str, table: MaskTable
) -> tuple[Unit, frozenset[CallKey]]:
    """
    Return a model in which layers that a release merges without masks get what they had with them,
    and their calls, which need no masks any more.

    :param needed: the masks that each call computes with
    """

    def change(network: Network, scope: Scope) -> tuple[Network, frozenset[CallKey]]:
        builder = MaskBuilder(network, scope, table)
        units: list[Unit] = []
        done: set[CallKey] = set()
        for one in network.units:
            calls = list(one.calls)
            for number, call in enumerate(one.calls):
                key = (scope, one.name, number)
                masks = needed.get(key, frozenset())
                changed = _merged(one, call, masks, release, builder) if masks else None
                if changed is not None:
                    calls[number] = changed
                    done.add(key)
            units += [*builder.take(), replace(one, calls=tuple(calls))]
        return replace(network, units=tuple(units)), frozenset(done)

    return change_networks(root, change)


def _merged(unit: Unit, call: Call, masks: Used, release: str, builder: MaskBuilder) -> Call | None:
    """Return a call on what the masks make of its inputs; None if that cannot be written."""
    first = next(iter(call.args), None)
    if unit.custom or unit.class_name not in _MERGES or not isinstance(first, list | tuple):
        return None
    tensors = [item for item in first if isinstance(item, Reference)]
    rule = rule_of(unit, named_arguments(unit, call), len(tensors), release)
    given = dict(masks)
    present = [given.get(str(place)) for place in range(len(tensors))]
    dtype = compute_dtype(unit)
    if (
        len(tensors) < len(first)
        or rule is None
        or read_masks(rule, present)
        or any(builder.dtype(tensor) != dtype for tensor in tensors)
    ):
        return None
    kept = [
        None if mask is None else _steps(builder, builder.put(mask, unit), unit) for mask in present
    ]
    if any(step is None and mask is not None for step, mask in zip(kept, present, strict=True)):
        return None
    change = _factors if unit.class_name == "Multiply" else _others
    merged: list[Argument] = [*change(builder, unit, tensors, kept)]
    return replace(call, args=(merged, *call.args[1:]))


def _steps(builder: MaskBuilder, mask: Reference | None, taker: Unit) -> Reference | None:
    """Return a mask with an axis for channels."""
    return None if mask is None else builder.operation("ExpandDims", taker, (mask,), axis=-1)


def _factors(
    builder: MaskBuilder, unit: Unit, tensors: list[Reference], kept: list[Reference | None]
) -> list[Reference]:
    """Return factors: 1 at masked steps, and one of them 0 where all are masked."""
    build = builder.operation
    found = [
        tensor
        if mask is None
        else build("Where", unit, (mask, tensor, build("OnesLike", unit, (tensor,))))
        for tensor, mask in zip(tensors, kept, strict=True)
    ]
    masks = [mask for mask in kept if mask is not None]
    if len(masks) < len(tensors):
        return found
    some = masks[0]
    for mask in masks[1:]:
        some = build("LogicalOr", unit, (some, mask))
    none = build("ZerosLike", unit, (tensors[0],))
    return [build("Where", unit, (some, found[0], none)), *found[1:]]


def _others(
    builder: MaskBuilder, unit: Unit, tensors: list[Reference], kept: list[Reference | None]
) -> list[Reference]:
    """
    Return the last two values of which the layer takes the larger or the smaller one: what inputs
    before them come to, and the last input.
    """
    build = builder.operation
    result, mask = tensors[0], kept[0]
    pair = [result]
    for place, (tensor, own) in enumerate(zip(tensors[1:], kept[1:], strict=True)):
        if place:
            result = build(unit.class_name, unit, tuple(pair))
        taken = tensor if own is None else build("Where", unit, (own, tensor, result))
        result = result if mask is None else build("Where", unit, (mask, result, taken))
        mask = None if None in (mask, own) else build("LogicalOr", unit, (mask, own))
        pair = [result, taken]
    return pair
