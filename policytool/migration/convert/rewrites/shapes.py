"""The input and build shapes of models and layers, and layers that depend on them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from policytool.migration.convert.architecture import (
    Network,
    Role,
    Unit,
    map_networks,
    map_units,
    once_per_network,
    unused_name,
    walk,
)
from policytool.migration.convert.rewrites._base import ConversionContext, rewrite
from policytool.migration.convert.tensor_facts import Sizes, image_sizes, input_shape
from policytool.model.calls import tensors
from policytool.model.tree import INPUT_CLASS
from policytool.support.steps import spend

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.migration.convert.architecture import Value


_BATCH_SHAPE: Final = "batch_shape"
_BATCH_INPUT_SHAPE: Final = "batch_input_shape"


@rewrite(
    after=("keras1", "keras2"),  # an input gets the shape and dtype that these set
    applies=lambda context: context.crosses or context.to_keras3,
)
def inputs(root: Unit, context: ConversionContext) -> Unit:
    """
    Converts the input shapes of a model: Keras 3 stores ``batch_shape`` in input layers, and Keras
    2 stores ``batch_input_shape``, which the first layer of a Sequential model may also contain.
    """

    def add_input(unit: Unit) -> Unit:
        return _with_input_layer(unit, context) if unit.role is Role.MODEL else unit

    def change(unit: Unit) -> Unit:
        if unit.class_name == INPUT_CLASS:
            return _rename_shape(unit, context)
        if _BATCH_INPUT_SHAPE in unit.config and not unit.custom and context.to_keras3:
            return unit.without(_BATCH_INPUT_SHAPE)
        return unit

    return map_units(
        map_units(root, add_input), change
    )  # a chain gets its shape from its first layer before the layer loses it


def _rename_shape(unit: Unit, context: ConversionContext) -> Unit:
    before, after = (
        (_BATCH_INPUT_SHAPE, _BATCH_SHAPE)
        if context.to_keras3
        else (_BATCH_SHAPE, _BATCH_INPUT_SHAPE)
    )
    if before not in unit.config:
        return unit
    context.log.change("input-shape", unit, f"{before} becomes {after}")
    return unit.with_key_renamed(before, after)


def _with_input_layer(unit: Unit, context: ConversionContext) -> Unit:
    """
    Return a Sequential with its input shape in an input layer, as TF 2.2 and later write it, not
    only in its first layer.
    """
    network = unit.network
    if (
        network is None
        or not network.is_chain
        or not network.units
        or network.units[0].class_name == INPUT_CLASS
        or not context.to_keras3
    ):
        return unit
    first = network.units[0]
    shape = first.config.get(_BATCH_INPUT_SHAPE)
    if shape is None:
        return unit
    name = unused_name(f"{first.name}_input", {member.name for member in network.units})
    config: dict[str, Value] = {_BATCH_SHAPE: shape, "dtype": _input_dtype(first), "sparse": False}
    context.log.change("input-shape", first, f"{_BATCH_INPUT_SHAPE} becomes a separate input layer")
    added = Unit(class_name=INPUT_CLASS, name=name, config=config, path=first.path)
    return replace(
        unit, network=Network(units=(added, first.without(_BATCH_INPUT_SHAPE), *network.units[1:]))
    )


def _input_dtype(first: Unit) -> str:
    """
    Return the dtype of a chain's input. For an Embedding of Keras 2 it is floatx, independent of
    its policy.
    """
    policy = first.config.get("dtype")
    name = getattr(policy, "compute_dtype", None)
    return (
        name
        if isinstance(name, str) and not getattr(policy, "should_cast_variables", False)
        else "float32"
    )


_EINSUM: Final = "EinsumDense"

_OUTPUT_SHAPE: Final = "output_shape"


@rewrite(
    after=("inputs",),  # has the shapes of inputs where Keras 3 has them
    applies=lambda context: context.crosses and context.to_keras3,
)
def einsum(root: Unit, context: ConversionContext) -> Unit:
    """
    Fills in unknown sizes in the ``output_shape`` of EinsumDense layers.

    Keras 2 gets the sizes from the computed tensor, Keras 3 only from ``output_shape``
    (``compute_output_shape`` in keras/src/layers/core/einsum_dense.py). Keras 3 creates no
    variables for a layer after a Flatten of a variable size. The equation maps output axes to axes
    of the input.
    """
    return map_networks(
        root,
        lambda network: replace(
            network, units=tuple(_fill_sizes(unit, network, context) for unit in network.units)
        ),
    )


def _fill_sizes(unit: Unit, network: Network, context: ConversionContext) -> Unit:
    """Return a layer with its known sizes; refused if a Flatten needs an unknown size."""
    output_shape = unit.config.get(_OUTPUT_SHAPE)
    if unit.class_name != _EINSUM or unit.custom or not _is_open(output_shape):
        return unit
    filled = unit.with_config(
        output_shape=_known_sizes(unit, output_shape, input_shape(unit, network))
    )
    if _is_open(filled.config[_OUTPUT_SHAPE]) and unit.name in _flattened_layers(network):
        context.log.refuse(
            "argument",
            unit,
            f"{unit.path} ({_EINSUM}) has an unknown size in output_shape, but a Flatten layer "
            f"after it requires a known size in {context.target.name}; set the size in the "
            "source and save the model again",
        )
        return unit
    if filled.config[_OUTPUT_SHAPE] != output_shape:
        context.log.change("output-shape", unit, "unknown sizes in output_shape are filled in")
    return filled


def _is_open(shape: Value) -> bool:
    return isinstance(shape, list) and None in shape


def _known_sizes(unit: Unit, output_shape: Value, shape: Value) -> Value:
    """Return an output shape with the sizes of axes that are also axes of the input."""
    inputs, _, output = str(unit.config.get("equation")).replace(" ", "").partition("->")
    letters = inputs.partition(",")[0]
    if (
        not isinstance(output_shape, list)
        or not isinstance(shape, list)
        or len(letters) != len(shape)
    ):
        return output_shape
    known = dict(zip(letters, shape, strict=True))
    return [
        known.get(letter) if size is None else size
        for letter, size in zip(output[1:], output_shape, strict=False)
    ]


@once_per_network
def _flattened_layers(network: Network) -> frozenset[str]:
    """Return the names of the layers before a Flatten."""
    flattens = [unit.name for unit in network.units if unit.class_name == "Flatten"]
    if network.is_chain:
        names = [unit.name for unit in network.units]
        return frozenset(names[: names.index(flattens[-1])]) if flattens else frozenset()
    before: set[str] = set()
    pending = flattens
    while pending:
        spend(1, walk="layers before a Flatten")
        unit = network.by_name.get(pending.pop())
        sources = {
            tensor.layer
            for call in (unit.calls if unit is not None else ())
            for tensor in tensors([*call.args, *call.kwargs.values()])
        }
        pending += sources - before
        before |= sources
    return frozenset(before)


_CROPPINGS: Final = frozenset({"Cropping1D", "Cropping2D", "Cropping3D"})


@rewrite(
    after=("inputs",),  # has the shapes of inputs where Keras 3 has them
    applies=lambda context: context.crosses and context.to_keras3,
)
def cropping(root: Unit, context: ConversionContext) -> Unit:
    """
    Reports Cropping layers that remove their entire input: Keras 2 returns an empty tensor, but
    Keras 3 raises an error (``compute_output_shape`` in keras/src/layers/reshaping/cropping3d.py).
    """
    for model in walk(root):
        network = model.network
        for unit in network.units if network is not None else ():
            if unit.class_name not in _CROPPINGS or unit.custom or network is None:
                continue
            if any(size <= crop for size, crop in _cropped_axes(unit, input_shape(unit, network))):
                context.log.refuse(
                    "argument",
                    unit,
                    f"{unit.path} ({unit.class_name}) removes its entire input, which "
                    f"{context.target.name} does not support",
                )
    return root


def _cropped_axes(unit: Unit, shape: Value) -> Iterator[tuple[int, int]]:
    """Yield the size of each axis of known size, and the number of cropped elements."""
    crops = unit.config.get("cropping")
    rows = [crops] if unit.class_name == "Cropping1D" else crops
    if not isinstance(shape, list) or not isinstance(rows, list):
        return
    sizes = shape[2:] if unit.config.get("data_format") == "channels_first" else shape[1:]
    for size, row in zip(sizes, rows, strict=False):
        if isinstance(size, int) and isinstance(row, list):
            yield size, sum(item for item in row if isinstance(item, int))


_INPUT_SHAPE: Final = "input_shape"


@rewrite(
    after=(
        "attention",
        "cropping",
        "directions",
        "einsum",
    ),  # they need the shapes that this step omits
    applies=lambda context: context.crosses,
)
def builds(root: Unit, context: ConversionContext) -> Unit:  # noqa: ARG001  # the signature of every rewrite
    """
    Omits the build shapes of layers, because each library has its own format for them and builds
    layers when it calls them.
    """
    return map_units(root, _convert_build)


def _convert_build(unit: Unit) -> Unit:
    if unit.build is None:
        return unit
    shape: Value = unit.build.get(_INPUT_SHAPE)
    chain = unit.role is Role.MODEL and unit.network is not None and unit.network.is_chain
    subclassed = unit.site == 0 and unit.network is None
    return replace(
        unit, build={_INPUT_SHAPE: shape} if (chain or subclassed) and shape is not None else None
    )


CONV_LSTMS: Final = frozenset({"ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D"})


@rewrite(
    after=("inputs",),  # has the shapes of inputs where Keras 3 has them
    applies=lambda context: context.crosses and context.to_keras3,
)
def convlstm(root: Unit, context: ConversionContext) -> Unit:
    """
    Reports Keras 2 ConvLSTM layers that accept images of any size, because Keras 3 cannot build
    them (``build`` in keras/src/layers/rnn/conv_lstm.py).
    """
    for model in walk(root):
        for unit in model.network.units if model.network is not None else ():
            if model.network is not None and _has_open_sizes(unit, model.network):
                context.log.refuse(
                    "argument",
                    unit,
                    f"{unit.path} ({unit.class_name}) accepts images of any size, but "
                    f"{context.target.name} requires a fixed size; set the input shape of the "
                    "model and save it again",
                )
    return root


def _has_open_sizes(unit: Unit, network: Network) -> bool:
    """Return whether a layer is a ConvLSTM whose input has a variable size."""
    inner = unit.config.get("layer") if unit.class_name == "Bidirectional" else unit
    if not isinstance(inner, Unit) or inner.class_name not in CONV_LSTMS or inner.custom:
        return False
    sizes = image_sizes(network, str(inner.config.get("data_format")))
    return sizes[unit.name, 0] in {Sizes.OPEN, Sizes.OPEN_INSIDE}
