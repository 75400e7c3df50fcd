"""Activations that the target does not have or implements differently."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from policytool.migration.convert.architecture import (
    Network,
    Role,
    SerializedObject,
    Unit,
    function_name,
    map_units,
    walk,
)
from policytool.migration.convert.rewrites._base import (
    ConversionContext,
    Split,
    layer_beside,
    layer_rewrite,
    rewrite,
    splice,
)
from policytool.migration.convert.rewrites.operations import to_keras2
from policytool.migration.plan import WEIGHT_REWRITE
from policytool.model.calls import Call, Reference
from policytool.model.tree import INPUT_CLASS
from policytool.releases import keras_operations, known_arguments
from policytool.releases.layer_classes import layer_of_cell

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from policytool.migration.convert.architecture import Value


_HARD: Final = "hard_sigmoid"
_SPLIT_LAYERS: Final = frozenset(
    {
        *("Activation", "Dense", "EinsumDense"),
        *(
            f"{kind}{rank}D{end}"
            for rank in (1, 2, 3)
            for kind, end in (
                ("Conv", ""),
                ("Conv", "Transpose"),
                ("DepthwiseConv", ""),
                ("SeparableConv", ""),
            )
        ),
    }
)
"""Layers that apply ``activation`` to their result as the last step."""


def _is_missing(name: str, context: ConversionContext) -> bool:
    """Return whether an activation is a Keras activation that the target lacks."""
    is_known = known_arguments.is_known("activations", name)
    return is_known and context.target.lacks("activations", name, module=False)


def _missing_activation(unit: Unit, context: ConversionContext) -> str | None:
    """Return the activation of a layer that can be split, if the target lacks it; else None."""
    if unit.role is not Role.LAYER or unit.custom or unit.class_name not in _SPLIT_LAYERS:
        return None
    name = function_name(unit.config.get("activation"))
    return name if name is not None and _is_missing(name, context) else None


def _has_masks(root: Unit) -> bool:
    """Return whether a layer of the model creates a mask."""
    return any(
        unit.class_name == "Masking" or unit.config.get("mask_zero") is True for unit in walk(root)
    )


@layer_rewrite(
    applies=lambda context: _is_missing("silu", context) and not _is_missing("swish", context),
)
def silu(unit: Unit, context: ConversionContext) -> Unit:
    """
    Gives the activation ``silu`` its older name ``swish``, if the target has only that.
    """
    keys = [
        key
        for key in ("activation", "recurrent_activation")
        if function_name(unit.config.get(key)) == "silu"
    ]
    if not keys:
        return unit
    context.log.change(
        "activation-name", unit, f"silu is called swish, its name in {context.target.name}"
    )
    return unit.with_config(**dict.fromkeys(keys, "swish"))


_OPERATIONS: Final = {
    "celu": "Celu",
    "hard_shrink": "HardShrink",
    "hard_tanh": "HardTanh",
    "log_sigmoid": "LogSigmoid",
    "soft_shrink": "SoftShrink",
    "sparse_plus": "SparsePlus",
    "sparse_sigmoid": "SparseSigmoid",
    "squareplus": "Squareplus",
    "tanh_shrink": "TanhShrink",
}
"""
The operation for each activation, with the default arguments of the operation; all are elementwise.
"""

_JOINED_ACTIVATIONS: Final = frozenset({"hard_silu", "hard_swish"})
_CHAIN_KEYS: Final = ("dtype", "build_input_shape")
"""Keys of a Sequential's config that the config of a functional model lacks."""


@rewrite(
    applies=lambda context: context.from_keras3 and not context.to_keras3,
)
def activation_operations(root: Unit, context: ConversionContext) -> Unit:
    """
    Replaces activations that exist only in Keras 3 with operations after the layer, which later
    steps convert to TensorFlow functions.

    If a Sequential contains such a layer, or a layer whose activation becomes two branches
    (``hard_silu``, and ``hard_sigmoid`` with a mask), it becomes a functional model, because each
    layer of a Sequential has one input tensor.
    """
    masks = _has_masks(root)

    def joins(unit: Unit) -> bool:
        """Return whether the activation of a layer becomes branches that join after it."""
        if masks:  # op layers and products lose masks, a sum does not
            return (
                unit.class_name in _SPLIT_LAYERS
                and function_name(unit.config.get("activation")) == _HARD
            )
        return _missing_activation(unit, context) in {*_OPERATIONS, *_JOINED_ACTIVATIONS}

    changed = map_units(root, lambda unit: _as_graph(unit, joins, context))
    return changed if masks else splice(changed, lambda unit: _split_operation(unit, context))


