"""
The known dtypes and image sizes of the tensors of a network.

Dtypes are computed from layers, policies and operations; conversions of operations, the flow of
masks and the order of layers depend on them. Image sizes are read from the shapes of inputs and
builds, in which a size may be variable.

Each network is read once, from its inputs to its outputs. A nested model returns the same for each
call.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from policytool.migration.convert.architecture import (
    Role,
    call_graph,
    entries,
    exits,
    once_per_network,
    walk,
)
from policytool.migration.result_dtypes import CalledClass, result_dtypes
from policytool.model.calls import Constant, Reference, tensors
from policytool.model.flow import BEFORE_CHAIN, follow
from policytool.model.tree import INPUT_CLASS
from policytool.releases import dtypes, keras_operations
from policytool.releases.layer_classes import layer_facts
from policytool.releases.policy import Policy, PolicyMap

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from policytool.migration.convert.architecture import Network, Unit, Value
    from policytool.model.calls import Argument, Call
    from policytool.model.flow import CallGraph, Node, TensorValues


_FLOATX: Final = "float32"


class TensorDtypes(Struct, frozen=True):
    """The dtypes of the tensors of one network."""

    _values: TensorValues[str | None]

    def of(self, argument: Argument) -> str | None:
        """Return the dtype of a tensor or a constant; None if unknown."""
        if isinstance(argument, Reference):
            return self._values.of(argument)
        return argument.dtype if isinstance(argument, Constant) else None


def network_dtypes(network: Network, measured_in: str | None = None) -> TensorDtypes:
    """
    Return the dtypes of a network's tensors.

    :param measured_in: the Keras 2 release that computes the network; some of its layers return
        another dtype than their compute dtype
    """
    return _network_dtypes(network, measured_in)


@once_per_network
def _network_dtypes(network: Network, measured_in: str | None) -> TensorDtypes:
    """Return the dtypes of a network's tensors, without the cache."""

    def transfer(
        node: Node, call: Call | None, values: TensorValues[str | None]
    ) -> Sequence[str | None]:
        first = next(iter(network.units), None)  # a chain may have no layers
        unit = first if node[0] == BEFORE_CHAIN.layer else network.unit(node[0])
        if unit is not None and unit.class_name == INPUT_CLASS:
            return (_input_dtype(unit),)
        if unit is None or call is None:
            return (None,)
        return _call_dtypes(unit, call, TensorDtypes(values), measured_in)

    return TensorDtypes(follow(call_graph(network), transfer, walk="dtypes"))


def entry_dtypes(network: Network) -> list[str | None]:
    """Return the dtypes to which a network casts its inputs; None if a dtype is unknown."""
    known = network_dtypes(network)
    return [known.of(entry) for entry in entries(network)]


def compute_dtype(unit: Unit) -> str | None:
    """Return the compute dtype of a layer; None if the file does not contain it."""
    policy = unit.config.get("dtype")
    if isinstance(policy, PolicyMap):
        policy = policy.default
    return policy.compute_dtype if isinstance(policy, Policy) else None


def is_cast(unit: Unit, dtype: str | None) -> bool:
    """Return whether a layer casts an input tensor of a dtype; layers cast only floats."""
    after = compute_dtype(unit)
    return dtype in dtypes.FLOATS and after not in (None, dtype)


def _input_dtype(unit: Unit) -> str | None:
    """Return the dtype of the tensor of an input layer."""
    dtype = unit.config.get("dtype")
    return dtype if isinstance(dtype, str) else compute_dtype(unit) or _FLOATX


def _call_dtypes(
    unit: Unit, call: Call, known: TensorDtypes, measured_in: str | None
) -> Sequence[str | None]:
    """Return the result dtypes of a call; the last one applies to all further results."""
    if unit.role is Role.MODEL and unit.network is not None:
        inner = network_dtypes(unit.network, measured_in)
        return (*map(inner.of, exits(unit.network)), None)
    return result_dtypes(called_class(unit, measured_in), call, known.of)


