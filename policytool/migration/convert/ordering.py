"""
The order of layers in a loaded model, in which releases assign weights to layers.

A functional model does not keep the order of its config. It computes ``layers`` from its graph: by
decreasing depth, which is the longest path from a layer to the outputs, and within a depth in the
order of a traversal back from the outputs (``_map_graph_network`` in keras/engine/functional.py of
Keras 2, network.py before TF 2.3, ``map_graph`` in keras/src/ops/function.py of Keras 3). HDF5
groups, the counts of ``.keras`` archives and the variables of nested models use this order. If the
order differs, layers with the same shapes swap their weights.

Keras 3 adds operations between the calls of a graph, which makes paths longer and so changes the
order of layers. A mask that a layer gets from its input is an argument of the call, computed by ops
from the input of the Embedding or Masking that creates it (``Layer.__call__`` and
``compute_mask``). A tensor of another float dtype than the layer's passes through a ``Cast``.
Measured with models of TF 2.15: Keras 3.0 and 3.3 change a tensor's dtype without an op, 3.6 has
the op in the graph, 3.10 and later record the call before the cast, with the mask only if the layer
got a single tensor, not in a list, of its dtype. The result of a cast has no mask before 3.14
(``maybe_convert`` in keras/src/layers/layer.py).
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import Struct, field

from policytool.migration.convert.architecture import (
    Role,
    Unit,
    call_graph,
    connect_calls,
    map_networks,
    named_arguments,
)
from policytool.migration.convert.masks import (
    PLACES,
    input_tensors,
    rule_of,
    symbolic_mask,
)
from policytool.migration.convert.tensor_facts import (
    TensorDtypes,
    compute_dtype,
    entry_dtypes,
    is_cast,
    network_dtypes,
)
from policytool.model.calls import Reference, tensors
from policytool.model.flow import Node, follow, inbound
from policytool.model.tree import INPUT_CLASS
from policytool.releases.behaviour import CASTS_LOSE_MASKS
from policytool.releases.dtypes import is_float
from policytool.releases.layer_classes import Category, layer_facts
from policytool.releases.releases import KERAS3, is_since, releases_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from policytool.migration.convert.architecture import Network
    from policytool.migration.convert.target import Target
    from policytool.model.calls import Call
    from policytool.model.flow import CallGraph, Node, TensorValues


class Edge(NamedTuple):
    """An edge from a call or a mask to the call or mask that it depends on."""

    node: Node
    ops: int
    """The number of ops between the two."""

    is_mask: bool = False
    """Whether the edge leads to the mask of the call's output instead of the output."""


class ImplicitEdges(Struct, frozen=True, kw_only=True):
    """
    The edges that a release adds between the calls of a network. Masks refer to the masks they are
    computed from, because a list of their first calls would double at each layer that merges two.
    """

    calls: Mapping[Node, Sequence[Edge]] = field(default_factory=lambda: MappingProxyType({}))
    """The inputs of each call in addition to its arguments."""

    masks: Mapping[Node, Sequence[Edge]] = field(default_factory=lambda: MappingProxyType({}))
    """The inputs of the mask of each call whose output has a mask."""


_OP_SINCE: Final = "keras3.5"
_NOTED_BEFORE: Final = "keras3.10"
_ZEROS_SINCE: Final = "keras3.12"
"""
The first release whose Concatenate broadcasts a mask with zeros like its input (``compute_mask`` in
keras/src/layers/merging/concatenate.py); earlier releases use only the shape of the input.
"""


def edge_rules(release: str) -> tuple[bool, ...]:
    """Return the rules by which Keras 3 adds edges; releases with equal rules have equal orders."""
    thresholds = (_OP_SINCE, _NOTED_BEFORE, _ZEROS_SINCE)
    return (
        *(is_since(release, threshold) for threshold in thresholds),
        release in CASTS_LOSE_MASKS,
    )


def implicit_edges(network: Network, target: Target) -> ImplicitEdges:
    """Return the edges that a Keras 3 release adds to a functional network."""
    return _Reading(network=network, target=target).edges()


_Mask = list[Edge] | None
"""The inputs of the mask of a call's output; None for an output without a mask."""