def _split_operation(unit: Unit, context: ConversionContext) -> Split | None:
    """
    Return a unit whose activation becomes an operation after it; None if the target has the
    activation, or no operation for it.
    """
    name = _missing_activation(unit, context)
    if name not in _OPERATIONS or to_keras2.is_before_lambdas(context.target.loader):
        return None
    context.log.change(
        "activation-layer",
        unit,
        f"activation {name} becomes an operation because {context.target.name} does not have it",
    )
    operation = Unit(
        class_name=_OPERATIONS[name],
        name=f"{unit.name}_{name}",
        config={},
        role=Role.OPERATION,
        module=f"{keras_operations.MODULES}nn",
        path=unit.path,
    )
    return Split(unit=unit.with_config(activation="linear"), after=(operation,))


def _as_graph(unit: Unit, joins: Callable[[Unit], bool], context: ConversionContext) -> Unit:
    """
    Return a Sequential as a functional model, if any of its layers must be split into branches and
    its input is known; otherwise unchanged.
    """
    network = unit.network
    if (
        network is None
        or not network.is_chain
        or unit.custom
        or not network.units
        or network.units[0].class_name != INPUT_CLASS
        or not any(map(joins, _inner_units(network)))
    ):
        return unit
    context.log.change(
        "functional",
        unit,
        "the Sequential model becomes a functional model because an activation becomes several "
        "connected layers",
    )
    calls = [(), *((Call(args=(Reference(layer=member.name),)),) for member in network.units[:-1])]
    units = tuple(
        replace(member, calls=called) for member, called in zip(network.units, calls, strict=True)
    )
    graph = Network(
        units=units,
        inputs=Reference(layer=network.units[0].name),
        outputs=Reference(layer=network.units[-1].name),
    )
    return replace(unit.without(*_CHAIN_KEYS), class_name="Functional", network=graph)


def _inner_units(network: Network) -> Iterator[Unit]:
    """Yield the layers of a network; for a TimeDistributed, the wrapped layer."""
    for unit in network.units:
        inner = unit
        while inner.class_name == "TimeDistributed" and isinstance(
            layer := inner.config.get("layer"), Unit
        ):
            inner = layer
        yield inner


KERAS3_STEEPNESS: Final = 1.2
"""
The factor of the input with which ``hard_sigmoid`` of Keras 3 returns the results of Keras 2: the
slope is 1/6 in Keras 3 and 1/5 in Keras 2.
"""

_SCALED: Final = ("kernel", "recurrent_kernel", "bias")
_GATES: Final = {
    "LSTM": "ifco",
    "GRU": "zrh",
    "ConvLSTM1D": "ifco",
    "ConvLSTM2D": "ifco",
    "ConvLSTM3D": "ifco",
    "SimpleRNN": "h",
}
_ACTIVATED: Final = {"c", "h"}
"""The gates with ``activation``; all other gates have ``recurrent_activation``."""


@rewrite(
    after=("calls", "renames", "operations"),  # adds layers to the target's graph
    applies=lambda context: True,  # noqa: ARG005  # releases of one library differ too
)
def activations(root: Unit, context: ConversionContext) -> Unit:
    """
    Replaces activations that the target does not have or implements differently.

    ``hard_sigmoid`` is 0.2x + 0.5 in Keras 1 and 2 (``hard_sigmoid`` in keras/backend.py) and x/6 +
    0.5 in Keras 3 (keras/src/activations/activations.py), both limited to 0 and 1: the function of
    Keras 3 at 1.2x equals that of Keras 2 at x. Layers before and after the activation multiply its
    input. For the gates of a recurrent layer, the weights are multiplied if the user allows it.
    """
    masks = _has_masks(root)
    if masks and context.crosses and not context.to_keras3:
        _refuse_in_chains(root, context)
    root = splice(root, lambda unit: _split_activation(unit, context, masks=masks))
    return map_units(root, lambda unit: _rescale_or_refuse(unit, context))


