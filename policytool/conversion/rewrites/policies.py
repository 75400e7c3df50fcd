"""
Maps of policies, which Keras 2 and Keras 3 before 3.4 have no notion of: a layer gets the one policy that the map gives it; and quantised layers, which
Keras 2 and Keras 3.0 have none of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.conversion.architecture import Unit, mapped
from policytool.conversion.rewrites._base import Rewrite, Situation
from policytool.errors import PolicyNameError
from policytool.model import Source
from policytool.policy import Policy, PolicyMap, named

if TYPE_CHECKING:
    from policytool.planning.subject import Subject

_QUANTISATION: Final = "quantization_config"
_QUANTISING: Final = "keras3.3"
"""The first loader that has quantised layers: int8 came with Keras 3.1."""

_MAPPING: Final = "keras3.6"
"""The first loader that has maps of policies, which came with Keras 3.4."""


def _apply(root: Unit, situation: Situation) -> Unit:
    def change(unit: Unit) -> Unit:
        policy = unit.config.get("dtype")
        if isinstance(policy, PolicyMap):
            return _changed(unit, situation)
        quantised = isinstance(policy, Policy) and policy.quantization is not None and not situation.target.since(_QUANTISING)
        return _quantised(unit, policy, situation) if quantised and isinstance(policy, Policy) else unit

    return mapped(root, change)


def _reader(situation: Situation) -> str:
    return situation.target.loader if situation.to_keras3 else "Keras 2"


def _quantised(unit: Unit, policy: Policy, situation: Situation) -> Unit:
    """Refuse a quantised layer, once: what else of it the target cannot be told follows from that."""
    text = f"{unit.path} ({unit.class_name}) has the quantised policy {policy.name}, and {_reader(situation)} has no quantised layers; save the model before quantize()"
    situation.log.refuse("policy", unit, text)
    return unit.without("dtype", _QUANTISATION)


def _changed(unit: Unit, situation: Situation) -> Unit:
    if unit.site is not None and situation.subject.layers[unit.site].source is Source.LOADER:
        situation.log.change("policy", unit, "its map of policies gives it none, and is left out: the loader's global policy decides, as before")
        return unit.with_config(dtype=None)
    policy, inner = _of(unit.site, situation.subject)
    if policy is None:
        text = f"{unit.path} ({unit.class_name}) has a map of policies that gives it no single plain one, which {_reader(situation)} needs; give the layer one"
        situation.log.refuse("policy", unit, text)
        return unit.without("dtype", _QUANTISATION)
    others = sorted({name for name in inner if name != policy.name})
    if others:
        message = f"{unit.path} ({unit.class_name}) has policy {policy.name} and within it {', '.join(others)}, by its map: {_reader(situation)} has one for both"
        situation.log.refuse("policy", unit, f"{message}; give them one, as with --set")
        return unit.with_config(dtype=policy)
    situation.log.change("policy", unit, f"its map of policies becomes {policy.name}, which the map gives it")
    return unit.with_config(dtype=policy)


def _of(site: int | None, subject: Subject) -> tuple[Policy | None, tuple[str, ...]]:
    """Return the policy of a layer, and the names of those of the layers that it makes by itself."""
    name = subject.layers[site].policy if site is not None else None
    if site is None or name is None or subject.layers[site].quantization is not None:
        return None, ()
    inner = (subject.layers[child].policy for child in subject.children[site] if subject.sites[child].sub_policy is not None)
    try:
        return named(name), tuple(one for one in inner if one is not None)
    except PolicyNameError:
        return None, ()


REWRITE: Final = Rewrite(name="policies", applies=lambda situation: situation.from_keras3 and not (situation.to_keras3 and situation.target.since(_MAPPING)), apply=_apply)