class _Reading(Struct, frozen=True, kw_only=True):
    """The traversal of a network from its inputs to its outputs."""

    network: Network
    target: Target

    @property
    def dtypes(self) -> TensorDtypes:
        """The dtypes of the network's tensors."""
        return network_dtypes(self.network)

    def edges(self) -> ImplicitEdges:
        """Return the inputs of each call in addition to its arguments, and those of the masks."""
        calls: dict[Node, Sequence[Edge]] = {}
        masks: dict[Node, Sequence[Edge]] = {}

        def transfer(node: Node, call: Call | None, known: TensorValues[_Mask]) -> Sequence[_Mask]:
            if call is None:
                return (None,)
            unit = self.network.unit(node[0])
            calls[node] = self._inputs(unit, call, known)
            mask = self._mask(unit, call, known)
            if mask is not None:
                masks[node] = mask
            return (mask,)

        follow(call_graph(self.network), transfer, walk="symbolic masks")
        return ImplicitEdges(calls=calls, masks=masks)

    def _nodes(self, references: Iterable[Reference]) -> list[tuple[Reference, Node]]:
        """Return the tensors of this network, with the calls that produce them."""
        graph = call_graph(self.network)
        nodes = ((reference, graph.node(reference)) for reference in references)
        return [(reference, node) for reference, node in nodes if node is not None]

    def _inputs(self, unit: Unit, call: Call, masks: TensorValues[_Mask]) -> list[Edge]:
        """
        Return the edges to a call that Keras 3 adds: casts of its inputs, and the computation of
        their masks.
        """
        input_nodes = self._nodes(inbound(call))
        parents = [node for _, node in input_nodes]
        cast = [node for tensor, node in input_nodes if self._is_cast(unit, tensor)]
        has_ops = self._since(_OP_SINCE)
        entering = [
            node for tensor, node in input_nodes if has_ops and self._is_cast_inside(unit, tensor)
        ]
        edges: list[Edge] = []
        if has_ops and not self._since(_NOTED_BEFORE):
            edges += [Edge(parent, 1) for parent in (*cast, *entering)]
        if (
            not entering
            and (_has_single_mask_argument(unit) or unit.role is Role.MODEL)
            and len(parents) == len(list(tensors(call.args[:1])))
            and "mask" not in call.kwargs
        ):
            is_uncast = (
                len(call.args) == 1
                and isinstance(call.args[0], Reference)
                and not call.kwargs
                and not cast
            )
            if is_uncast or not self._since(_NOTED_BEFORE):
                kept = [node for node in parents if not (self._loses_masks and node in cast)]
                edges += [_mask_edge(parent) for parent in _masked(kept, masks)]
        return edges

    def _is_cast(self, unit: Unit, tensor: Reference) -> bool:
        """Return whether a layer casts an input tensor to its compute dtype."""
        if (
            unit.role is not Role.LAYER
            or unit.class_name == INPUT_CLASS
            or KERAS3 in layer_facts(unit.class_name).without_autocast
        ):
            return False
        before = self.network.by_name.get(tensor.layer)
        if before is not None and layer_facts(before.class_name).built_as_floats:
            return is_cast(unit, compute_dtype(before))
        return is_cast(unit, self.dtypes.of(tensor))

    def _is_cast_inside(self, unit: Unit, tensor: Reference) -> bool:
        """
        Return whether a chain casts a tensor to the dtype of its input layer. The cast is in the
        outer graph, and loses the mask since Keras 3.5; a nested functional model casts inside.
        """
        if unit.role is not Role.MODEL or unit.network is None or not unit.network.is_chain:
            return False
        before, after = self.dtypes.of(tensor), entry_dtypes(unit.network)[0]
        return before != after and is_float(before) and is_float(after)

    def _mask(self, unit: Unit, call: Call, masks: TensorValues[_Mask]) -> _Mask:
        """Return the inputs of the mask of a call's output."""
        arguments = named_arguments(unit, call)
        input_nodes = self._nodes(input_tensors(unit, arguments))
        if not input_nodes or unit.role is not Role.LAYER:
            return None
        has_ops = self._since(_OP_SINCE)
        casts = {node: int(has_ops and self._is_cast(unit, tensor)) for tensor, node in input_nodes}
        parents = [parent for _, parent in input_nodes]
        facts = layer_facts(unit.class_name)
        if facts.masks_values(unit.config):
            first = parents[0]
            return [Edge(first, 2 + casts[first] if facts.makes_mask == "always" else 1)]
        kept = [node for node in parents if not (self._loses_masks and casts[node])]
        masked = _masked(kept, masks)
        if not masked:
            return None
        rule = rule_of(unit, arguments, len(parents), self.target.release)
        word = symbolic_mask(rule, [parent if parent in masked else None for parent in parents])
        if facts.moves == "joined" and word != "none":
            return self._joined_masks(casts, masked)
        if word == "or":
            return [
                _mask_edge(parent, len(parents) - max(place, 1))
                for place, parent in enumerate(parents)
            ]
        is_copied = facts.category is Category.ATTENTION and facts.takes_mask
        return [_mask_edge(parents[PLACES.index(word)], int(is_copied))] if word in PLACES else None

    def _joined_masks(self, casts: Mapping[Node, int], masked: Sequence[Node]) -> _Mask:
        """
        Return the inputs of joined masks.

        :param casts: the number of casts before each input
        """
        edges = [_mask_edge(parent, 4) for parent in masked]
        edges += [Edge(node, 3 + cast) for node, cast in casts.items() if node not in masked]
        if self._since(_ZEROS_SINCE):
            edges += [Edge(node, 4 + casts[node]) for node in masked]
        return edges

    @property
    def _loses_masks(self) -> bool:
        """Whether tensors that a layer casts lose their masks."""
        return self.target.release in CASTS_LOSE_MASKS

    def _since(self, release: str) -> bool:
        """Return whether the release that will run the network is ``release`` or later."""
        return is_since(self.target.release, release)


