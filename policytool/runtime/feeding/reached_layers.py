"""
What the graph of a functional model says about its inputs and outputs: which layers the inputs
reach unchanged, the mean and the variance of an input's values from the layers that learnt them,
and the activation that each output ends with.

A value that is reshaped, cast or joined with others is still what was fed; one that a layer
computed is not. The nodes of both Keras generations are gone through, with those of nested models,
of Sequentials, and of the model or layer that a TimeDistributed holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..facts import base_names, category, class_facts, facts, passes_values
from ..library import paths
from .slots import (
    NOTHING,
    call_arguments,
    elements_after,
    elements_of_input,
    functional_graph,
    open_as_one,
)

if TYPE_CHECKING:
    from typing import Any, Mapping, Sequence

    from ..library import Library

    Flow = Mapping[int, "PassedValues"]
    """The change of the values of each input, by its position."""
    from .slots import Slot


WHOLE, PART, CHANGED = 0, 1, 2
"""
How far the values that reach a layer differ from the input's, from least to most: all of them
unchanged; some of them, unchanged; or values near them, after an offset or a custom layer.
"""

SHAPING_OPS = frozenset(
    {
        *("cast", "reshape", "concat", "concatv2", "concatenate", "expanddims", "squeeze"),
        *("identity", "transpose", "stack", "pack", "flatten", "ravel", "tile", "broadcastto"),
        *("repeat", "copy", "converttotensor", "saturatecast", "stopgradient", "moveaxis"),
        *("swapaxes", "toint32", "toint64"),
    }
)
CUTTING_OPS = frozenset(
    {"getitem", "stridedslice", "slice", "split", "splitv", "unstack", "unpack"}
)
CHANGING_OPS = frozenset(
    {
        *("add", "addv2", "sub", "subtract", "mul", "multiply", "maximum", "minimum", "clip"),
        *("clipbyvalue", "where", "selectv2", "abs", "round", "floor", "mod", "floormod"),
        *("floordiv", "floordivide", "logicaland", "logicalnot", "logicalor"),
    }
)
_MASK = "mask"
"""The part of argument names for masks: ``mask``, ``attention_mask``."""


class PassedValues(NamedTuple):
    """What happens to the values of an input before they reach a layer."""

    change: int
    """WHOLE, PART or CHANGED."""

    scale: float = 1.0
    offset: float = 0.0
    """The factor and the offset of Rescaling layers."""

    elements: Any = None
    """The places of the values (:mod:`.slots`); None if they are unknown."""

    @property
    def scaling(self) -> tuple[float, float]:
        """The factor and the offset of Rescaling layers."""
        return self.scale, self.offset

    @property
    def is_scaled(self) -> bool:
        """Whether Rescaling layers change the values."""
        return self.scaling != (1.0, 0.0)


class ReachedLayer:
    """A layer that values of an input reach."""

    def __init__(
        self,
        layer: Any,
        change: int,
        count: int | None,
        scaling: tuple[float, float] = (1.0, 0.0),
        *,
        is_mask: bool = False,
        elements: Any = None,
    ) -> None:
        self.layer = layer
        self.change = change
        self.count = count
        """The number of ids that the layer accepts; None if it accepts none."""

        self.scaling = scaling
        """The factor and the offset of Rescaling layers before it."""

        self.is_mask = is_mask
        """Whether the values are the layer's mask."""

        self.elements = elements
        """The places of the values in the layer's input (:mod:`.slots`); None if unknown."""


def takes_ids(layer: Any) -> bool:
    """
    Return whether a layer looks up ids: its class accepts a number of ids, or it is a lookup that
    maps ids to words.
    """
    return "id_count" in facts(layer) or _is_inverted(layer)


def is_operation(layer: Any) -> bool:
    """Return whether a node of a graph is an operation rather than a layer."""
    return bool(_symbol(layer))


