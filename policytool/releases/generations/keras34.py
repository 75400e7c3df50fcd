"""
Keras 3.4 and later: a dict for every policy, ``float32`` included, quantised policies with a mode
and a source, and policy maps.

keras/src/dtype_policies/dtype_policy.py and dtype_policy_map.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.releases import keras_objects, policy_formats
from policytool.releases import policy as policies
from policytool.releases.generations import _base
from policytool.releases.generations._base import Generation
from policytool.releases.policy import Policy, PolicyMap
from policytool.support.errors import PolicyNameError, SpellingError, short

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.support.text.jsontext import Json

TITLE: Final = "Keras 3.4 and later"

_PLAIN: Final = frozenset({"DTypePolicy", "FloatDTypePolicy"})
_QUANTIZED: Final = {
    "int8": "QuantizedDTypePolicy",
    "int4": "QuantizedDTypePolicy",
    "int4/": "Int4DTypePolicy",
    "float8": "QuantizedFloat8DTypePolicy",
    "gptq": "GPTQDTypePolicy",
    "awq": "AWQDTypePolicy",
}
_MAP: Final = "DTypePolicyMap"


def parse(value: Json) -> Policy | PolicyMap:
    """Return the policy of a bare name or of one of Keras 3's policy dicts."""
    if isinstance(value, str):
        return policy_formats.parse_name(value)
    class_name, config = policy_formats.class_and_config(value)
    if class_name == _MAP:
        return _parse_map(config)
    return _parse_policy(class_name, config)


def render(policy: Policy | PolicyMap) -> Json:
    """Return the dict of the policy."""
    if isinstance(policy, PolicyMap):
        entries: dict[str, Json] = {path: _render_entry(entry) for path, entry in policy.policies}
        default = render(policy.default) if policy.default else None
        return keras_objects.full(
            "keras.dtype_policies", _MAP, {"default_policy": default, "policy_map": entries}
        )
    if quantization := policy.quantization:
        source = None if quantization.source == policies.GLOBAL_SOURCE else quantization.source
        config: dict[str, Json] = {"mode": quantization.mode, "source_name": source}
        family = (
            "int4/"
            if quantization.mode.startswith("int4/")
            else quantization.mode.partition("/")[0]
        )
        if quantization.amax_history_length is not None:
            config["amax_history_length"] = quantization.amax_history_length
        return keras_objects.full("keras.dtype_policies", _QUANTIZED[family], config)
    if not policy.name.startswith("float8"):
        policy_formats.without_loss_scale(policy_formats.plain(policy, TITLE), TITLE)
    return keras_objects.full("keras", "DTypePolicy", {"name": policy.name})


def _parse_policy(class_name: str, config: dict[str, Json]) -> Policy:
    if class_name in _PLAIN:
        return policy_formats.parse_name(config.get("name"))
    mode = config.get("mode")
    source = config.get("source_name") or policies.GLOBAL_SOURCE
    if class_name not in _QUANTIZED.values():
        raise SpellingError(f"unknown policy class {short(class_name)}, which no known release has")
    if not isinstance(mode, str) or not isinstance(source, str):
        raise SpellingError(f"expected a {class_name} with a mode and a source_name")
    if mode.partition("/")[0] not in _QUANTIZED:
        raise SpellingError(f"unknown policy: no known release has the mode {short(mode)}")
    history = config.get("amax_history_length")
    try:
        return policies.quantized_policy(
            mode, source, amax_history_length=history if isinstance(history, int) else None
        )
    except PolicyNameError as error:
        raise SpellingError(str(error)) from error


def unknown_parts(value: Json) -> Iterator[str]:
    """
    Yield the classes and quantization modes of a policy that no known release has, such as those of
    a later release; nothing for classes of users.
    """
    serialized = keras_objects.read(value)
    if serialized is None or not f"{serialized.module}.".startswith("keras."):
        return
    entries = serialized.arguments.get("policy_map")
    for entry in entries.values() if isinstance(entries, dict) else ():
        yield from unknown_parts(entry)
    mode, is_custom = serialized.arguments.get("mode"), serialized.registered_name is not None
    if not is_custom and serialized.class_name not in {*_PLAIN, _MAP, *_QUANTIZED.values()}:
        yield f"the policy class {short(serialized.class_name)}"
    elif isinstance(mode, str) and mode.partition("/")[0] not in _QUANTIZED:
        yield f"the quantization mode {short(mode)}"


def _parse_map(config: dict[str, Json]) -> PolicyMap:
    entries, default = config.get("policy_map"), config.get("default_policy")
    if not isinstance(entries, dict):
        raise SpellingError("expected a policy_map in a DTypePolicyMap")
    return PolicyMap(
        default=_parse_entry(default),
        policies=tuple((path, _parse_entry(entry)) for path, entry in entries.items()),
    )


def _parse_entry(value: Json) -> Policy | None:
    """
    Return one policy of a map; null, or a dict whose name is null, leaves it to the loader's global
    policy.
    """
    if value is None:
        return None
    if isinstance(value, str):
        return policy_formats.parse_name(value)
    class_name, config = policy_formats.class_and_config(value)
    if config.get("name", "") is None:
        return None
    return _parse_policy(class_name, config)


def _render_entry(policy: Policy | None) -> Json:
    return render(policy) if policy else keras_objects.full("keras", "DTypePolicy", {"name": None})


GENERATION: Final = Generation(
    id="keras3.4+",
    title=TITLE,
    parse=parse,
    render=render,
    composites={**_base.CELLS, **_base.KERAS3_ATTENTION},
)
