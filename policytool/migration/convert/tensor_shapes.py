"""
The shapes of what layers get, as far as a file has them: those of inputs and of builds, and whether
an input that leaves sizes of images open is where they come from.
"""

from __future__ import annotations

from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from policytool.migration.convert._walking import CallGraph
from policytool.migration.convert.architecture import Role, once_per_network
from policytool.migration.convert.traversal import exits, references, walk
from policytool.model.calls import Reference
from policytool.model.tree import INPUT_CLASS
from policytool.support.steps import spend

if TYPE_CHECKING:
    from collections.abc import Mapping

    from policytool.migration.convert._walking import Node
    from policytool.migration.convert.architecture import Network, Unit, Value

_SHAPES: Final = ("batch_input_shape", "batch_shape")
_SIZING: Final = frozenset({"CenterCrop", "Lambda", "RandomCrop", "Reshape", "Resizing"})
"""Layers whose output may have a known size where their input has none."""


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
    return _input_shape(unit, _source(network, (unit.name, 0)), network)


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
    axes = slice(3, None) if data_format == "channels_first" else slice(2, -1)
    sizes: dict[Node, Sizes] = {}
    for node in _calls(network):
        unit, source = network.unit(node[0]), _source(network, node)
        shape = _input_shape(unit, source, network)
        if isinstance(shape, list):
            sizes[node] = Sizes.OPEN if None in shape[axes] else Sizes.FIXED
        elif source is None:
            sizes[node] = Sizes.UNKNOWN
        else:
            sizes[node] = _output_sizes(source, network, sizes, data_format)
    return sizes


def _output_sizes(
    tensor: Reference, network: Network, sizes: Mapping[Node, Sizes], data_format: str
) -> Sizes:
    """Return what is known of the sizes of a tensor, from those that calls get."""
    unit = network.by_name.get(tensor.layer)
    if unit is None:
        return Sizes.UNKNOWN
    taken = sizes.get((tensor.layer, tensor.call), Sizes.UNKNOWN)
    if unit.network is None or not unit.network.units:
        return Sizes.UNKNOWN if _may_size(unit) else taken
    outputs = exits(unit.network)
    if tensor.output >= len(outputs):
        return Sizes.UNKNOWN
    inside = _output_sizes(
        outputs[tensor.output],
        unit.network,
        image_sizes(unit.network, data_format),
        data_format,
    )
    if inside is not Sizes.OPEN:
        return inside
    # a nested model is built for what it is called on
    return Sizes.OPEN_INSIDE if taken is Sizes.UNKNOWN else taken


def _may_size(unit: Unit) -> bool:
    is_layer = unit.role is Role.LAYER and unit.network is None and unit.class_name != INPUT_CLASS
    return not is_layer or unit.custom or unit.class_name in _SIZING


def _input_shape(unit: Unit, source: Reference | None, network: Network) -> Value:
    shape = (unit.build or {}).get("input_shape") or config_shape(unit)
    if shape is not None:
        return shape
    before = network.by_name.get(source.layer) if source is not None else None
    return config_shape(before) if before is not None and before.class_name == INPUT_CLASS else None


def _source(network: Network, node: Node) -> Reference | None:
    """Return the first tensor that a call takes."""
    name, number = node
    if network.is_chain:
        return _chain_sources(network).get(name)
    calls = network.unit(name).calls
    taken = (argument for call in calls[number : number + 1] for argument in call.args[:1])
    return next((tensor for argument in taken for tensor in references(argument)), None)


@once_per_network
def _chain_sources(network: Network) -> Mapping[str, Reference]:
    """Return by the name of a layer of a chain what the layer before it gives."""
    names = [unit.name for unit in network.units]
    return {name: Reference(layer=before) for before, name in pairwise(names)}


def _calls(network: Network) -> list[Node]:
    """Return the calls of a network, each after those that it takes tensors of."""
    if not network.is_chain:
        return CallGraph(network).inputs_first()
    spend(len(network.units), walk="sizes in a chain")
    return [(unit.name, 0) for unit in network.units]