def has_statistics(layer: Any) -> bool:
    """Return whether a layer stores statistics of the values that it expects."""
    return "statistics" in facts(layer) and not getattr(layer, "invert", False)


def count_ids(layer: Any) -> int | None:
    """
    Return the number of ids that a layer, or a layer within it, accepts; None if it accepts none.
    """
    counts: list[Any] = [len(layer.get_vocabulary())] if _is_inverted(layer) else []
    counts += [
        getattr(inner, facts(inner)["id_count"], None)
        for _, inner in paths(layer)
        if "id_count" in facts(inner)
    ]
    return min((count for count in counts if isinstance(count, int) and count > 0), default=None)


def _is_inverted(layer: Any) -> bool:
    """Return whether a lookup layer maps ids to words."""
    return category(layer) == "lookup" and bool(getattr(layer, "invert", False))


def layers_reached(library: Library, model: Any) -> list[list[ReachedLayer]] | None:
    """
    Return the layers that each input reaches, in the order of the model's inputs; None for a model
    without a graph of its calls.
    """
    functional = functional_graph(model)
    if functional is None:
        return None
    walk = _Walk(library, len(functional.inputs))
    has_statistics_layer = any("statistics" in facts(layer) for _, layer in paths(model))
    elements = [
        elements_of_input(tensor.shape) if has_statistics_layer else None
        for tensor in functional.inputs
    ]
    walk.through(
        functional,
        [
            {place: PassedValues(WHOLE, elements=input_elements)}
            for place, input_elements in enumerate(elements)
        ],
    )
    return walk.reached


class _Walk:
    def __init__(self, library: Library, count: int) -> None:
        self.reached: list[list[ReachedLayer]] = [[] for _ in range(count)]
        """The layers that each input reaches."""

        self.flatten = library.tf.nest.flatten

    def through(self, functional: Any, flows: Sequence[Flow]) -> list[Flow]:
        """Follow flows through a graph from its inputs; return the flows of its outputs."""
        flows_by_tensor = {id(tensor): flow for tensor, flow in zip(functional.inputs, flows)}
        for depth in sorted(functional._nodes_by_depth, reverse=True):  # noqa: SLF001  # the order in which both generations run their graphs
            for node in functional._nodes_by_depth[depth]:  # noqa: SLF001  # as above
                layer = _layer(node)
                if layer is None or category(layer) == "input":
                    continue
                tensors = self.flatten(node_inputs(node))
                call_inputs = [
                    _CallInput(flows_by_tensor.get(id(tensor), {}), tensor.shape)
                    for tensor in tensors
                ]
                outputs = self.flatten(_tensors(node, "outputs", "output_tensors"))
                for tensor in self.masking(node):
                    for position, passed in flows_by_tensor.get(id(tensor), {}).items():
                        self.reached[position].append(
                            ReachedLayer(layer, passed.change, None, is_mask=True)
                        )
                if any(call_input.flow for call_input in call_inputs):
                    output_flows = self.follow_layer(
                        layer, node, call_inputs, [tensor.shape for tensor in outputs]
                    )
                    flows_by_tensor.update(zip([id(tensor) for tensor in outputs], output_flows))
        return [flows_by_tensor.get(id(tensor), {}) for tensor in self.flatten(functional.outputs)]

    def masking(self, node: Any) -> list[Any]:
        """Return the tensors that a node passes to arguments that take masks."""
        return [
            tensor
            for name, value in call_arguments(node)[1].items()
            if _MASK in name
            for tensor in self.flatten(value)
            if tensor is not None
        ]

    def follow_layer(
        self, layer: Any, node: Any, call_inputs: Sequence[_CallInput], shapes: Sequence[Any]
    ) -> list[Flow]:
        """
        Record which inputs reach a layer, or the layers in it, and return the flows of its outputs.

        :param node: the call of the layer; None for the layer in a TimeDistributed layer
        :param shapes: the shapes of the layer's outputs
        """
        model = functional_graph(layer)
        if model is not None and len(model.inputs) == len(call_inputs):
            return self.through(model, [call_input.flow for call_input in call_inputs])
        if facts(layer).get("wraps") == "steps":
            without_places = [call_input.unfollowed() for call_input in call_inputs]
            return self.follow_layer(layer.layer, None, without_places, shapes)
        flow = _merge_flows([call_input.flow for call_input in call_inputs])
        symbol = _symbol(layer)
        self.record(layer, symbol, node, flow)
        return [
            _follow_places(_after(layer, symbol, flow), layer, (symbol, node), call_inputs, shape)
            for shape in shapes
        ]

    def record(self, layer: Any, symbol: str, node: Any, flow: Flow) -> None:
        """Record which inputs reach a layer or an operation."""
        count = _depth(layer, node) if symbol == "onehot" else None if symbol else count_ids(layer)
        is_inside = count is not None and not symbol and not takes_ids(layer)
        for position, passed in flow.items():
            if passed.is_scaled and (count is None or is_inside) and not has_statistics(layer):
                continue  # the layer gets other values than those of the input
            change = CHANGED if is_inside else passed.change
            self.reached[position].append(
                ReachedLayer(layer, change, count, passed.scaling, elements=passed.elements)
            )


