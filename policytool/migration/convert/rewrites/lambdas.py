"""Lambda layers, whose Python bytecode no other release can read."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from policytool.migration.convert.architecture import (
    Network,
    ObjectKind,
    SerializedObject,
    Unit,
    map_layers,
    map_networks,
    unused_name,
    walk,
)
from policytool.migration.convert.masks.flow import makes_mask
from policytool.migration.convert.rewrites._base import ConversionContext, rewrite
from policytool.migration.convert.tensor_facts import compute_dtype, network_dtypes
from policytool.migration.plan import CUSTOM_CODE
from policytool.model.calls import Reference, tensors
from policytool.model.hazards import LAMBDA
from policytool.releases import keras_objects, lambda_code, symbols
from policytool.releases.known_arguments import LAYERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from policytool.model.calls import Argument

_KEYS: Final = ("arguments", "function", "mask", "module", "output_shape")
"""The beginnings of the arguments that only a Lambda has."""

REPLACED: Final = "lambda"
"""The code of the change of a Lambda to a Rescaling."""

NAMED: Final = "named-lambda"
"""The code of the change of a Lambda to one that calls a function by name."""

_RESCALING: Final = "Rescaling"


def _may_have_rescalings(context: ConversionContext) -> bool:
    """Return whether the model has a Lambda, and the target a Rescaling."""
    return any(site.class_name == LAMBDA for site in context.loaded.sites) and not (
        context.target.lacks(LAYERS, _RESCALING, module=context.target.writes_modules)
    )


@rewrite(
    applies=_may_have_rescalings,
)
def linear_lambdas(root: Unit, context: ConversionContext) -> Unit:
    """
    Replaces a Lambda whose bytecode multiplies, divides, adds or subtracts numbers, such as
    ``x / 255.0``, with a Rescaling. No code is executed.

    Both layers compute in float32. A Lambda drops the mask of its input, and a Rescaling of Keras 3
    keeps it, so a model with masks is not changed.
    """
    if any(makes_mask(unit) for unit in walk(root)):
        return root

    def change(network: Network) -> Network:
        units = [
            _rescaling(unit, network, place, context) if unit.class_name == LAMBDA else unit
            for place, unit in enumerate(network.units)
        ]
        return replace(network, units=tuple(units))

    return map_networks(root, change)


def lambda_expression(unit: Unit, context: ConversionContext) -> lambda_code.Expression | None:
    """Return what a Lambda computes, from its config in the file; None if that is unknown."""
    return None if unit.site is None else lambda_code.expression(context.loaded.config(unit.site))


@rewrite(
    after=("linear_lambdas",),
    applies=lambda context: (
        context.crosses and context.to_keras3 and context.target.container != "h5"
    ),
)
def named_lambdas(root: Unit, context: ConversionContext) -> Unit:
    """
    Replaces the code of a Lambda with the name of a function, which the program that loads the
    model passes in ``custom_objects``.

    Keras 3 infers the shape of its output; Keras 3.3 fails to load a stored shape.
    """
    functions: dict[str, str] = {}

    def change(unit: Unit) -> Unit:
        if unit.class_name != LAMBDA or unit.config.get("mask") is not None or unit.site is None:
            return unit
        code = context.loaded.config(unit.site)
        function = code.get("function")
        if isinstance(function, str) and code.get("function_type") != "lambda":
            name = source = function
        else:
            # another name than the layer's: Keras 2 replaces a name with the function of that name
            name = unused_name(f"{unit.name}_function", {*functions})
            source = lambda_code.source(code) or "..."
        is_known = symbols.is_pure_name(name) or not symbols.is_custom_function(name)
        if is_known or not name.isidentifier():
            return unit
        functions[name] = source
        if source in {name, "..."}:
            context.log.unknown_functions[name] = None
        else:
            context.log.functions[name] = source
        text = f"Lambda calls the function {name} instead of its bytecode"
        context.log.change(NAMED, unit, text + _reason_against_rescaling(unit, context))
        kept = unit.without(*(key for key in unit.config if key.startswith(_KEYS)))
        return kept.with_config(
            function=SerializedObject(
                kind=ObjectKind.FUNCTION, class_name=keras_objects.FUNCTION, config=name
            ),
            arguments=unit.config.get("arguments") or {},
        )

    changed = map_layers(root, change)
    if functions:
        items = ", ".join(f'"{name}": {source}' for name, source in functions.items())
        is_shown = any(source not in {name, "..."} for name, source in functions.items())
        advice = "review this code of the file, or write your own" if is_shown else "write them"
        missing = (
            "; replace ... with code, which the report cannot show"
            if "..." in functions.values()
            else ""
        )
        context.log.caution(
            CUSTOM_CODE,
            None,
            f"to load the result, pass the functions of its Lambda layers; {advice}: "
            f"load_model(FILE, custom_objects={{{items}}}){missing}",
        )
    return changed


def _reason_against_rescaling(unit: Unit, context: ConversionContext) -> str:
    """
    Return why a linear Lambda does not become a Rescaling, which casts its factor to the compute
    dtype (keras/src/layers/preprocessing/rescaling.py); empty for other reasons.
    """
    expression, dtype = lambda_expression(unit, context), compute_dtype(unit)
    if expression is None or not expression.scale or dtype in {"float32", None}:
        return ""
    return f"; a Rescaling would round its numbers to {dtype}"


def _rescaling(unit: Unit, network: Network, place: int, context: ConversionContext) -> Unit:
    """Return a Rescaling that computes what a Lambda computes; the Lambda if no Rescaling does."""
    expression = lambda_expression(unit, context)
    if (
        unit.custom
        or expression is None
        or not expression.scale
        or compute_dtype(unit) != "float32"
        or unit.config.get("mask") is not None
        or not (expression.is_cast or _has_float32_inputs(unit, network, place))
    ):
        return unit
    context.log.change(
        REPLACED,
        unit,
        f"Lambda becomes Rescaling, which computes {expression.text} except for rounding",
    )
    kept = unit.without(*(key for key in unit.config if key.startswith(_KEYS)))
    return replace(
        kept.with_config(scale=expression.scale, offset=expression.offset),
        class_name=_RESCALING,
    )


def _has_float32_inputs(unit: Unit, network: Network, place: int) -> bool:
    """
    Return whether the layer gets float32 tensors: TensorFlow divides integers in another dtype than
    Rescaling. The first layer of a chain has inputs of its own dtype.
    """
    inputs: Sequence[Argument] = (
        [Reference(layer=before.name) for before in network.units[max(place - 1, 0) : place]]
        if network.is_chain
        else [tensor for call in unit.calls for tensor in tensors(call.args)]
    )
    dtypes = network_dtypes(network)
    found = {dtypes.of(tensor) for tensor in inputs}
    return found == {"float32"} or (network.is_chain and place == 0)
