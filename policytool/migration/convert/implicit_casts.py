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

from policytool.migration.convert._walking import CallGraph, Node, inbound
from policytool.migration.convert.architecture import Role, Unit
from policytool.model.calls import Dtype, Reference, tensors
from policytool.model.tree import INPUT_CLASS
from policytool.releases import dtypes
from policytool.releases.layer_classes import Category, layer_facts
from policytool.releases.policy import Policy
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

    outputs: dict[int, tuple[Network, str | None]] = field(default_factory=dict)
    """By the identity of a nested network, the network and the dtype that it gives."""

    floats: dict[Node, str] = field(default_factory=dict)
    """By a call, the dtype of its outputs where that is a float."""

    def edges(self) -> ImplicitEdges:
        """Return what each call takes beyond its arguments."""
        graph = CallGraph(self.network)
        found: dict[Node, Sequence[Edge]] = {}
        for node in graph.walk()[0]:
            unit = graph.units[node[0]]
            if unit.calls:
                call = unit.calls[node[1]]
                found[node] = self._inputs(unit, call, graph)
                self._mask(node, unit, call, graph)
            self._dtype(node, unit, graph)
        return ImplicitEdges(calls=found, masks=self.masks)

    def _inputs(self, unit: Unit, call: Call, graph: CallGraph) -> list[Edge]:
        parents = [
            node for reference in inbound(call) if (node := graph.node(reference)) is not None
        ]
        cast = [parent for parent in parents if self._is_cast(unit, parent)]
        found = (
            [Edge(parent, 1) for parent in cast]
            if self.target.since(_OP_SINCE) and not self.target.since(_NOTED_BEFORE)
            else []
        )
        if (
            (_takes_one_mask(unit) or unit.role is Role.MODEL)
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

    def _is_cast(self, unit: Unit, parent: Node) -> bool:
        policy = unit.config.get("dtype")
        if (
            unit.role is not Role.LAYER
            or unit.class_name == INPUT_CLASS
            or KERAS3 in layer_facts(unit.class_name).without_autocast
            or not isinstance(policy, Policy)
            or policy.compute_dtype is None
        ):
            return False
        return parent in self.floats and self.floats[parent] != policy.compute_dtype

    def _dtype(self, node: Node, unit: Unit, graph: CallGraph) -> None:
        policy = unit.config.get("dtype")
        found: object = policy.compute_dtype if isinstance(policy, Policy) else policy or "float32"
        if unit.role is Role.OPERATION:
            call = unit.calls[node[1]] if unit.calls else None
            taken = [self.floats[parent] for parent in graph.parents(node) if parent in self.floats]
            to = (
                next(
                    (
                        item
                        for item in (*call.args[1:], *call.kwargs.values())
                        if isinstance(item, str | Dtype)
                    ),
                    None,
                )
                if call is not None
                else None
            )
            cast = to.name if isinstance(to, Dtype) else to
            found = (
                cast
                if unit.class_name == "Cast"
                else "float32"
                if len(set(taken)) > 1
                else next(iter(taken), None)
            )
        elif unit.role is Role.MODEL and unit.network is not None:
            found = _output_dtype(unit, self.target, self.outputs)
        if isinstance(found, str) and dtypes.is_float(found):
            self.floats[node] = found

    def _mask(self, node: Node, unit: Unit, call: Call, graph: CallGraph) -> None:
        parents = [
            parent
            for reference in tensors(call.args[:1])
            if (parent := graph.node(reference)) is not None
        ]
        if not parents:
            return
        cast = int(self.target.since(_OP_SINCE) and self._is_cast(unit, parents[0]))
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


def _output_dtype(
    unit: Unit, target: Target, known: dict[int, tuple[Network, str | None]]
) -> str | None:
    """Return the dtype that a nested model gives, where that is one float; adds to ``known``."""
    network = unit.network
    if network is None or not network.units:
        return None
    if id(network) in known:
        return known[id(network)][1]
    if network.is_chain:
        last = network.units[-1]
        policy = last.config.get("dtype")
        dtype = (
            _output_dtype(last, target, known)
            if last.role is Role.MODEL
            else policy.compute_dtype
            if isinstance(policy, Policy)
            else None
        )
    else:
        reading = _Reading(network=network, target=target, outputs=known)
        reading.edges()
        graph = CallGraph(network)
        found = {
            reading.floats.get(node)
            for reference in tensors(network.outputs)
            if (node := graph.node(reference)) is not None
        }
        dtype = found.pop() if len(found) == 1 else None
    known[id(network)] = network, dtype
    return dtype
