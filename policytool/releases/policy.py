"""
A dtype policy as a value: what a layer computes in, what it stores its variables in, how its loss
is scaled, how it is quantised.

This module knows the *names*, which are shared by all generations; how each generation spells a
policy in a config is in
:mod:`policytool.releases.generations`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct

from policytool.releases import dtypes
from policytool.support.errors import PolicyNameError
from policytool.support.text.phrases import did_you_mean

if TYPE_CHECKING:
    from policytool.support.text.jsontext import Json


class Dynamic(Struct, frozen=True, kw_only=True):
    """
    A loss scale that halves on overflow and grows after ``growth_steps`` finite steps (TF 2.1's
    DynamicLossScale and its defaults).
    """

    initial: float = 2.0**15
    growth_steps: int = 2000
    multiplier: float = 2.0


class Fixed(Struct, frozen=True, kw_only=True):
    """A loss scale that never changes."""

    value: float


def loss_scale_values(scale: Dynamic | Fixed | None) -> dict[str, Json] | None:
    """Return the JSON form of a loss scale in reports and jobs; None without a loss scale."""
    match scale:
        case Fixed(value=value):
            return {"kind": "fixed", "value": value}
        case Dynamic():
            return {
                "kind": "dynamic",
                "initial": scale.initial,
                "growth_steps": scale.growth_steps,
                "multiplier": scale.multiplier,
            }
    return None


class Auto(Struct, frozen=True, kw_only=True):
    """
    The loss scale of an experimental policy without an explicit one: dynamic for ``mixed_float16``,
    otherwise none.
    """


class Unscaled(Struct, frozen=True, kw_only=True):
    """An explicit ``loss_scale=None``: no loss scaling, even under ``mixed_float16``."""


LossScale: TypeAlias = Dynamic | Fixed | Auto | Unscaled


GLOBAL_SOURCE: Final = "(global)"
"""The source of a quantized policy that the file leaves to the program that loads it."""


class Quantization(Struct, frozen=True, kw_only=True):
    """The quantization of a layer in Keras 3."""

    mode: str
    """
    ``int8``, ``int4``, ``int4/<block size>``, ``float8``, ``gptq/<bits>/<group>`` or
    ``awq/<bits>/<group>``.
    """

    source: str
    """
    The name of the policy that the layer had before it was quantised; it gives the compute and the
    variable dtype. :data:`GLOBAL_SOURCE` is the policy that is global when the file is loaded.
    """

    amax_history_length: int | None = None
    """
    The number of steps for which a float8 layer stores its largest values; None if the file does
    not contain it.
    """


class Policy(Struct, frozen=True, kw_only=True):
    """One dtype policy."""

    name: str
    compute_dtype: str | None
    """The dtype of the layer's arithmetic; None if the first input determines it (``infer``)."""

    variable_dtype: str | None
    """The dtype of the layer's variables; None if the first input determines it."""

    loss_scale: LossScale | None = None
    """
    The loss scale; None for policies without one: all policies except the experimental policy of
    TF 2.0 to 2.6.
    """

    quantization: Quantization | None = None

    @property
    def should_cast_variables(self) -> bool:
        """Whether variables are cast before use, as in a mixed policy."""
        return self.compute_dtype != self.variable_dtype

    @property
    def effective_loss_scale(self) -> Dynamic | Fixed | None:
        """The loss scale with ``Auto`` resolved by its rule; None for no scaling."""
        match self.loss_scale:
            case Auto():
                return Dynamic() if self.name == "mixed_float16" else None
            case Unscaled() | None:
                return None
            case scale:
                return scale


class PolicyMap(Struct, frozen=True, kw_only=True):
    """Keras 3.4's ``DTypePolicyMap``: a policy for each layer path. None is the global policy."""

    default: Policy | None
    policies: tuple[tuple[str, Policy | None], ...]

    @property
    def name(self) -> str:
        """The name of the map in Keras."""
        return f"map_{self.default.name}" if self.default else "map"


class Lifecycle(Struct, frozen=True, kw_only=True):
    """The releases that introduced, deprecated and removed a name, and its replacement."""

    introduced: str
    deprecated: str | None = None
    removed: str | None = None
    replacement: str | None = None


