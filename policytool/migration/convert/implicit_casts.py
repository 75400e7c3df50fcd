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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from policytool.migration.convert._walking import CallGraph, Node, inbound, tensors
from policytool.migration.convert.architecture import Dtype, Reference, Role, Unit
from policytool.releases import dtypes
from policytool.releases.policy import Policy

if TYPE_CHECKING:
    from policytool.migration.convert.architecture import Call, Network
    from policytool.migration.convert.target import Target

Edges = Mapping[Node, Sequence[tuple[Node, int]]]
"""
By a call, those that it takes something from beyond what its arguments say, and how many ops are
between the two.
"""

_OP_SINCE: Final = "keras3.6"
_NOTED_BEFORE: Final = "keras3.10"
_OR_SINCE: Final = "keras3.6"
_BROADCAST_AFTER: Final = "keras3.6"
_RECURRENT: Final = frozenset(
    {"RNN", "LSTM", "GRU", "SimpleRNN", "ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D", "Bidirectional"}
)
_TAKES: Final = _RECURRENT | {
    "TimeDistributed",
    "BatchNormalization",
    "Softmax",
    "GlobalAveragePooling1D",
    "Lambda",
}
"""Layers whose call has ``mask``."""

_MERGES: Final = frozenset({"Add", "Average", "Maximum", "Minimum", "Multiply", "Subtract"})
_PASSES: Final = frozenset(
    {
        "Activation",
        "ActivityRegularization",
        "AlphaDropout",
        "BatchNormalization",
        "Dense",
        "Dropout",
        "ELU",
        "GaussianDropout",
        "GaussianNoise",
    }
    | {
        "GroupNormalization",
        "Identity",
        "LayerNormalization",
        "LeakyReLU",
        "PReLU",
        "ReLU",
        "Rescaling",
        "Softmax",
        "TimeDistributed",
    }
    | {"UnitNormalization", "MultiHeadAttention", "GroupedQueryAttention", "Normalization"}
    | {"SpatialDropout1D", "SpatialDropout2D", "SpatialDropout3D", "SpectralNormalization"}
)
_CONVERTS: Final = frozenset({"Attention", "AdditiveAttention"})
"""Layers that hand on the mask of their query by an op (``Attention.compute_mask``)."""

_KEEPS_DTYPE: Final = frozenset(
    {"Embedding", "LayerNormalization", "GroupNormalization", "InputLayer"}
)
"""Layers that take tensors in whatever dtype they have (``autocast``)."""


def implicit_edges(network: Network, target: Target) -> Edges:
    """Return what a release of Keras 3 adds to a functional network."""
    return _Reading(network=network, target=target).edges()


@dataclass
class _Reading:
    """One network, read from its inputs to its outputs."""

    network: Network
    target: Target
    masks: dict[Node, list[tuple[Node, int]]] = field(default_factory=dict)
    """
    By a call whose output has a mask: the calls that the mask begins with, each with the ops up to
    the mask.
    """

    floats: dict[Node, str] = field(default_factory=dict)
    """By a call, the dtype of its outputs where that is a float."""

    def edges(self) -> Edges:
        """Return what each call takes beyond its arguments."""
        graph = CallGraph(self.network)
        found: dict[Node, Sequence[tuple[Node, int]]] = {}
        for node in graph.walk()[0]:
            unit = graph.units[node[0]]
            if unit.calls:
                call = unit.calls[node[1]]
                found[node] = self._inputs(unit, call, graph)
                self._mask(node, unit, call, graph)
            self._dtype(node, unit, graph)
        return found

    def _inputs(self, unit: Unit, call: Call, graph: CallGraph) -> list[tuple[Node, int]]:
        parents = [
            node for reference in inbound(call) if (node := graph.node(reference)) is not None
        ]
        cast = [parent for parent in parents if self._is_cast(unit, parent)]
        found = (
            [(parent, 1) for parent in cast]
            if self.target.since(_OP_SINCE) and not self.target.since(_NOTED_BEFORE)
            else []
        )
        if (
            (unit.class_name in _TAKES or unit.role is Role.MODEL)
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
                found += [edge for parent in parents for edge in self.masks.get(parent, ())]
        return found

    def _is_cast(self, unit: Unit, parent: Node) -> bool:
        policy = unit.config.get("dtype")
        if (
            unit.role is not Role.LAYER
            or unit.class_name in _KEEPS_DTYPE
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
            found = _output_dtype(unit, self.target)
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
        if unit.class_name == "Embedding" and unit.config.get("mask_zero") is True:
            self.masks[node] = [(parents[0], 1)]
        elif unit.class_name == "Masking":
            self.masks[node] = [(parents[0], 2 + cast)]
        elif unit.class_name in _MERGES:
            self._merge_masks(node, parents)
        elif unit.class_name == "Concatenate":
            self._concatenate_masks(node, parents)
        elif parents[0] in self.masks and unit.class_name in _CONVERTS:
            self.masks[node] = [(start, ops + 1) for start, ops in self.masks[parents[0]]]
        elif parents[0] in self.masks and (
            unit.class_name in _PASSES
            or (unit.class_name in _RECURRENT and _returns_sequences(unit))
        ):
            self.masks[node] = self.masks[parents[0]]

    def _merge_masks(self, node: Node, parents: Sequence[Node]) -> None:
        masks = [self.masks.get(parent) for parent in parents]
        if self.target.since(_OR_SINCE):
            if all(masks):
                count = len(masks)
                self.masks[node] = [
                    (start, ops + count - max(place, 1))
                    for place, mask in enumerate(masks)
                    for start, ops in mask or ()
                ]
        elif any(masks):
            self.masks[node] = [(start, ops + 3) for mask in masks for start, ops in mask or ()]

    def _concatenate_masks(self, node: Node, parents: Sequence[Node]) -> None:
        masks = [self.masks.get(parent) for parent in parents]
        if not any(masks):
            return
        more = 4 if self.target.after(_BROADCAST_AFTER) else 3
        found = [(start, ops + more) for mask in masks for start, ops in mask or ()]
        found += [(parent, 3) for parent, mask in zip(parents, masks, strict=True) if mask is None]
        if self.target.after(_BROADCAST_AFTER):
            found += [
                (parent, 4) for parent, mask in zip(parents, masks, strict=True) if mask is not None
            ]
        self.masks[node] = found


def _returns_sequences(unit: Unit) -> bool:
    """Return whether a recurrent layer gives all steps; a Bidirectional says it of its layer."""
    layer = unit.config.get("layer")
    config = layer.config if isinstance(layer, Unit) else unit.config
    return config.get("return_sequences") is True


def _output_dtype(unit: Unit, target: Target) -> str | None:
    """Return the dtype that a nested model gives, where that is one float."""
    network = unit.network
    if network is None or not network.units:
        return None
    if network.is_chain:
        last = network.units[-1]
        policy = last.config.get("dtype")
        return (
            _output_dtype(last, target)
            if last.role is Role.MODEL
            else policy.compute_dtype
            if isinstance(policy, Policy)
            else None
        )
    reading = _Reading(network=network, target=target)
    reading.edges()
    found = {
        reading.floats.get(node)
        for reference in tensors(network.outputs)
        if (node := CallGraph(network).node(reference)) is not None
    }
    return found.pop() if len(found) == 1 else None