def _split_activation(unit: Unit, context: ConversionContext, *, masks: bool) -> Split | None:
    """Return a layer and its activation as separate layers if the target requires it, else None."""
    if (
        unit.role is not Role.LAYER
        or unit.custom
        or unit.class_name not in _SPLIT_LAYERS
        or "activation" not in unit.config
    ):
        return None
    activation = unit.config["activation"]
    if isinstance(activation, Unit | SerializedObject) and function_name(activation) is None:
        return _with_separate_activation(unit, activation, context)
    name = function_name(activation)
    if name == _HARD and context.crosses:
        return _hard_sigmoid(unit, context, masks=masks)
    if name is None or not _is_missing(name, context):
        return None
    return _other_layer(unit, name, context, masks=masks)


def _with_separate_activation(
    unit: Unit, activation: Unit | SerializedObject, context: ConversionContext
) -> Split | None:
    """
    Return a layer and its activation layer as two layers: releases write such activations in
    different formats, which most releases do not read.
    """
    if isinstance(activation, SerializedObject) and (
        activation.registered_name is not None
        or not known_arguments.is_known("layers", activation.class_name)
    ):
        return None
    config = activation.config if not isinstance(activation.config, str | None) else {}
    activation_layer = layer_beside(
        unit,
        activation.class_name,
        "activation",
        **{key: value for key, value in config.items() if key != "name"},
    )
    context.log.change(
        "activation-apart", unit, f"activation {activation.class_name} becomes a separate layer"
    )
    return Split(unit=unit.with_config(activation="linear"), after=(activation_layer,))


def _hard_sigmoid(unit: Unit, context: ConversionContext, *, masks: bool) -> Split:
    """
    Return the split of a layer that multiplies the input of ``hard_sigmoid``.

    A Rescaling of Keras 2 loses the mask of its input, but the sum of its result and the input
    keeps it.
    """
    factor = KERAS3_STEEPNESS if context.to_keras3 else 1 / KERAS3_STEEPNESS
    context.log.change(
        "hard-sigmoid",
        unit,
        f"hard_sigmoid has a different formula in {context.target.name}, so its "
        f"input is multiplied by {factor:.4g}",
    )
    linear_unit = unit.with_config(activation="linear")
    hard_sigmoid_layer = layer_beside(unit, "Activation", _HARD, activation=_HARD)
    if masks and not context.to_keras3:
        difference = layer_beside(unit, "Rescaling", "scale", scale=factor - 1, offset=0.0)
        return Split(
            unit=linear_unit,
            after=(difference, layer_beside(unit, "Add", "sum"), hard_sigmoid_layer),
            joint=1,
        )
    scaling = layer_beside(unit, "Rescaling", "scale", scale=factor, offset=0.0)
    if unit.class_name == "Activation":
        return Split(unit=unit, before=(scaling,))
    return Split(unit=linear_unit, after=(scaling, hard_sigmoid_layer))


def _refuse_in_chains(root: Unit, context: ConversionContext) -> None:
    """Refuse activations that need two branches in a chain, whose layers have one input each."""
    for model in walk(root):
        is_chain = model.network is not None and model.network.is_chain
        for unit in _inner_units(model.network) if model.network and is_chain else ():
            if (
                unit.class_name in _SPLIT_LAYERS
                and not unit.custom
                and function_name(unit.config.get("activation")) == _HARD
            ):
                context.log.refuse(
                    "activation",
                    unit,
                    f"{_what(unit)} applies hard_sigmoid, which requires a preceding Rescaling "
                    "layer in Keras 2, and Rescaling drops the mask; build the Sequential model "
                    "as a functional model",
                )


def _other_layer(unit: Unit, name: str, context: ConversionContext, *, masks: bool) -> Split | None:
    """
    Return a layer with separate layers for an activation that the target lacks; None if no layers
    compute it.
    """
    layers = _layers(unit, name, context)
    if layers is None or (masks and len(layers) > 1 and not context.to_keras3):
        return None
    context.log.change(
        "activation-layer",
        unit,
        f"activation {name} becomes {' and '.join(layer.class_name for layer in layers)} because "
        f"{context.target.name} does not have it",
    )
    return Split(
        unit=unit.with_config(activation="linear"),
        after=layers,
        joint=len(layers) - 1 if len(layers) > 1 else None,
    )