def called_class(unit: Unit, measured_in: str | None = None) -> CalledClass:
    """Return the parts of a unit that determine its result dtypes; see :func:`network_dtypes`."""
    policy = unit.config.get("dtype")
    has_open_policy = isinstance(policy, Policy) and policy.compute_dtype is None
    return CalledClass(
        class_name=unit.class_name,
        config=unit.config,
        module=module_of(unit) if unit.role is Role.OPERATION else None,
        custom=unit.custom,
        compute_dtype=None if has_open_policy else compute_dtype(unit) or _FLOATX,
        variable_dtype=policy.variable_dtype if isinstance(policy, Policy) else None,
        policy=policy.name if isinstance(policy, Policy) else None,
        measured_in=measured_in,
    )


def module_of(unit: Unit) -> str:
    """
    Return the last part of an operation's module. HDF5 files do not contain the module, but each
    class is in only one.
    """
    if unit.module is not None:
        return unit.module.removeprefix(keras_operations.MODULES)
    return keras_operations.module_of(unit.class_name) or ""


_SHAPES: Final = ("batch_input_shape", "batch_shape")


class Sizes(StrEnum):
    """The known facts about the sizes of the images in a tensor."""

    FIXED = "fixed"
    OPEN = "open"
    """A size is variable in the shape of an input of the network."""

    OPEN_INSIDE = "open inside"
    """A size is variable in an input of a nested model whose call inputs have unknown sizes."""

    UNKNOWN = "unknown"


def input_shape(unit: Unit, network: Network) -> Value:
    """Return the input shape of a layer; None if the file does not contain it."""
    return _input_shape(unit, _source(call_graph(network), (unit.name, 0)), network)


def config_shape(unit: Unit) -> Value:
    """Return the shape in a config, including the batch dimension; None if there is none."""
    return next((unit.config[key] for key in _SHAPES if key in unit.config), None)


def has_fixed_sizes(root: Unit) -> bool:
    """
    Return whether all inputs of a model and of its nested models have fixed sizes, except for the
    batch.
    """
    shapes = [config_shape(unit) for unit in walk(root) if unit.class_name == INPUT_CLASS]
    return bool(shapes) and all(
        isinstance(shape, list) and all(isinstance(size, int) for size in shape[1:])
        for shape in shapes
    )


@once_per_network
def image_sizes(network: Network, data_format: str) -> Mapping[Node, Sizes]:
    """Return the known image sizes in the input sequence of each call."""
    graph, output_sizes = call_graph(network), _output_sizes(network, data_format)
    return {
        node: _input_sizes(node, network, output_sizes, data_format)
        for node in graph.inputs_first
        if node[0] != BEFORE_CHAIN.layer
    }


@once_per_network
def _output_sizes(network: Network, data_format: str) -> TensorValues[Sizes]:
    """Return the known facts about the image sizes in each tensor of a network."""

    def transfer(node: Node, _call: Call | None, known: TensorValues[Sizes]) -> Sequence[Sizes]:
        if node[0] == BEFORE_CHAIN.layer:
            return (Sizes.UNKNOWN,)
        unit = network.unit(node[0])
        input_sizes = _input_sizes(node, network, known, data_format)
        if unit.network is None or not unit.network.units:
            return (Sizes.UNKNOWN if _may_size(unit) else input_sizes,)
        inner = _output_sizes(unit.network, data_format)
        inner_sizes = (inner.of(output) or Sizes.UNKNOWN for output in exits(unit.network))
        # a nested model is built for the inputs of its call
        built = Sizes.OPEN_INSIDE if input_sizes is Sizes.UNKNOWN else input_sizes
        return (*(built if sizes is Sizes.OPEN else sizes for sizes in inner_sizes), Sizes.UNKNOWN)

    return follow(call_graph(network), transfer, walk="sizes of images")


def _input_sizes(
    node: Node, network: Network, known: TensorValues[Sizes], data_format: str
) -> Sizes:
    """Return the known facts about the image sizes in the first input tensor of a call."""
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
    """Return the first input tensor of a call; None if there is none."""
    call = graph.call(node)
    return next(tensors([*call.args[:1]]), None) if call is not None else None