class _CallInput(NamedTuple):
    """An input tensor of a node."""

    flow: Flow
    shape: Any

    def elements(self, position: int) -> Any:
        """Return the positions of an input's values in the tensor; None if they are unknown."""
        if position in self.flow:
            return self.flow[position].elements
        sizes = open_as_one(self.shape)
        return None if sizes is None else np.full(sizes, NOTHING)

    def unfollowed(self) -> _CallInput:
        """Return the same input without the places of its values."""
        return self._replace(
            flow={place: passed._replace(elements=None) for place, passed in self.flow.items()}
        )


def _follow_places(
    flow: Flow, layer: Any, call: tuple[str, Any], call_inputs: Sequence[_CallInput], shape: Any
) -> Flow:
    """
    Return a flow with the places of its values in one output of a layer.

    :param call: the operation that the layer is, and the node
    """
    return {
        place: passed
        if passed.elements is None
        else passed._replace(
            elements=elements_after(
                layer, call, [call_input.elements(place) for call_input in call_inputs], shape
            )
        )
        for place, passed in flow.items()
    }


def _after(layer: Any, symbol: str, flow: Flow) -> Flow:
    """Return the flow after a layer; empty if the layer computes other values."""
    if "scaling" in facts(layer):
        scale, offset = (
            np.asarray(getattr(layer, name), dtype="float64") for name in facts(layer)["scaling"]
        )
        if scale.size != 1 or offset.size != 1 or not scale.item():
            return {}
        return {
            position: passed._replace(
                scale=passed.scale * scale.item(),
                offset=passed.offset * scale.item() + offset.item(),
            )
            for position, passed in flow.items()
        }
    effect = _change_by(layer, symbol)
    return {
        position: passed._replace(change=max(passed.change, effect))
        for position, passed in flow.items()
        if effect is not None
    }


def _layer(node: Any) -> Any:
    layers = (getattr(node, name, None) for name in ("operation", "layer", "outbound_layer"))
    return next((layer for layer in layers if layer is not None), None)


def node_inputs(node: Any) -> Any:
    """Return the input tensors of a node of a graph, in both generations of Keras."""
    return _tensors(node, "keras_inputs", "input_tensors")


def _tensors(node: Any, name: str, older: str) -> Any:
    """Return the tensors of a node, whose attribute has another name in Keras 2."""
    tensors = getattr(node, name, None)
    return getattr(node, older) if tensors is None else tensors


