"""
What Keras 3 puts between the calls of a graph by itself, which makes the way through it longer and
thereby changes the order of its layers.

A mask that a layer takes from its input is an argument of the call, made by ops from the input of
the Embedding or Masking that it began with (``Layer.__call__`` and ``compute_mask``); a tensor of
another float dtype than the layer's goes through a ``Cast``. Measured with models of TF 2.15: Keras
3.0 and 3.3 change a tensor's dtype without an op, 3.6 has the op in the graph, 3.10 and later note
the call as it was before the cast, with the mask only where the layer took one bare tensor of its
own dtype.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from policytool.migration.convert.architecture import Role, Unit
from policytool.migration.convert.tensor_dtypes import (
    TensorDtypes,
    compute_dtype,
    entry_dtypes,
    is_cast,
    of_network,
)
from policytool.migration.convert.traversal import call_graph
from policytool.model.calls import Reference, tensors
from policytool.model.flow import CallGraph, Node, inbound
from policytool.model.tree import INPUT_CLASS
from policytool.releases.dtypes import is_float
from policytool.releases.layer_classes import Category, layer_facts
from policytool.releases.releases import KERAS3

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from policytool.migration.convert.architecture import Network
    from policytool.migration.convert.target import Target
    from policytool.model.calls import Call


class Edge(NamedTuple):
    """What a call, or a mask, is made of."""

    node: Node
    ops: int
    """How many ops are between the two."""

    is_mask: bool = False
    """Whether it is the mask of the call's output instead of the output."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ImplicitEdges:
    """
    What a release puts between the calls of a network; masks refer to those that they are made of,
    because a list of where each begins would double at each layer that merges two.
    """

    calls: Mapping[Node, Sequence[Edge]] = field(default_factory=lambda: MappingProxyType({}))
    """By a call, what it takes beyond what its arguments say."""

    masks: Mapping[Node, Sequence[Edge]] = field(default_factory=lambda: MappingProxyType({}))
    """By a call whose output has a mask, what that is made of."""


_OP_SINCE: Final = "keras3.6"
_NOTED_BEFORE: Final = "keras3.10"
_OR_SINCE: Final = "keras3.6"
_BROADCAST_AFTER: Final = "keras3.6"


_OF_POLICY: Final = "Discretization"
"""The layer whose integers Keras 3.0 to 3.10 take for numbers of its policy while they build."""


def implicit_edges(network: Network, target: Target) -> ImplicitEdges:
    """Return what a release of Keras 3 adds to a functional network."""
    return _Reading(network=network, target=target).edges()


