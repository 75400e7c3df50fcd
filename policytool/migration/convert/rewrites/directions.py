"""
The directions of a Bidirectional, and the states that it and other recurrent layers start from, in
Keras 2.

Keras 3 writes both layers with the names they have when built, ``forward_lstm`` and
``backward_lstm``, and takes a backward layer that is given as it is called
(``Bidirectional.__init__`` in keras/src/layers/rnn/bidirectional.py); Keras 2 puts the same words
before whatever it reads (keras/layers/rnn/bidirectional.py), so what it calls ``backward_lstm``
stands as ``lstm`` in its files. Keras 2 does not cast states to the compute dtype, and fails on
float32 ones.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from policytool.migration.convert.architecture import Network, Reference, Unit
from policytool.migration.convert.rewrites._base import ConversionContext, Rewrite
from policytool.migration.convert.rewrites.calls import RECURRENT
from policytool.migration.convert.traversal import map_units
from policytool.model.tree import INPUT_CLASS
from policytool.releases.policy import Policy

_SIXTEEN: Final = frozenset({"float16", "bfloat16"})
_PREFIXES: Final = {"layer": "forward_", "backward_layer": "backward_"}


def _apply(root: Unit, situation: ConversionContext) -> Unit:
    if situation.to_keras3:
        return map_units(root, lambda unit: _as_built(unit) if _is_bidirectional(unit) else unit)

    def change(unit: Unit) -> Unit:
        if unit.network is not None and not unit.network.is_chain:
            _judge(unit.network, situation)
        return _name_directions(unit, situation) if _is_bidirectional(unit) else unit

    return map_units(root, change)


def _is_bidirectional(unit: Unit) -> bool:
    return unit.class_name == "Bidirectional" and not unit.custom


def _as_built(unit: Unit) -> Unit:
    """
    Return a Bidirectional of Keras 2 whose backward layer is called what Keras 2 calls it once it
    is loaded.
    """
    inner = unit.config.get("backward_layer")
    return (
        unit.with_config(
            backward_layer=replace(inner, name=_PREFIXES["backward_layer"] + inner.name)
        )
        if isinstance(inner, Unit)
        else unit
    )


def _name_directions(unit: Unit, situation: ConversionContext) -> Unit:
    found: dict[str, Unit] = {}
    for key, prefix in _PREFIXES.items():
        inner = unit.config.get(key)
        if isinstance(inner, Unit) and inner.name.startswith(prefix):
            found[key] = replace(inner, name=inner.name.removeprefix(prefix))
    if found:
        situation.log.change(
            "renamed",
            unit,
            "its layers are named without forward_ and backward_, which Keras 2 puts before their "
            "names",
        )
    return unit.with_config(**found)


def _judge(network: Network, situation: ConversionContext) -> None:
    """Refuse calls of 16-bit recurrent layers with states that are inputs of the model."""
    inputs = {
        unit.name
        for unit in network.units
        if unit.class_name == INPUT_CLASS and unit.config.get("dtype") == "float32"
    }
    for unit in network.units:
        policy = unit.config.get("dtype")
        if (
            unit.class_name not in RECURRENT
            or not isinstance(policy, Policy)
            or policy.compute_dtype not in _SIXTEEN
        ):
            continue
        states = [
            one
            for call in unit.calls
            if call.args and isinstance(call.args[0], list)
            for one in call.args[0][1:]
        ]
        if any(isinstance(one, Reference) and one.layer in inputs for one in states):
            message = (
                f"{unit.path} ({unit.class_name}) starts from float32 states, which Keras 2 does "
                f"not cast to its {policy.compute_dtype}, and fails on"
            )
            situation.log.refuse("call", unit, message)


REWRITE: Final = Rewrite(
    name="directions",
    after=("calls", "policies"),  # looks at states where Keras 2 has them, and at one policy
    applies=lambda situation: situation.crosses,
    apply=_apply,
)