def _merge_flows(flows: Sequence[Flow]) -> dict[int, PassedValues]:
    """
    Return the flow of a value that a layer computes from several values: for each input, the
    largest of the changes. Values that Rescaling layers scaled differently count as CHANGED.
    """
    merged: dict[int, PassedValues] = {}
    for flow in flows:
        for position, passed in flow.items():
            other = merged.get(position, passed)
            has_same_scaling = passed.scaling == other.scaling
            merged[position] = other._replace(
                change=max(passed.change, other.change) if has_same_scaling else CHANGED
            )
    return merged


def _change_by(layer: Any, symbol: str) -> int | None:
    """Return the kind of change by a layer to its values; None if it computes other values."""
    if passes_values(layer) or symbol in SHAPING_OPS:
        return WHOLE
    if facts(layer).get("cuts") or symbol in CUTTING_OPS:
        return PART
    return CHANGED if symbol in CHANGING_OPS or "Lambda" in base_names(layer) else None


def _symbol(layer: Any) -> str:
    """
    Return the name of the operation of a node, in lower case and without underscores; empty for a
    layer.
    """
    name = type(layer).__name__
    wrapped = class_facts(name).get("wrapped_op")
    if wrapped == "node_def":
        text = str(layer.node_def.op)
    elif wrapped == "function":
        text = str(layer.symbol)
    else:
        text = "" if hasattr(layer, "get_config") and hasattr(layer, "trainable") else name
    return text.rpartition(".")[2].replace("_", "").lower()


def _depth(layer: Any, node: Any) -> int | None:
    """Return the number of classes of a one-hot operation."""
    arguments, keyword_arguments = call_arguments(node)
    depth = getattr(
        layer,
        "num_classes",
        keyword_arguments.get("depth", arguments[1] if len(arguments) > 1 else None),
    )
    return depth if isinstance(depth, int) and depth > 0 else None


class Statistics(NamedTuple):
    """The statistics of an input, by element or in a shape that can be broadcast to it."""

    mean: Any
    spread: Any
    """The standard deviations."""

    names: tuple[str, ...]
    """The layers that have the statistics."""


def input_statistics(slot: Slot, reached: Sequence[ReachedLayer]) -> Statistics | None:
    """
    Return the statistics of an input; None if no layer that its values reach has any.

    Elements that reach no such layer have a mean of 0 and a variance of 1.
    """
    sizes = open_as_one(slot.shape)
    if sizes is None:
        return None
    known = np.zeros(sizes, dtype=bool)
    mean, deviations = np.zeros(sizes), np.ones(sizes)
    names = []
    learnt = ((layer, _input_statistics(slot, layer)) for layer in reached)
    for reached_layer, statistics in learnt:
        if statistics is None:
            continue
        own_mean, own_spread, elements = statistics
        is_present = elements.ravel() >= 0
        positions, sources = elements.ravel()[is_present], np.flatnonzero(is_present)
        new = ~known.flat[positions]
        if not new.any():
            continue
        mean.flat[positions[new]] = own_mean.flat[sources[new]]
        deviations.flat[positions[new]] = own_spread.flat[sources[new]]
        known.flat[positions] = True
        names.append(str(reached_layer.layer.name))
    return Statistics(mean, deviations, tuple(names)) if names else None


def _input_statistics(slot: Slot, reached: ReachedLayer) -> tuple[Any, Any, Any] | None:
    """
    Return the means and standard deviations of a layer's input values, converted to the model's
    input, and the input's element to which each belongs; None for a layer without statistics.
    """
    if not has_statistics(reached.layer):
        return None
    is_batch_layer = category(reached.layer) == "normalization"
    if is_batch_layer and reached.change == CHANGED:
        return None  # they describe values that an operation or a custom class computed
    elements = reached.elements
    if elements is None:
        sizes = open_as_one(slot.shape) or ()
        elements = np.arange(int(np.prod(sizes))).reshape(sizes)
    axis = _axis(reached, elements.shape) if is_batch_layer else None
    fitted = [
        _fit_statistics(_array(getattr(reached.layer, attribute, None)), elements.shape, axis)
        for attribute in facts(reached.layer)["statistics"]
    ]
    if any(array is None or not np.isfinite(array).all() for array in fitted):
        return None
    scale, offset = reached.scaling
    mean, variance = fitted
    return (mean - offset) / scale, np.sqrt(np.maximum(variance, 0)) / abs(scale), elements


