"""
Masks of recurrent layers that are given states: Keras 2 heeds the mask that travels with the
sequences, Keras 3 does not.

Keras 3 looks up masks of the single tensor of a call, and of several only for arguments such as
``query_mask``, which recurrent layers have none of (``Layer.__call__`` in
keras/src/layers/layer.py, 3.0 to 3.15). In Keras 2 the first mask of the list is taken
(``RNN.call`` in keras/layers/rnn/base_rnn.py). So Keras 3 is told the mask as an argument, which it
heeds; Keras 2 cannot be told to forget one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from policytool.migration.convert.architecture import Call, Network, Reference, Unit
from policytool.migration.convert.rewrites._base import ConversionContext, Rewrite
from policytool.migration.convert.rewrites._mask_graph import MaskGraph, each_network
from policytool.migration.convert.rewrites.calls import RECURRENT
from policytool.migration.convert.traversal import references


def _apply(root: Unit, situation: ConversionContext) -> Unit:
    return each_network(root, lambda network, graph: _mark_states(network, graph, situation))


def _mark_states(network: Network, graph: MaskGraph, situation: ConversionContext) -> Network:
    units: list[Unit] = []
    for unit in network.units:
        calls = []
        for call in unit.calls:
            sequences = _sequences(unit, call)
            kwargs = {}
            if sequences is not None and graph.may_be_masked(sequences):
                if situation.to_keras3:
                    kwargs = graph.mask(sequences, unit, units)
                if not kwargs:
                    situation.log.refuse(
                        "mask", unit, _refusal(unit, to_keras3=situation.to_keras3)
                    )
                else:
                    situation.log.change(
                        "mask",
                        unit,
                        "the mask of its sequences becomes an argument: Keras 3 heeds no other "
                        "where states are given",
                    )
            calls.append(replace(call, kwargs={**call.kwargs, **kwargs}))
        units.append(replace(unit, calls=tuple(calls)))
    return replace(network, units=tuple(units))


def _refusal(unit: Unit, *, to_keras3: bool) -> str:
    what = f"{unit.path} ({unit.class_name}) is given states, and its sequences may have a mask"
    if to_keras3:
        return (
            f"{what}, which Keras 3 does not heed then, and which is made of several layers: give "
            "it as the argument mask in the source"
        )
    return (
        f"{what}, which Keras 3 does not heed then, and Keras 2 does: give it as the argument mask "
        "in the source, or make no mask (mask_zero=False)"
    )


def _sequences(unit: Unit, call: Call) -> Reference | None:
    """
    Return the first input of a recurrent layer that is given states and no mask; None for any other
    call.
    """
    if (
        unit.class_name not in RECURRENT
        or unit.custom
        or not call.args
        or call.kwargs.get("mask") is not None
    ):
        return None
    given = call.args[0] if isinstance(call.args[0], list | tuple) else (call.args[0],)
    if not given:
        return None
    first, *others = given
    states = [*others, *call.args[1:2], call.kwargs.get("initial_state")]
    return (
        first
        if isinstance(first, Reference) and any(True for one in states for _ in references(one))
        else None
    )


REWRITE: Final = Rewrite(name="states", applies=lambda situation: situation.crosses, apply=_apply)
