"""
Averages that Keras 2 gives for steps of an attention that may attend to none, written for Keras 3.

Keras 3.10 and later give zeros for them if the layer has dropout or returns its scores. The same
layer, called on the mean of its values as the only step, gives the average of all steps: each step
has the same weight there, and a projection of a mean is the mean of projections.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from policytool.migration.convert.architecture import Call, Reference, Unit
from policytool.migration.convert.call_arguments import ATTENTION, named_arguments
from policytool.migration.convert.masks.building import MaskBuilder
from policytool.migration.convert.traversal import rewire
from policytool.releases.keras_operations import MODULES
from policytool.releases.policy import Policy

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from policytool.migration.convert.architecture import Argument
    from policytool.migration.convert.masks.expressions import MaskTable, Scope
    from policytool.migration.convert.masks.flow import CallKey, Used

_RANK: Final = 3
_SCORES: Final = "return_attention_scores"
_CAUSAL: Final = "use_causal_mask"


def can_average(unit: Unit, masks: Used) -> bool:
    """Return whether the average for steps without any other can be written for a layer."""
    policy = unit.config.get("dtype")
    shape = unit.config.get("query_shape")
    return (
        unit.class_name == ATTENTION
        and not unit.custom
        and len(unit.calls) == 1
        and isinstance(policy, Policy)
        and policy.compute_dtype != "float64"  # there the mask of Keras 2 does not hide scores
        and (not isinstance(shape, list | tuple) or len(shape) == _RANK)
        and unit.config.get("attention_axes") in (None, [1])
        and all(place != "full" for place, _ in masks)
        and not unit.calls[0].kwargs.get(_CAUSAL)
    )


def with_averages(
    unit: Unit,
    wanted: Collection[tuple[Scope, str]],
    needed: Mapping[CallKey, Used],
    table: MaskTable,
    scope: Scope = (),
) -> Unit:
    """Return a model in which some attention layers give averages, by their scopes and names."""
    network = unit.network
    if network is None or network.is_chain or not wanted:
        return unit
    writer = _AverageWriter(MaskBuilder(network, scope, table))
    units: list[Unit] = []
    for one in network.units:
        if (scope, one.name) in wanted:
            units += writer.units(one, needed[scope, one.name, 0])
        else:
            inner = (*scope, f"{one.name}:0")
            units.append(with_averages(one, wanted, needed, table, inner))
    selected = writer.selected
    changed = rewire(replace(network, units=tuple(units)), lambda one: selected.get(one, one))
    kept = {one.name: one for one in units if one.name in writer.names}
    final = tuple(
        replace(one, calls=kept[one.name].calls) if one.name in kept else one
        for one in changed.units
    )
    return replace(unit, network=replace(changed, units=final))


class _AverageWriter:
    """Writes averages into one network."""

    def __init__(self, builder: MaskBuilder) -> None:
        self._builder = builder
        self.selected: dict[Reference, Reference] = {}
        """What stands for the outputs of attention layers."""
        self.names: set[str] = set()
        """The operations that take those outputs as they are."""

    def units(self, unit: Unit, masks: Used) -> list[Unit]:
        """Return a layer that is called twice, with the operations around it."""
        arguments = named_arguments(unit, unit.calls[0])
        second = self._second_call(unit, arguments)
        found = [*self._taken(), replace(unit, calls=(*unit.calls, second))]
        query = arguments["query"]
        mask = (
            self._builder.attention_mask(masks, query, None, unit)
            if isinstance(query, Reference)
            else None
        )
        if mask is not None:
            self._select(unit, mask)
        return [*found, *self._taken()]

    def _taken(self) -> list[Unit]:
        added = list(self._builder.added)
        self._builder.added.clear()
        return added

    def _second_call(self, unit: Unit, arguments: Mapping[str, Argument]) -> Call:
        """Return a call on the mean of all values, which has no mask."""
        means: dict[str, Argument] = {
            name: self._builder.operation("Mean", unit, (one,), axis=[1], keepdims=True)
            for name in ("value", "key")
            if isinstance(one := arguments.get(name), Reference)
        }
        query = arguments["query"]
        copied = self._builder.copy(query, unit) if isinstance(query, Reference) else query
        return Call(args=(copied, means.pop("value")), kwargs=means)

    def _select(self, unit: Unit, mask: Reference) -> None:
        """Give the average where a mask has a row without any step."""
        build = self._builder.operation
        first = Reference(layer=unit.name)
        attended = build("Any", unit, (mask,), axis=-1, keepdims=True)
        average = Reference(layer=unit.name, call=1)
        self._put(first, build("Where", unit, (attended, first, average)))
        if unit.calls[0].kwargs.get(_SCORES):
            scores = Reference(layer=unit.name, output=1)
            none = build("ZerosLike", unit, (scores,))
            alike = build("Softmax", unit, (none,), f"{MODULES}nn", axis=-1)
            heads = build("ExpandDims", unit, (attended,), axis=1)
            self._put(scores, build("Where", unit, (heads, scores, alike)))
            self.names.add(none.layer)

    def _put(self, output: Reference, selected: Reference) -> None:
        self.selected[output] = selected
        self.names.add(selected.layer)