def _layers(unit: Unit, name: str, context: ConversionContext) -> tuple[Unit, ...] | None:
    """Return layers that compute an activation by its name; None if no layers do."""
    bounds: dict[str, Value] = {"max_value": 6.0, "negative_slope": 0.0, "threshold": 0.0}
    match name:
        case "relu6":
            return (layer_beside(unit, "ReLU", "relu6", **bounds),)
        case "leaky_relu":
            key = "negative_slope" if context.to_keras3 else "alpha"
            return (layer_beside(unit, "LeakyReLU", "leaky_relu", **{key: 0.2}),)
        case "hard_silu" | "hard_swish":
            return (
                layer_beside(unit, "Rescaling", "shift", scale=1.0, offset=3.0),
                layer_beside(unit, "ReLU", "relu6", **bounds),
                layer_beside(unit, "Rescaling", "scale", scale=1 / 6, offset=0.0),
                layer_beside(unit, "Multiply", "gate"),
            )
    return None


def _rescale_or_refuse(unit: Unit, context: ConversionContext) -> Unit:
    """Return a layer with scaled weights if it cannot be split; or log a refusal."""
    if unit.role is not Role.LAYER or unit.custom:
        return unit
    for key in ("activation", "recurrent_activation"):
        name = function_name(unit.config.get(key))
        if name is not None and _is_missing(name, context):
            context.log.refuse(
                "activation",
                unit,
                f"{_what(unit)} sets {key} to {name}, which {context.target.name} does not have",
            )
    gates = _GATES.get(layer_of_cell(unit.class_name) or unit.class_name)
    hard_gates = [
        key
        for key in ("activation", "recurrent_activation")
        if function_name(unit.config.get(key)) == _HARD
    ]
    if gates is None or not hard_gates or not context.crosses:
        return unit
    return _scale_gates(unit, gates, hard_gates, context)


def _scale_gates(unit: Unit, gates: str, hard_gates: list[str], context: ConversionContext) -> Unit:
    """Return a recurrent layer whose weights of gates with ``hard_sigmoid`` are multiplied."""
    if "activation" in hard_gates and "c" in gates:
        context.log.refuse(
            "activation",
            unit,
            f"{_what(unit)} applies hard_sigmoid to its cell state, but hard_sigmoid has a "
            f"different formula in {context.target.name}",
        )
        return unit
    message = (
        f"{_what(unit)} sets {hard_gates[0]} to hard_sigmoid, which has a different formula in "
        f"{context.target.name}"
    )
    if context.loaded.document.tensors is None:
        context.log.refuse(
            "activation",
            unit,
            f"{message}, and the file has no weights to rescale; convert the model with its "
            "weights",
        )
        return unit
    if not context.allow_weight_rewrite:
        context.log.refuse(
            WEIGHT_REWRITE,
            unit,
            f"{message}; use --allow weight-rewrite to rescale its weights so that "
            "predictions stay unchanged",
        )
        return unit
    width = unit.config.get("units", unit.config.get("filters"))
    if not isinstance(width, int):
        context.log.refuse(
            "activation",
            unit,
            (
                f"{_what(unit)} does not specify its number of units, which is required to "
                "rescale its weights for hard_sigmoid"
            ),
        )
        return unit
    factor = KERAS3_STEEPNESS if context.to_keras3 else 1 / KERAS3_STEEPNESS
    factors = tuple(
        factor
        if ("activation" if gate in _ACTIVATED else "recurrent_activation") in hard_gates
        else 1.0
        for gate in gates
        for _ in range(width)
    )
    names = _SCALED if unit.config.get("use_bias", True) else _SCALED[:2]
    context.log.change(
        "weights-multiplied",
        unit,
        f"the input of hard_sigmoid is multiplied by {factor:.4g}: {', '.join(names)}",
    )
    return replace(unit, scales={**unit.scales, **dict.fromkeys(names, factors)})


def _what(unit: Unit) -> str:
    return f"{unit.path} ({unit.class_name})"
