"""Policy formats that several generations share."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from policytool.releases import keras_objects
from policytool.releases import policy as policies
from policytool.releases.policy import Auto, Dynamic, Fixed, LossScale, Policy, PolicyMap, Unscaled
from policytool.support.errors import PolicyNameError, SpellingError
from policytool.support.text import jsontext

if TYPE_CHECKING:
    from policytool.support.text.jsontext import Json

LOSS_SCALE: Final = "loss_scale"
KERAS2_CLASSES: Final = frozenset({"Policy", "PolicyV1"})
"""The classes of policy dicts of Keras 2."""


def parse_name(value: Json, loss_scale: LossScale | None = None) -> Policy:
    """
    Return the policy of a bare name.

    :raises SpellingError: if the value is not a policy name.
    """
    if not isinstance(value, str):
        raise SpellingError(f"expected the name of a policy, found {_display(value)}")
    try:
        return policies.policy_from_name(value, loss_scale)
    except PolicyNameError as error:
        raise SpellingError(str(error)) from error


def parse_keras2(value: Json, loss_scales: dict[str, bool]) -> Policy:
    """
    Return the policy of a bare name, or of a Keras 2 dict.

    :param loss_scales: by policy class, whether policies of the class have a loss scale; ``Auto``
        is the default of those that have one
    :raises SpellingError: for other values.
    """
    if isinstance(value, str):
        return parse_name(value)
    class_name, config = class_and_config(value)
    if class_name not in loss_scales:
        raise SpellingError(
            f"expected a policy of class {' or '.join(loss_scales)}, found {class_name}"
        )
    scaled = loss_scales[class_name] or LOSS_SCALE in config
    return parse_name(config.get("name"), parse_loss_scale(config) if scaled else None)


def class_and_config(value: Json) -> tuple[str, dict[str, Json]]:
    """
    Return the class and the config of a serialized object.

    :raises SpellingError: if the value is not a serialized object.
    """
    serialized = keras_objects.read(value)
    if serialized is not None and isinstance(serialized.config, dict):
        return serialized.class_name, serialized.config
    raise SpellingError(
        "expected the name of a policy or a dict with class_name and config, found "
        f"{_display(value)}"
    )


def parse_loss_scale(config: dict[str, Json]) -> LossScale:
    """
    Return the loss scale of an experimental policy's or an old LossScaleOptimizer's config.

    :raises SpellingError: for a loss scale that no release writes or accepts.
    """
    value = config.get(LOSS_SCALE, "auto")
    match value:
        case None:
            return Unscaled()
        case "auto":
            return Auto()
        case "dynamic":
            return Dynamic()
        case bool() | int() | float():
            return Fixed(value=number(config, LOSS_SCALE))
    class_name, inner = class_and_config(value)
    match class_name:
        case "FixedLossScale":
            return Fixed(value=number(inner, "loss_scale_value"))
        case "DynamicLossScale":
            return Dynamic(
                initial=number(inner, "initial_loss_scale", Dynamic().initial),
                growth_steps=whole(inner, "increment_period", Dynamic().growth_steps),
                multiplier=number(inner, "multiplier", Dynamic().multiplier),
            )
    raise SpellingError(
        f"expected a loss scale of class FixedLossScale or DynamicLossScale, found {class_name}"
    )


def render_loss_scale(scale: LossScale | None) -> dict[str, Json]:
    """
    Return the config entries for the loss scale of an experimental policy; none without an explicit
    loss scale.
    """
    match scale:
        case Fixed(value=value):
            return {LOSS_SCALE: keras_objects.short("FixedLossScale", {"loss_scale_value": value})}
        case Dynamic():
            config: dict[str, Json] = {
                "initial_loss_scale": scale.initial,
                "increment_period": scale.growth_steps,
                "multiplier": scale.multiplier,
            }
            return {LOSS_SCALE: keras_objects.short("DynamicLossScale", config)}
        case Unscaled():
            return {LOSS_SCALE: None}
    return {}


def plain(policy: Policy | PolicyMap, generation: str) -> Policy:
    """
    Return the policy unchanged if every Keras 2 release supports its kind.

    :raises SpellingError: for quantized policies, float8 policies and policy maps of Keras 3, and
        for removed names.
    """
    if isinstance(policy, PolicyMap):
        raise SpellingError(
            f"{generation} does not support policy maps, which need Keras 3.4 or later"
        )
    if policy.quantization:
        raise SpellingError(
            f"{generation} does not support quantized policies, which need Keras 3.1 or later"
        )
    if policy.name.startswith("float8"):
        raise SpellingError(f"{generation} does not support float8, which needs Keras 3")
    if policies.is_removed(policy):
        raise SpellingError(
            f"{generation} does not write {policy.name}: {lifetime_sentence(policy)}"
        )
    return policy


def without_loss_scale(policy: Policy, generation: str) -> Policy:
    """
    Return the policy unchanged if it has no explicit loss scale, which would be lost.

    :raises SpellingError: for an explicit loss scale.
    """
    if isinstance(policy.loss_scale, Dynamic | Fixed | Unscaled):
        raise SpellingError(
            f"{generation} does not support a loss scale in policies; since TF 2.4, only "
            "optimizers have one"
        )
    return replace(policy, loss_scale=None)


def lifetime_sentence(policy: Policy) -> str:
    """Return the releases that have the policy's name, and its replacement, in a sentence."""
    life = policies.lifecycle(policy)
    return f"available from {life.introduced} to {life.removed}; replaced by {life.replacement}"


def number(config: dict[str, Json], key: str, default: float | None = None) -> float:
    """
    Return a number of a config.

    :raises SpellingError: if it is not a number, or is missing and has no default.
    """
    value = config.get(key, default)
    parsed_number = jsontext.number(value)
    if parsed_number is None:
        raise SpellingError(f"expected a number for {key}, found {_display(value)}")
    return parsed_number


def whole(config: dict[str, Json], key: str, default: int) -> int:
    """
    Return a whole number of a config.

    :raises SpellingError: if the value is not a finite number.
    """
    value = number(config, key, default)
    if not math.isfinite(value):
        raise SpellingError(f"expected a whole number for {key}, found {value}")
    return int(value)


def _display(value: Json) -> str:
    text = repr(value)
    longest = 60
    return text if len(text) <= longest else f"{text[:longest]}..."