def _array(value: Any) -> Any:
    """Return a constant or a variable as an array."""
    if value is None:
        return None
    return np.asarray(value.numpy() if hasattr(value, "numpy") else value).astype("float64")


def _axis(reached: ReachedLayer, sizes: Sequence[int]) -> int:
    """
    Return the axis of a BatchNormalization's features, counting the batch as the first. If the
    shape of the layer's input is unknown, as in a TimeDistributed, the last axis is assumed.
    """
    if reached.elements is None:
        return len(sizes)
    axis = (
        reached.layer.axis
        if isinstance(reached.layer.axis, int)
        else next(iter(reached.layer.axis))
    )
    return int(axis) % (len(sizes) + 1)


def _fit_statistics(array: Any, sizes: Sequence[int], axis: int | None) -> Any:
    """
    Return statistics in the shape of a layer's input without its batch; None if they do not fit.

    :param axis: the only one that the statistics have; None where they have as many as the layer's
        input, or less
    """
    if array is None:
        return None
    if axis is not None:
        array = array.reshape([-1 if place == axis else 1 for place in range(len(sizes) + 1)])
    try:
        return np.broadcast_to(array, (1, *sizes))[0]
    except ValueError:
        return None


_DEEPEST = 100
"""The maximum number of layers to search."""

_ACTIVATIONS = ("softmax", "sigmoid", "hard_sigmoid", "relu", "tanh", "exponential", "softplus")


def last_activations(model: Any, count: int) -> list[str | None]:
    """
    Return the name of the activation of each output: ``linear`` for a layer without activation,
    None for an output that no layer of a graph computes.
    """
    outputs = getattr(model, "outputs", None) or []
    is_known = len(outputs) == count
    return [_activation(tensor) for tensor in outputs] if is_known else [None] * count


def _activation(tensor: Any) -> str | None:
    """
    Return the activation that computes a tensor, through layers that pass their input on; None if
    unknown.
    """
    for _ in range(_DEEPEST):
        layer, inputs, position = _maker(tensor)
        if layer is None:
            return None
        inner = getattr(layer, "outputs", None)
        if inner and getattr(layer, "layers", None):
            tensor = inner[position if position < len(inner) else 0]
            continue
        activation = _own(layer)
        passes = passes_values(layer) or "Activation" in base_names(layer)
        if activation not in (None, "linear") or not passes or len(inputs) != 1:
            return activation
        tensor = inputs[0]
    return None


def _own(layer: Any) -> str | None:
    """Return the activation of a layer; activations of layers inside it do not count."""
    layer = getattr(layer, "layer", layer)  # of a wrapper
    if category(layer) in {"foreign", "op_layer"}:
        return None
    activation = getattr(layer, "activation", None)
    if activation is not None:
        return str(getattr(activation, "__name__", type(activation).__name__)).lower()
    name = type(layer).__name__.lower()
    named = [candidate for candidate in _ACTIVATIONS if name == candidate.replace("_", "")]
    return named[0] if named else "linear"


def _maker(tensor: Any) -> tuple[Any, list[Any], int]:
    """Return the layer that computed a tensor, its inputs, and the index of the output."""
    history: Any = getattr(tensor, "_keras_history", None)
    layer = getattr(history, "operation", None) or getattr(history, "layer", None)
    nodes = getattr(layer, "_inbound_nodes", None) or []
    if layer is None or history.node_index >= len(nodes):
        return None, [], 0
    inputs = node_inputs(nodes[history.node_index])
    tensors = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
    return layer, tensors, history.tensor_index
