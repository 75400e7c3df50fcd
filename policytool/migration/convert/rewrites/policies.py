"""Policy maps and quantized layers."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from policytool.migration.convert.architecture import (
    Role,
    SerializedObject,
    Unit,
    map_layers,
    map_units,
)
from policytool.migration.convert.rewrites._base import (
    ConversionContext,
    Split,
    layer_beside,
    layer_rewrite,
    rewrite,
    splice,
)
from policytool.migration.result_dtypes import promoted_dtype
from policytool.model.model import Source
from policytool.releases.layer_classes import layer_facts
from policytool.releases.policy import Policy, PolicyMap, policy_from_name
from policytool.support.errors import PolicyNameError

if TYPE_CHECKING:
    from policytool.migration.convert.architecture import Value
    from policytool.model.loaded_model import LoadedModel

_QUANTISATION: Final = "quantization_config"
_QUANTISING: Final = "keras3.3"
"""The first measured release with quantized layers."""

_FIRST_MODES: Final = frozenset({"int8", "float8"})

_NOT_CONFIGURING: Final = "keras3.6"
"""The last measured release whose layer configs do not contain the quantization config."""

_DEFAULTS: Final = {
    "Int8QuantizationConfig": ("weight_quantizer", "activation_quantizer"),
    "Float8QuantizationConfig": (),
}
_ABS_MAX: Final = {"value_range": [-127, 127], "epsilon": 1e-07, "output_dtype": "int8"}
"""The quantizer for the inputs of int8 layers, the same in all releases."""

_DIRECTIONS: Final = 2

_MAPPING: Final = "keras3.6"
"""The first measured release with policy maps, which were added in Keras 3.4."""


@rewrite(
    applies=lambda context: (
        context.from_keras3 and not (context.to_keras3 and context.target.after(_NOT_CONFIGURING))
    ),
)
def policies(root: Unit, context: ConversionContext) -> Unit:
    """
    Converts or reports policy maps and quantized layers that the target does not support.

    Keras 2 and Keras 3 before 3.4 have no maps: a layer gets its policy from the map.
    """

    def change(unit: Unit) -> Unit:
        """Convert or refuse the policy of one layer."""
        policy = unit.config.get("dtype")
        if isinstance(policy, PolicyMap) and not context.target.since(_MAPPING):
            return _convert(unit, context)
        if (
            isinstance(policy, Policy)
            and policy.quantization is not None
            and not _quantises(policy.quantization.mode, context)
        ):
            return _refuse_quantized(unit, policy, context)
        return _without_default(unit, context)

    return map_units(root, change)


@rewrite(applies=lambda context: context.to_keras3 and not context.from_keras3)
def wrappers(root: Unit, context: ConversionContext) -> Unit:
    """
    Gives TimeDistributed and Bidirectional the policy of their layers: in Keras 3, the wrapper
    decides the dtype of the output. If the directions of a Bidirectional return different dtypes,
    an Activation casts the output of the narrower one.

    TimeDistributed of Keras 3 calls ``layer.call`` for each step, without a cast to the layer's
    dtype; Bidirectional casts the results of its layers. Measured with tf_keras 2.21 and Keras
    3.15: the inputs are no longer rounded to the dtype of the wrapper. A nested model in a wrapper
    calls its layers itself.
    """
    root = map_layers(root, lambda unit: _with_policy_of_layers(unit, context))
    for output in range(_DIRECTIONS):
        root = splice(root, partial(_cast_direction, output))
    return root


def _with_policy_of_layers(unit: Unit, context: ConversionContext) -> Unit:
    """Return a wrapper that computes in the dtype of its layers, or in the widest of them."""
    policies, outer_policy = _policies_of_layers(unit), unit.config.get("dtype")
    if not policies or not isinstance(outer_policy, Policy):
        return unit
    dtype = promoted_dtype(policy.compute_dtype for policy in policies)
    if dtype is None or dtype == outer_policy.compute_dtype:
        return unit
    policy = next(
        (policy for policy in policies if policy.compute_dtype == dtype), policy_from_name(dtype)
    )
    context.log.change(
        "policy",
        unit,
        f"the policy becomes {policy.name}, the policy of its layer: in {context.target.name}, "
        "the wrapper decides the dtype",
    )
    return unit.with_config(dtype=policy)


def _policies_of_layers(unit: Unit) -> list[Policy]:
    """Return the policies of the layers in a wrapper; none if one of them is unknown."""
    if layer_facts(unit.class_name).wraps not in {"steps", "directions"}:
        return []
    inner = [unit.config.get(key) for key in ("layer", "backward_layer")]
    layers = [layer for layer in inner if isinstance(layer, Unit) and layer.role is Role.LAYER]
    policies = [layer.config.get("dtype") for layer in layers]
    known = [policy for policy in policies if isinstance(policy, Policy)]
    return known if len(known) == len(policies) else []


def _cast_direction(output: int, unit: Unit) -> Split | None:
    """
    Return a Bidirectional that returns the results of both directions, with a cast of one of them;
    None if it has the dtype of its direction.
    """
    policies, outer_policy = _policies_of_layers(unit), unit.config.get("dtype")
    if (
        len(policies) != _DIRECTIONS
        or unit.custom
        or unit.config.get("merge_mode", "concat") is not None
        or not isinstance(outer_policy, Policy)
        or policies[output].compute_dtype == outer_policy.compute_dtype
    ):
        return None
    cast = layer_beside(unit, "Activation", "cast", dtype=policies[output], activation="linear")
    return Split(unit=unit, after=(cast,), output=output)


@layer_rewrite(
    after=("policies",),  # it replaces policy maps with policies
    applies=lambda context: context.from_keras3 and not context.to_keras3,
)
def wrapped_policies(unit: Unit, context: ConversionContext) -> Unit:
    """
    Gives the layer of a TimeDistributed the policy of the wrapper: in Keras 2, the layer decides
    the dtype of the output.

    Keras 3 calls ``layer.call`` for each step in the dtype of the wrapper. Bidirectional of Keras 3
    casts the results of its layers, which Keras 2 does not, so a warning names the dtypes.
    """
    inner, outer_policy = unit.config.get("layer"), unit.config.get("dtype")
    wraps = layer_facts(unit.class_name).wraps
    if not isinstance(inner, Unit) or inner.role is not Role.LAYER:
        return unit
    policy = inner.config.get("dtype")
    if (
        wraps not in {"steps", "directions"}
        or not isinstance(outer_policy, Policy)
        or not isinstance(policy, Policy)
        or outer_policy.compute_dtype == policy.compute_dtype
    ):
        return unit
    if wraps == "steps" and not any(isinstance(value, Unit) for value in inner.config.values()):
        context.log.change(
            "policy",
            inner,
            f"the policy becomes {outer_policy.name}, the policy of its wrapper, which decides the "
            "dtype in Keras 3",
        )
        return unit.with_config(layer=inner.with_config(dtype=outer_policy))
    context.log.caution(
        "wrapper-dtype",
        unit,
        f"{unit.path} ({unit.class_name}) returns {policy.compute_dtype} in {context.target.name}, "
        f"the dtype of its layer, instead of {outer_policy.compute_dtype}",
    )
    return unit


def _quantises(mode: str, context: ConversionContext) -> bool:
    """
    Return whether the target supports a quantization mode: int8 was added in Keras 3.1, float8 in
    3.3, the other modes after 3.6.
    """
    return (
        context.to_keras3
        and context.target.since(_QUANTISING)
        and (mode in _FIRST_MODES or context.target.after(_NOT_CONFIGURING))
    )


def _without_default(unit: Unit, context: ConversionContext) -> Unit:
    """
    Return a layer without its quantization config, if the target does not have the key and always
    quantizes this way (measured with Keras 3.3, 3.6 and 3.15).
    """
    quantization = unit.config.get(_QUANTISATION)
    if (
        not isinstance(quantization, SerializedObject)
        or isinstance(quantization.config, str | None)
        or context.target.after(_NOT_CONFIGURING)
    ):
        return unit
    known = _DEFAULTS.get(quantization.class_name)
    if known is None or any(
        key not in known or not _is_default(value) for key, value in quantization.config.items()
    ):
        return unit
    context.log.change(
        "key-dropped",
        unit,
        f"{_QUANTISATION} of {unit.class_name} is omitted: {context.target.name} "
        "always uses this quantization",
    )
    return unit.without(_QUANTISATION)


def _is_default(value: Value) -> bool:
    return value is None or (
        isinstance(value, SerializedObject)
        and value.class_name == "AbsMaxQuantizer"
        and value.config == _ABS_MAX
    )


def _reader(context: ConversionContext) -> str:
    return context.target.loader if context.to_keras3 else "Keras 2"


def _refuse_quantized(unit: Unit, policy: Policy, context: ConversionContext) -> Unit:
    """
    Refuse a quantized layer, and remove the keys that would only cause further refusals.
    """
    context.log.refuse(
        "policy",
        unit,
        f"{unit.path} ({unit.class_name}) has the quantized policy {policy.name}, which "
        f"{_reader(context)} does not support; convert a copy that was saved before quantize()",
    )
    return unit.without("dtype", _QUANTISATION)


def _convert(unit: Unit, context: ConversionContext) -> Unit:
    """
    Return a layer with the policy that its policy map assigns to it; without one if the map assigns
    none. A map with several policies is refused.
    """
    if unit.site is not None and context.loaded.layers[unit.site].source is Source.GLOBAL:
        context.log.change(
            "policy",
            unit,
            "its policy map assigns no policy and is omitted; the global policy still applies",
        )
        return unit.with_config(dtype=None)
    policy, inner = _policies_of(unit.site, context.loaded)
    if policy is None:
        context.log.refuse(
            "policy",
            unit,
            f"{unit.path} ({unit.class_name}) has a policy map instead of one plain policy, "
            f"but {_reader(context)} requires a plain policy; set a policy for the layer",
        )
        return unit.without("dtype", _QUANTISATION)
    others = sorted({name for name in inner if name != policy.name})
    if others:
        message = (
            f"{unit.path} ({unit.class_name}) has the policy {policy.name}, but its policy map "
            f"sets {', '.join(others)} for inner layers; {_reader(context)} supports only one "
            "policy for both"
        )
        context.log.refuse("policy", unit, f"{message}; set one policy with --set")
        return unit.with_config(dtype=policy)
    context.log.change(
        "policy",
        unit,
        f"its policy map becomes {policy.name}, the policy that the map assigns to the layer",
    )
    return unit.with_config(dtype=policy)


def _policies_of(site: int | None, loaded: LoadedModel) -> tuple[Policy | None, tuple[str, ...]]:
    """
    Return the policy of a layer, and the names of the policies of the layers that it creates.
    """
    name = loaded.layers[site].policy if site is not None else None
    if site is None or name is None or loaded.layers[site].quantization is not None:
        return None, ()
    inner = (
        loaded.layers[child].policy
        for child in loaded.children[site]
        if loaded.sites[child].sub_policy is not None
    )
    try:
        return policy_from_name(name), tuple(
            policy_name for policy_name in inner if policy_name is not None
        )
    except PolicyNameError:
        return None, ()
