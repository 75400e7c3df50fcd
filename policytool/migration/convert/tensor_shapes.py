"""
The shapes of what layers get, as far as a file has them: those of inputs and of builds, and whether
an input that leaves sizes of images open is where they come from.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

from policytool.migration.convert.architecture import (
    Role,
    call_graph,
    exits,
    once_per_network,
    references,
    walk,
)
from policytool.model.flow import BEFORE_CHAIN, follow
from policytool.model.tree import INPUT_CLASS
from policytool.releases.layer_classes import layer_facts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from policytool.migration.convert.architecture import Network, Unit, Value
    from policytool.model.calls import Call, Reference
    from policytool.model.flow import CallGraph, Node, TensorValues

_SHAPES: Final = ("batch_input_shape", "batch_shape")


class Sizes(StrEnum):
    """What is known of the sizes of the images in a tensor."""

    FIXED = "fixed"
    OPEN = "open"
    """An input of the network leaves one open."""

    OPEN_INSIDE = "open inside"
    """An input of a nested model does, and what that is called on is unknown."""

    UNKNOWN = "unknown"


def input_shape(unit: Unit, network: Network) -> Value:
    """Return the shape that a layer of a network gets; None where the file does not have it."""
    return _input_shape(unit, _source(call_graph(network), (unit.name, 0)), network)


def config_shape(unit: Unit) -> Value:
    """Return the shape, with the batch, that a config says; None where it says none."""
    return next((unit.config[key] for key in _SHAPES if key in unit.config), None)


def says_all_sizes(root: Unit) -> bool:
    """Return whether a model, and each in it, takes inputs of one size, but for the batch."""
    shapes = [config_shape(unit) for unit in walk(root) if unit.class_name == INPUT_CLASS]
    return bool(shapes) and all(
        isinstance(shape, list) and all(isinstance(size, int) for size in shape[1:])
        for shape in shapes
    )


@once_per_network
def image_sizes(network: Network, data_format: str) -> Mapping[Node, Sizes]:
    """Return what is known of the sizes of the images in a sequence that each call gets."""
    graph, given = call_graph(network), _output_sizes(network, data_format)
    return {
        node: _input_sizes(node, network, given, data_format)
        for node in graph.inputs_first
        if node[0] != BEFORE_CHAIN.layer
    }


@once_per_network
def _output_sizes(network: Network, data_format: str) -> TensorValues[Sizes]:
    """Return what is known of the sizes of the images in each tensor of a network."""

    def transfer(node: Node, _call: Call | None, known: TensorValues[Sizes]) -> Sequence[Sizes]:
        if node[0] == BEFORE_CHAIN.layer:
            return (Sizes.UNKNOWN,)
        unit = network.unit(node[0])
        taken = _input_sizes(node, network, known, data_format)
        if unit.network is None or not unit.network.units:
            return (Sizes.UNKNOWN if _may_size(unit) else taken,)
        inner = _output_sizes(unit.network, data_format)
        inside = (inner.of(output) or Sizes.UNKNOWN for output in exits(unit.network))
        # a nested model is built for what it is called on
        built = Sizes.OPEN_INSIDE if taken is Sizes.UNKNOWN else taken
        return (*(built if sizes is Sizes.OPEN else sizes for sizes in inside), Sizes.UNKNOWN)

    return follow(call_graph(network), transfer, walk="sizes of images")


def _input_sizes(
    node: Node, network: Network, known: TensorValues[Sizes], data_format: str
) -> Sizes:
    """Return what is known of the sizes of the first tensor that a call takes."""
    axes = slice(3, None) if data_format == "channels_first" else slice(2, -1)
    source = _source(call_graph(network), node)
    shape = _input_shape(network.unit(node[0]), source, network)
    if isinstance(shape, list):
        return Sizes.OPEN if None in shape[axes] else Sizes.FIXED
    return (known.of(source) if source is not None else None) or Sizes.UNKNOWN


def _may_size(unit: Unit) -> bool:
    is_layer = unit.role is Role.LAYER and unit.network is None and unit.class_name != INPUT_CLASS
    return not is_layer or unit.custom or layer_facts(unit.class_name).fixes_size


def _input_shape(unit: Unit, source: Reference | None, network: Network) -> Value:
    shape = (unit.build or {}).get("input_shape") or config_shape(unit)
    if shape is not None:
        return shape
    before = network.by_name.get(source.layer) if source is not None else None
    return config_shape(before) if before is not None and before.class_name == INPUT_CLASS else None


def _source(graph: CallGraph, node: Node) -> Reference | None:
    """Return the first tensor that a call takes."""
    call = graph.call(node)
    return next(references([*call.args[:1]]), None) if call is not None else None