def _mask_edge(node: Node, ops: int = 0) -> Edge:
    """Return an edge to the mask of a call's output."""
    return Edge(node, ops, is_mask=True)


def _masked(nodes: Iterable[Node], masks: TensorValues[_Mask]) -> list[Node]:
    """Return the calls whose output has a mask."""
    return [(name, call) for name, call in nodes if masks.of(Reference(layer=name, call=call))]


def _has_single_mask_argument(unit: Unit) -> bool:
    """Return whether the call of a layer has an argument for the mask of its single input."""
    facts = layer_facts(unit.class_name)
    return facts.takes_mask and facts.category is not Category.ATTENTION


_NOT_MET: Final = -1
_AS_GIVEN: Final = releases_in("after tf2.15")
"""The releases that do not sort keyword arguments."""

_NONE: Final = ImplicitEdges()


def order_layers(root: Unit, target: Target) -> Unit:
    """
    Return a model with its units, and those of all nested functional models, in the order of the
    target.
    """
    by_name = target.loader not in _AS_GIVEN

    def change(network: Network) -> Network:
        edges = implicit_edges(network, target) if target.is_keras3 else _NONE
        return replace(network, units=order(network, edges, by_name=by_name))

    return map_networks(root, lambda network: network if network.is_chain else change(network))


def order(
    network: Network, implicit: ImplicitEdges = _NONE, *, by_name: bool = True
) -> tuple[Unit, ...]:
    """
    Return the units of a functional network in the order of the loaded model's ``layers``.

    Inputs that lead to no output come first among the units of depth 0. Other units that lead to no
    output come last, in their own order: Keras 2 appends them (``connect_ancillary_layers``) and
    Keras 3 drops them, so they do not affect the positions of the others.

    :param implicit: the edges that the loading release adds between calls
    :param by_name: whether a call's keyword arguments are sorted
    """
    graph = connect_calls(network, by_name=by_name)
    finished, first_visits = graph.walk()
    depths = _depths(graph, finished, implicit)[1]
    names = [
        name
        for name in dict.fromkeys(reference.layer for reference in tensors(network.inputs))
        if name not in depths and name in network.by_name
    ]
    for name in names:
        depths[name], first_visits[name] = 0, _NOT_MET
    ordered_names = sorted(
        depths, key=lambda name: (-depths[name], first_visits[name])
    )  # stable, as Keras' own sorting is
    return (
        *(network.unit(name) for name in ordered_names),
        *(unit for unit in network.units if unit.name not in depths),
    )


def calls_in_order(network: Network) -> list[Node]:
    """Return the calls of a functional network in the order in which Keras 3 runs them."""
    graph = call_graph(network)
    depths = _depths(graph, graph.walk()[0], _NONE)[0]
    return sorted(depths, key=lambda node: -depths[node])


def _depths(
    graph: CallGraph, finished: Sequence[Node], implicit: ImplicitEdges
) -> tuple[dict[Node, int], dict[str, int]]:
    """Return the depth of each call, and of each unit, that leads to an output."""
    nodes: dict[Node, int] = {}
    units: dict[str, int] = {}
    masks: dict[Node, int] = {}

    def push_down(edges: Sequence[Edge], depth: int) -> None:
        for parent, ops, is_mask in edges:
            depths = masks if is_mask else nodes
            depths[parent] = max(depth + ops, depths.get(parent, 0))

    for node in reversed(finished):
        depth = max(
            nodes.setdefault(node, 0), units.get(node[0], 0)
        )  # all later calls of a layer have at least the depth of the layer
        nodes[node] = units[node[0]] = depth
        for parent in graph.parents(node):
            nodes[parent] = max(depth + 1, nodes.get(parent, 0))
        push_down(implicit.calls.get(node, ()), depth + 1)
        if node in masks:  # all users of the mask, as of the call's output, were visited before
            push_down(implicit.masks[node], masks[node])
    return nodes, units