@dataclass
class _Reading:
    """One network, read from its inputs to its outputs."""

    network: Network
    target: Target
    masks: dict[Node, list[Edge]] = field(default_factory=dict)
    """By a call whose output has a mask: what that is made of."""

    @property
    def dtypes(self) -> TensorDtypes:
        """The dtypes of the network's tensors."""
        return of_network(self.network)

    def edges(self) -> ImplicitEdges:
        """Return what each call takes beyond its arguments."""
        graph = call_graph(self.network)
        found: dict[Node, Sequence[Edge]] = {}
        for node in graph.walk()[0]:
            unit = self.network.unit(node[0])
            if unit.calls:
                call = unit.calls[node[1]]
                found[node] = self._inputs(unit, call, graph)
                self._mask(node, unit, call, graph)
        return ImplicitEdges(calls=found, masks=self.masks)

    def _inputs(self, unit: Unit, call: Call, graph: CallGraph) -> list[Edge]:
        taken = [
            (tensor, node) for tensor in inbound(call) if (node := graph.node(tensor)) is not None
        ]
        parents = [node for _, node in taken]
        cast = [node for tensor, node in taken if self._is_cast(unit, tensor)]
        has_ops = self.target.since(_OP_SINCE)
        entering = [
            node for tensor, node in taken if has_ops and self._is_cast_inside(unit, tensor)
        ]
        found: list[Edge] = []
        if has_ops and not self.target.since(_NOTED_BEFORE):
            found += [Edge(parent, 1) for parent in (*cast, *entering)]
        if (
            not entering
            and (_takes_one_mask(unit) or unit.role is Role.MODEL)
            and len(parents) == len(list(tensors(call.args[:1])))
            and "mask" not in call.kwargs
        ):
            bare = (
                len(call.args) == 1
                and isinstance(call.args[0], Reference)
                and not call.kwargs
                and not cast
            )
            if bare or not self.target.since(_NOTED_BEFORE):
                found += [self._edge(parent) for parent in parents if parent in self.masks]
        return found

    def _edge(self, node: Node, ops: int = 0) -> Edge:
        """Return the way to the mask of a call's output."""
        return Edge(node, ops, is_mask=True)

    def _is_cast(self, unit: Unit, tensor: Reference) -> bool:
        if (
            unit.role is not Role.LAYER
            or unit.class_name == INPUT_CLASS
            or KERAS3 in layer_facts(unit.class_name).without_autocast
        ):
            return False
        before = self.network.by_name.get(tensor.layer)
        if before is not None and before.class_name == _OF_POLICY:
            return is_cast(unit, compute_dtype(before))
        return is_cast(unit, self.dtypes.of(tensor))

    def _is_cast_inside(self, unit: Unit, tensor: Reference) -> bool:
        """
        Return whether a chain casts a tensor to what its input layer says, which is done in the
        graph around it, and without its mask since Keras 3.5; a nested functional model casts
        within.
        """
        if unit.role is not Role.MODEL or unit.network is None or not unit.network.is_chain:
            return False
        before, after = self.dtypes.of(tensor), entry_dtypes(unit.network)[0]
        return before != after and is_float(before) and is_float(after)

    def _mask(self, node: Node, unit: Unit, call: Call, graph: CallGraph) -> None:
        taken = [
            (tensor, parent)
            for tensor in tensors(call.args[:1])
            if (parent := graph.node(tensor)) is not None
        ]
        if not taken:
            return
        parents = [parent for _, parent in taken]
        cast = int(self.target.since(_OP_SINCE) and self._is_cast(unit, taken[0][0]))
        facts = layer_facts(unit.class_name)
        if facts.masks_values(unit.config):
            ops = 2 + cast if facts.makes_mask == "always" else 1
            self.masks[node] = [Edge(parents[0], ops)]
        elif facts.symbolic_mask == "merged":
            self._merge_masks(node, parents)
        elif facts.symbolic_mask == "joined":
            self._concatenate_masks(node, parents)
        elif parents[0] in self.masks and facts.symbolic_mask == "converted":
            self.masks[node] = [self._edge(parents[0], 1)]
        elif parents[0] in self.masks and (
            facts.symbolic_mask == "kept" or (facts.takes_states and _returns_sequences(unit))
        ):
            self.masks[node] = [self._edge(parents[0])]

    def _merge_masks(self, node: Node, parents: Sequence[Node]) -> None:
        masked = [parent for parent in parents if parent in self.masks]
        if self.target.since(_OR_SINCE):
            if len(masked) == len(parents):
                self.masks[node] = [
                    self._edge(parent, len(parents) - max(place, 1))
                    for place, parent in enumerate(parents)
                ]
        elif masked:
            self.masks[node] = [self._edge(parent, 3) for parent in masked]

    def _concatenate_masks(self, node: Node, parents: Sequence[Node]) -> None:
        masked = [parent for parent in parents if parent in self.masks]
        if not masked:
            return
        is_broadcast = self.target.after(_BROADCAST_AFTER)
        found = [self._edge(parent, 4 if is_broadcast else 3) for parent in masked]
        found += [Edge(parent, 3) for parent in parents if parent not in self.masks]
        if is_broadcast:
            found += [Edge(parent, 4) for parent in masked]
        self.masks[node] = found


def _takes_one_mask(unit: Unit) -> bool:
    """Return whether the call of a layer has an argument for the mask of its only input."""
    facts = layer_facts(unit.class_name)
    return facts.takes_mask and facts.category is not Category.ATTENTION


def _returns_sequences(unit: Unit) -> bool:
    """Return whether a recurrent layer gives all steps; a Bidirectional says it of its layer."""
    layer = unit.config.get("layer")
    config = layer.config if isinstance(layer, Unit) else unit.config
    return config.get("return_sequences") is True