_FLOAT_LIFE: Final = Lifecycle(introduced="TF 1.15")
_FLOAT8_LIFE: Final = Lifecycle(
    introduced="TF 2.12", removed="Keras 3.0", replacement="float8_from_<policy>"
)
_MIXED_LIFE: Final = Lifecycle(introduced="TF 1.15")
WITH_VARS: Final = "_with_float32_vars"
_LIVES: Final = {
    "infer": Lifecycle(
        introduced="TF 1.14", removed="TF 2.3", replacement="the dtype of the first input"
    ),
    "_infer": Lifecycle(
        introduced="TF 2.3", removed="Keras 3.0", replacement="the dtype of the first input"
    ),
    "infer_float32_vars": Lifecycle(
        introduced="TF 1.14",
        deprecated="TF 1.15",
        removed="TF 2.1",
        replacement="mixed_float16 or mixed_bfloat16, depending on the first input",
    ),
    "infer_with_float32_vars": Lifecycle(
        introduced="TF 1.15",
        removed="TF 2.1",
        replacement="mixed_float16 or mixed_bfloat16, depending on the first input",
    ),
}
_VARIABLE_DTYPES: Final = {"infer_float32_vars": "float32", "infer_with_float32_vars": "float32"}
_WITH_VARS_SOURCES: Final = ("float16", "bfloat16", "float32", "float64")
_REPLACEMENTS: Final = {
    "float16": "mixed_float16",
    "bfloat16": "mixed_bfloat16",
    "float32": "float32",
}
_GROUP: Final = r"/(?:-1|[1-9]\d{0,8})"
_QUANTIZED: Final = re.compile(
    rf"(?P<mode>int8|float8|int4(?:{_GROUP})?|gptq/[2348]{_GROUP}|awq/4{_GROUP})_from_(?P<source>\w+)"
)
"""
``_get_quantized_dtype_policy_by_str`` and the constructors it calls
(keras/src/dtype_policies/dtype_policy.py); -1 is one group per channel.
"""

_MODE_LIVES: Final = {
    "int8": Lifecycle(introduced="Keras 3.1"),
    "float8": Lifecycle(introduced="Keras 3.3"),
    "int4": Lifecycle(introduced="Keras 3.11"),
    "int4/": Lifecycle(introduced="Keras 3.14"),  # with a group size, such as int4/128
    "gptq": Lifecycle(introduced="Keras 3.12"),
    "awq": Lifecycle(introduced="Keras 3.14"),
}


def mode_lifecycle(mode: str) -> Lifecycle:
    """
    Return the releases that have a quantization mode, such as ``int8`` or ``gptq/4/128``.

    :raises KeyError: if no known release has the mode.
    """
    name, slash, _ = mode.partition("/")
    return _MODE_LIVES[name + slash if name == "int4" else name]


_INT8_FLOAT16_LIFE: Final = Lifecycle(
    introduced="Keras 3.1",
    removed="Keras 3.3",
    replacement="int8_from_mixed_bfloat16 or int8_from_float32",
)
"""From 3.3 on, ``_check_quantization_mode`` rejects a float16 compute dtype."""

LISTED: Final = (
    *("float32", "float16", "bfloat16", "float64", "mixed_float16", "mixed_bfloat16"),
    *(
        "int8_from_float32",
        "int4_from_float32",
        "int4/128_from_float32",
        "float8_from_mixed_bfloat16",
    ),
    *("gptq/4/128_from_float32", "awq/4/128_from_float32"),
    *("infer", "_infer", "infer_float32_vars", "infer_with_float32_vars"),
    *(f"{dtype}{WITH_VARS}" for dtype in _WITH_VARS_SOURCES),
)
"""
The names in the reference: every float and mixed policy, an example of each kind of quantized
policy, and the removed names.
"""


def policy_from_name(name: str, loss_scale: LossScale | None = None) -> Policy:
    """
    Return the policy of this name.

    :raises PolicyNameError: for a name that no release of TensorFlow or Keras accepts; the message
        lists those that are valid.
    """
    if name in {"mixed_float16", "mixed_bfloat16"}:
        return Policy(
            name=name,
            compute_dtype=name.removeprefix("mixed_"),
            variable_dtype="float32",
            loss_scale=loss_scale,
        )
    if name in dtypes.NAMES:
        return Policy(name=name, compute_dtype=name, variable_dtype=name, loss_scale=loss_scale)
    if name in _LIVES:
        return Policy(
            name=name,
            compute_dtype=None,
            variable_dtype=_VARIABLE_DTYPES.get(name),
            loss_scale=loss_scale,
        )
    if name.removesuffix(WITH_VARS) in _WITH_VARS_SOURCES and name.endswith(WITH_VARS):
        return Policy(
            name=name,
            compute_dtype=name.removesuffix(WITH_VARS),
            variable_dtype="float32",
            loss_scale=loss_scale,
        )
    if match := _QUANTIZED.fullmatch(name):
        return quantized_policy(match["mode"], match["source"])
    raise PolicyNameError(_unknown_name_message(name))


