"""
Fully masked steps of attention layers, which attend to no step: releases return zeros or an average
for them.

They matter only if their values reach an output. Most do not, because they are padding, which a
later layer ignores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from policytool.migration.convert.architecture import (
    Network,
    Role,
    Unit,
    call_graph,
    is_attention,
    named_arguments,
)
from policytool.migration.convert.masks import Mask, MaskOp, MaskOperations, fully_masked_result
from policytool.model.calls import Reference, tensors
from policytool.model.flow import follow
from policytool.releases.layer_classes import Category, layer_facts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from policytool.migration.convert.masks import MaskTable, Scope
    from policytool.migration.convert.masks.flow import CallKey, Used
    from policytool.model.calls import Argument, Call
    from policytool.model.flow import Node, TensorValues


_FAILS: Final = "error"
"""The result for releases that cannot call an attention on such masks; it never differs."""

_SAME: Final = {"unmasked": "uniform"}
"""
Equivalent results. TF 2.4 to 2.9 do not use the masks of tensors; the same masks as
``attention_mask`` give an average in these releases (measured with TF 2.4).
"""

Differing = frozenset[Mask | None]
"""
The steps at which the values of a tensor differ: those that any of these masks excludes; None means
any step.
"""

_NOWHERE: Final[Differing] = frozenset()
_ANYWHERE: Final[Differing] = frozenset({None})


def differing_attentions(
    network: Network,
    used: Mapping[CallKey, Used],
    releases: tuple[str, str],
    table: MaskTable,
    scope: Scope = (),
) -> Iterator[tuple[Scope, Unit]]:
    """
    Yield the attention layers whose fully masked steps differ between two releases, with the nested
    models around each, if such values reach an output of the network.
    """
    origins: list[Unit] = []
    for unit in network.units:
        if unit.network is not None:
            for number in range(len(unit.calls)):
                inner = (*scope, f"{unit.name}:{number}")
                yield from differing_attentions(unit.network, used, releases, table, inner)
        elif any(
            _differs(unit, number, used.get((scope, unit.name, number), frozenset()), releases)
            for number in range(len(unit.calls))
        ):
            origins.append(unit)
    if origins:
        operations = MaskOperations(network, scope, table)
        if _Differences(network, used, operations, scope).reach_outputs(origins):
            yield from ((scope, origin) for origin in origins)


def _differs(unit: Unit, number: int, masks: Used, releases: tuple[str, str]) -> bool:
    """Return whether a call has fully masked steps that two releases compute differently."""
    if unit.custom or not masks:
        return False
    arguments = named_arguments(unit, unit.calls[number])
    first, second = (fully_masked_result(unit, arguments, release) for release in releases)
    if first is None or second is None:
        return first is not second
    pairs = ((first.query, second.query), (first.value, second.value))
    return any(
        _SAME.get(outcome, outcome) != _SAME.get(other_outcome, other_outcome)
        and _FAILS not in (outcome, other_outcome)
        for outcome, other_outcome in pairs
    )


class _Differences(Struct, frozen=True):
    """The steps at which values differ if an attention differs at its fully masked steps."""

    _network: Network
    _used: Mapping[CallKey, Used]
    _operations: MaskOperations
    _scope: Scope

    def reach_outputs(self, origins: Sequence[Unit]) -> bool:
        """Return whether differences of some layers reach an output."""
        names = {unit.name for unit in origins}

        def transfer(
            node: Node, call: Call | None, known: TensorValues[Differing]
        ) -> Sequence[Differing]:
            """Return the steps at which the outputs of a call differ, given those of its inputs."""
            if call is None:
                return (_NOWHERE,)
            unit = self._operations.units[node[0]]
            used_masks = self._used.get((self._scope, *node), frozenset())
            differing = self._outcome(unit, _arguments(unit, call), used_masks, known)
            if node[0] in names and used_masks:
                differing |= _at_masked_rows(used_masks)
            return (differing, _ANYWHERE if differing else _NOWHERE)  # the scores among them

        known = follow(call_graph(self._network), transfer, walk="differing steps")
        return any(known.of(output) for output in tensors(self._network.outputs))

    def _outcome(
        self,
        unit: Unit,
        arguments: Mapping[str, Argument],
        used_masks: Used,
        known: TensorValues[Differing],
    ) -> Differing:
        """Return the steps at which the first output of a call differs because of its inputs."""
        if unit.role is Role.OPERATION and unit.class_name == "ZerosLike":
            return _NOWHERE
        if unit.role is Role.OPERATION and unit.class_name == "Where":
            arguments = self._without_selected(list(arguments.values()))
        differing_by_argument = {
            name: _differing_places(value, known) for name, value in arguments.items()
        }
        first, *others = differing_by_argument.values() or (_NOWHERE,)
        everything = first.union(*others)
        if not everything:
            return _NOWHERE
        if is_attention(unit):
            return self._attention_outcome(differing_by_argument, used_masks)
        facts = layer_facts(unit.class_name)
        if facts.stepwise and not unit.custom:
            return everything
        if facts.moves == "joined" and unit.config.get("axis", -1) == -1:
            return everything
        leaves_out = facts.takes_states or (facts.category is Category.POOLING and facts.takes_mask)
        masks = {mask for _, mask in used_masks}
        if leaves_out and not unit.custom and not any(others) and _are_masked(first, masks):
            return _NOWHERE
        return _ANYWHERE

    def _without_selected(self, arguments: list[Argument]) -> Mapping[str, Argument]:
        """
        Return the arguments of a selection, without the output of an attention if it is selected
        only for steps that may attend to some.
        """
        condition, chosen, *others = [*arguments, None, None][:3]
        if not isinstance(condition, Reference) or not isinstance(chosen, Reference):
            return dict(zip(("condition", "x", "y"), arguments, strict=False))
        used = self._used.get((self._scope, chosen.layer, chosen.call))
        call = self._operations.units[chosen.layer].calls[chosen.call] if used else None
        if (
            used
            and call is not None
            and self._masks_of_condition(condition) == attending_masks(call, used)
        ):
            return dict(zip("xy", others, strict=False))
        return dict(zip(("condition", "x", "y"), arguments, strict=False))

    def _masks_of_condition(self, condition: Reference) -> Used | None:
        """Return the masks of an attention whose steps may attend to some if a tensor is true."""
        unit, source = self._operation(condition)
        if unit is not None and unit.class_name == "ExpandDims" and unit.config.get("axis") == 1:
            unit, source = self._operation(source)
        if unit is None or unit.class_name != "Any" or unit.config.get("keepdims") is not True:
            return None
        return frozenset(self._operations.attention(source)) if source is not None else None

    def _operation(self, tensor: Reference | None) -> tuple[Unit | None, Reference | None]:
        """Return the unit that computes a tensor, and the first input tensor of the unit."""
        unit = self._operations.units.get(tensor.layer) if tensor is not None else None
        arguments = [argument for call in unit.calls[:1] for argument in call.args] if unit else []
        return unit, next(tensors(arguments), None)

    def _attention_outcome(
        self, differing_by_argument: Mapping[str, Differing], used_masks: Used
    ) -> Differing:
        """
        Return the steps at which the output of an attention differs: those of its query, or any
        step if it attends to values that differ.
        """
        values = differing_by_argument.get("value", _NOWHERE) | differing_by_argument.get(
            "key", _NOWHERE
        )
        if any(
            differing_by_argument.get(name)
            for name in differing_by_argument
            if name not in {"query", "value", "key"}
        ):
            return _ANYWHERE
        columns = {mask for place, mask in used_masks if place == "columns"}
        differing_queries = differing_by_argument.get("query", _NOWHERE)
        if not values:
            return differing_queries
        return (
            differing_queries | _at_masked_rows(used_masks)
            if _are_masked(values, columns)
            else _ANYWHERE
        )


def _differing_places(value: Argument, known: TensorValues[Differing]) -> Differing:
    """Return the steps at which the tensors in an argument differ."""
    return _NOWHERE.union(*(known.of(tensor) or _NOWHERE for tensor in tensors(value)))


def _arguments(unit: Unit, call: Call) -> Mapping[str, Argument]:
    """Return the arguments of a call by name; for an operation, by position."""
    if unit.role is not Role.OPERATION:
        return named_arguments(unit, call)
    return {**{str(place): value for place, value in enumerate(call.args)}, **call.kwargs}


def attending_masks(call: Call, masks: Used) -> Used | None:
    """
    Return the masks of the steps of an attention that may attend to any step: the masks of its
    query, if its values have the same masks; None if other masks hide steps, too.
    """
    rows = _deciding_rows(masks)
    hides_others = call.kwargs.get("use_causal_mask") or any(place == "full" for place, _ in masks)
    return rows or (None if hides_others else masks)


def _deciding_rows(masks: Used) -> Used:
    """
    Return the masks of a query, if its values have the same masks or none: an unmasked step may
    attend to itself or to the first step, with a causal mask too.
    """
    rows = frozenset(part for part in masks if part[0] == "rows")
    return rows if {mask for _, mask in masks} <= {mask for _, mask in rows} else frozenset()


def _at_masked_rows(used_masks: Used) -> Differing:
    """
    Return the fully masked steps of an attention: those that the masks of its query exclude, if its
    values have the same masks.
    """
    return frozenset(mask for _, mask in _deciding_rows(used_masks)) or _ANYWHERE


def _are_masked(differing: Differing, masks: set[Mask]) -> bool:
    """Return whether masks exclude all steps that differ."""
    conjunctions = [mask.parts for mask in masks if mask.op is MaskOp.BOTH]
    return differing <= masks.union(*conjunctions)
