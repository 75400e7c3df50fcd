"""The input shapes of MultiHeadAttention layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.migration.convert.rewrites._base import ConversionContext, layer_rewrite
from policytool.releases.generations import SubPolicy
from policytool.releases.policy import Policy

if TYPE_CHECKING:
    from policytool.migration.convert.architecture import Unit, Value

_CLASS: Final = "MultiHeadAttention"
_SHAPES: Final = ("query_shape", "key_shape", "value_shape")
_SINCE: Final = "tf2.5"
_CAUSAL: Final = "use_causal_mask"
_CAUSAL_SINCE: Final = "tf2.10"
"""The release that brought the argument (keras/layers/attention/multi_head_attention.py)."""

_ORDINARY: Final = "float32"


@layer_rewrite(
    after=("policies",),  # looks at the one policy of a layer
    applies=lambda situation: True,  # noqa: ARG005  # releases of Keras 2 differ too
)
def attention(unit: Unit, situation: ConversionContext) -> Unit:
    """
    Converts the input shapes that Keras 2 stores for MultiHeadAttention layers
    (``_build_from_signature`` in keras/layers/attention/multi_head_attention.py).

    TF 2.5 to tf_keras 2.21 need the keys in a config, and build the layer from them, or when it is
    called where they are null. TF 2.4 and Keras 3 know no such keys; Keras 3 keeps the shapes as
    ``shapes_dict`` in ``build_config``.
    """
    if unit.class_name != _CLASS:
        return unit
    target = situation.target
    if not target.since(_CAUSAL_SINCE) and any(call.kwargs.get(_CAUSAL) for call in unit.calls):
        message = (
            f"{unit.path} ({_CLASS}) is called with {_CAUSAL}, which {target.name} does not "
            "support; use attention_mask in the source instead"
        )
        situation.log.refuse("call", unit, message)
    policy = unit.config.get("dtype")
    if (
        isinstance(policy, Policy)
        and policy.name != _ORDINARY
        and _follows_loader(unit, situation) != _makes_follow_loader(situation)
    ):
        words = ["the global policy", "the policy of the layer"]
        before, after = words if _follows_loader(unit, situation) else reversed(words)
        message = (
            f"inner layers of {unit.path} use {before} in the release that wrote the file, but "
            f"{after} in {target.name}"
        )
        situation.log.caution("attention-policy", unit, message)
    if target.is_keras3 or not target.since(_SINCE):
        kept = [key for key in _SHAPES if key in unit.config]
        if kept:
            situation.log.change(
                "key-dropped",
                unit,
                f"{', '.join(kept)} of {_CLASS} are omitted: {target.name} infers them from "
                "the call",
            )
        return unit.without(*_SHAPES)
    if all(key in unit.config for key in _SHAPES):
        return unit
    shapes: Value = unit.build.get("shapes_dict") if unit.build is not None else None
    known = shapes if isinstance(shapes, dict) else {}
    value: Value = known.get("value_shape")
    found = {
        "query_shape": known.get("query_shape"),
        "value_shape": value,
        "key_shape": known.get("key_shape") or value,
    }
    situation.log.change(
        "key-added",
        unit,
        f"{', '.join(_SHAPES)} of {_CLASS} are added because {target.name} requires them",
    )
    return unit.with_config(**(found if all(found.values()) else dict.fromkeys(found)))


def _follows_loader(unit: Unit, situation: ConversionContext) -> bool:
    """
    Return whether the projections of an attention are made under the global policy of whoever loads
    the file as it is (TF 2.4 to 2.12).
    """
    sites = situation.loaded.sites
    below = situation.loaded.children[unit.site] if unit.site is not None else ()
    return any(sites[child].sub_policy is SubPolicy.GLOBAL for child in below)


def _makes_follow_loader(situation: ConversionContext) -> bool:
    return any(
        sub.policy is SubPolicy.GLOBAL
        for sub in situation.target.generation.composites.get(_CLASS, ())
    )
