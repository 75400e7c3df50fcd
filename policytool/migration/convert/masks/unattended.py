"""
What an attention gives for steps that may attend to none, written for the other library.

Keras 2 gives averages, and so does Keras 3; but from 3.10 on it attends to nothing there if the
layer has dropout or returns its scores. Either is what a second call of the same layer gives.
Called on the mean of its values as the only step, it gives the average of all steps: each step has
the same weight there, and a projection of a mean is the mean of projections. Called on values
without steps, it attends to nothing, and what is left is the bias of its last projection.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from policytool.migration.convert.call_arguments import ATTENTION, named_arguments
from policytool.migration.convert.masks.building import MaskBuilder
from policytool.migration.convert.masks.fully_masked import attending_masks
from policytool.migration.convert.masks.networks import change_networks, put_in_place
from policytool.model.calls import Call, Reference, Slice
from policytool.releases.keras_operations import MODULES
from policytool.releases.policy import Policy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from policytool.migration.convert.architecture import Network, Unit
    from policytool.migration.convert.masks.expressions import MaskTable, Scope
    from policytool.migration.convert.masks.flow import CallKey, Used
    from policytool.model.calls import Argument

_RANK: Final = 3
_SCORES: Final = "return_attention_scores"
_UNHIDDEN: Final = "float64"
"""What the mask of Keras 2 does not hide scores in, so that it gives no average."""

_NO_STEPS: Final = (Slice(), Slice(stop=0))
ZEROS: Final = "zeros"
"""What releases that attend to nothing give as scores."""


def can_select(unit: Unit, masks: Used, given: str) -> bool:
    """
    Return whether what a layer gives for steps that may attend to none can be written.

    :param given: that, such as ``zeros``
    """
    policy = unit.config.get("dtype")
    arguments = named_arguments(unit, unit.calls[0])
    return (
        unit.class_name == ATTENTION
        and not unit.custom
        and len(unit.calls) == 1
        and all(isinstance(arguments.get(name), Reference) for name in ("query", "value"))
        and isinstance(policy, Policy)
        and (given == ZEROS or policy.compute_dtype != _UNHIDDEN)
        and _rank(unit) in (None, _RANK)
        and unit.config.get("attention_axes") in (None, [1])
        and attending_masks(unit.calls[0], masks) is not None
    )


def with_selections(
    root: Unit, wanted: Mapping[CallKey, str], needed: Mapping[CallKey, Used], table: MaskTable
) -> tuple[Unit, frozenset[CallKey]]:
    """
    Return a model in which some attention layers give something else for steps that may attend to
    none, and those of them that do.

    :param wanted: what their only calls are to give; a mask that is made outside of a nested model
        is no tensor in it
    """

    def change(network: Network, scope: Scope) -> tuple[Network, frozenset[CallKey]]:
        writer = _SelectionWriter(MaskBuilder(network, scope, table))
        units: list[Unit] = []
        done: set[CallKey] = set()
        for one in network.units:
            key = (scope, one.name, 0)
            found = writer.units(one, needed[key], wanted[key]) if key in wanted else []
            units += found or [one]
            done |= {key} if found else set()
        changed = replace(network, units=tuple(units))
        return put_in_place(changed, writer.selected, writer.names), frozenset(done)

    return change_networks(root, change) if wanted else (root, frozenset())


class _SelectionWriter:
    """Writes second calls into one network."""

    def __init__(self, builder: MaskBuilder) -> None:
        self._builder = builder
        self.selected: dict[Reference, Reference] = {}
        """What stands for the outputs of attention layers."""
        self.names: set[str] = set()
        """The operations that take those outputs as they are."""

    def units(self, unit: Unit, masks: Used, given: str) -> list[Unit]:
        """
        Return a layer that is called twice, with the operations around it; nothing if its mask
        cannot be made.
        """
        arguments = named_arguments(unit, unit.calls[0])
        query, attending = arguments["query"], attending_masks(unit.calls[0], masks)
        mask = (
            self._builder.attention_mask(attending, query, None, unit)
            if isinstance(query, Reference) and attending is not None
            else None
        )
        if mask is None:
            self._builder.take()
            return []
        second = self._second_call(unit, arguments, given)
        found = [*self._builder.take(), replace(unit, calls=(*unit.calls, second))]
        self._select(unit, mask, given)
        return [*found, *self._builder.take()]

    def _second_call(self, unit: Unit, arguments: Mapping[str, Argument], given: str) -> Call:
        """Return a call on the mean of all values, or on none of them, which has no mask."""
        values: dict[str, Argument] = {
            name: self._builder.operation("GetItem", unit, (one, _NO_STEPS))
            if given == ZEROS
            else self._builder.operation("Mean", unit, (one,), axis=[1], keepdims=True)
            for name in ("value", "key")
            if isinstance(one := arguments.get(name), Reference)
        }
        query = arguments["query"]
        copied = self._builder.copy(query, unit) if isinstance(query, Reference) else query
        return Call(args=(copied, values.pop("value")), kwargs=values)

    def _select(self, unit: Unit, mask: Reference, given: str) -> None:
        """Give what the second call gives where a mask has a row without any step."""
        build = self._builder.operation
        first = Reference(layer=unit.name)
        attended = build("Any", unit, (mask,), axis=-1, keepdims=True)
        second = Reference(layer=unit.name, call=1)
        self._put(first, build("Where", unit, (attended, first, second)))
        if unit.calls[0].kwargs.get(_SCORES):
            scores = Reference(layer=unit.name, output=1)
            none = build("ZerosLike", unit, (scores,))
            alike = (
                none if given == ZEROS else build("Softmax", unit, (none,), f"{MODULES}nn", axis=-1)
            )
            heads = build("ExpandDims", unit, (attended,), axis=1)
            self._put(scores, build("Where", unit, (heads, scores, alike)))
            self.names.add(none.layer)

    def _put(self, output: Reference, selected: Reference) -> None:
        self.selected[output] = selected
        self.names.add(selected.layer)


def _rank(unit: Unit) -> int | None:
    """Return how many axes the query of an attention has; None where its file does not say it."""
    build = unit.build or {}
    known = build.get("shapes_dict")
    shapes = {**build, **(known if isinstance(known, dict) else {}), **unit.config}
    shape = shapes.get("query_shape")
    return len(shape) if isinstance(shape, list | tuple) else None