def quantized_policy(mode: str, source: str, *, amax_history_length: int | None = None) -> Policy:
    """
    Return the policy of a layer of Keras 3 that was quantized in ``mode`` from the policy
    ``source``.

    :raises PolicyNameError: for a mode that no release has, and if ``source`` is not a policy of
        Keras 3.
    """
    quantization = Quantization(mode=mode, source=source, amax_history_length=amax_history_length)
    name = f"{mode}_from_{source}"
    if source == GLOBAL_SOURCE and _QUANTIZED.fullmatch(f"{mode}_from_float32"):
        return Policy(name=name, compute_dtype=None, variable_dtype=None, quantization=quantization)
    match = _QUANTIZED.fullmatch(name)
    if (
        match is None
        or (match["mode"], match["source"]) != (mode, source)
        or source in _LIVES
        or source.endswith(WITH_VARS)
    ):
        raise PolicyNameError(_unknown_name_message(name))
    base = policy_from_name(source)
    return Policy(
        name=name,
        compute_dtype=base.compute_dtype,
        variable_dtype=base.variable_dtype,
        quantization=quantization,
    )


def lifecycle(policy: Policy) -> Lifecycle:
    """Return the first and the last release with this policy's name, and its replacement."""
    if policy.quantization:
        mode = policy.quantization.mode
        if mode == "int8" and policy.compute_dtype == "float16":
            return _INT8_FLOAT16_LIFE
        return mode_lifecycle(mode)
    if policy.name in _LIVES:
        return _LIVES[policy.name]
    if policy.name.endswith(WITH_VARS):
        source = policy.name.removesuffix(WITH_VARS)
        return Lifecycle(
            introduced="TF 1.15",
            deprecated="TF 2.0",
            removed="TF 2.1",
            replacement=_REPLACEMENTS.get(source, source),
        )
    if policy.name.startswith("mixed_"):
        return _MIXED_LIFE
    return _FLOAT8_LIFE if policy.name.startswith("float8_") else _FLOAT_LIFE


def is_removed(policy: Policy) -> bool:
    """Return whether the newest release raises an error for the name of the policy."""
    return lifecycle(policy).removed is not None


_SHORT: Final = re.compile(
    r"(?:mixed_?)?(?:(bf|bfloat|brain)|(f|fp|float|half))_?(16)?(?:_?mixed)?", re.ASCII
)


def meant_policy(name: str) -> str | None:
    """Return the policy that a short name of other libraries means; None for other names."""
    folded = re.sub(r"\W", "_", name.casefold())
    if re.fullmatch(r"(?:fp|f|float|single)_?(?:32)?", folded) and folded not in {"f", "fp"}:
        return "float32"
    match = _SHORT.fullmatch(folded)
    if match and (match[3] or folded.removeprefix("mixed_") in {"half", "brain"}):
        return f"mixed_{'b' if match[1] else ''}float16"
    return None


def _suggestion(name: str) -> str:
    """Return the end of a sentence about an unknown name of a policy, with the policy it means."""
    meant = meant_policy(name)
    return did_you_mean(name, LISTED) if meant is None else f". Did you mean {meant!r}?"


@lru_cache(maxsize=256)  # a name is read by the rules of one release after the other
def _unknown_name_message(name: str) -> str:
    """Return the message about an unknown name of a policy, with the valid names."""
    valid = "any dtype (float32, float16, bfloat16, float64, ...), mixed_float16, mixed_bfloat16"
    quantised = (
        "int8_from_<policy>, int4[/<block>]_from_<policy>, float8_from_<policy>, "
        "gptq/<bits>/<group>_from_<policy>, awq/<bits>/<group>_from_<policy>"
    )
    removed = "infer, infer_with_float32_vars, <dtype>_with_float32_vars"
    return (
        f"unknown policy {name!r}{_suggestion(name)} Supported: {valid}; quantized in "
        f"Keras 3: {quantised}; removed but still recognized: {removed}"
    )
