"""
Reports Keras 2 ConvLSTM layers that accept images of any size, because Keras 3 cannot build them
(``build`` in keras/src/layers/rnn/conv_lstm.py).
"""

from __future__ import annotations

from typing import Final

from policytool.migration.convert.architecture import Network, Role, Unit
from policytool.migration.convert.rewrites._base import ConversionContext, Rewrite
from policytool.migration.convert.rewrites._shapes import input_shape, layer_before
from policytool.migration.convert.traversal import references, walk
from policytool.model.tree import INPUT_CLASS

_CLASSES: Final = frozenset({"ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D"})
_SIZING: Final = frozenset({"CenterCrop", "Lambda", "RandomCrop", "Reshape", "Resizing"})
"""Layers whose output may have a known size where their input has none."""


def _apply(root: Unit, situation: ConversionContext) -> Unit:
    for model in walk(root):
        for unit in model.network.units if model.network is not None else ():
            if model.network is not None and _is_open(unit, model.network):
                situation.log.refuse(
                    "argument",
                    unit,
                    f"{unit.path} ({unit.class_name}) accepts images of any size, but "
                    f"{situation.target.name} requires a fixed size; set the input shape of the "
                    "model and save it again",
                )
    return root


def _is_open(unit: Unit, network: Network) -> bool:
    """Return whether a layer is a ConvLSTM that gets a size which the model leaves open."""
    inner = unit.config.get("layer") if unit.class_name == "Bidirectional" else unit
    if not isinstance(inner, Unit) or inner.class_name not in _CLASSES or inner.custom:
        return False
    sizes = slice(3, None) if inner.config.get("data_format") == "channels_first" else slice(2, -1)
    before: Unit | None = unit
    around: list[tuple[Unit, Network]] = []
    is_open_inside = False
    while before is not None:
        shape = input_shape(before, network)
        if isinstance(shape, list):
            if None not in shape[sizes] or not around:
                return None in shape[sizes]
            is_open_inside = True  # a nested model is built for what it is called on
            before, network = around.pop()
            continue
        before = layer_before(before, network)
        while before is not None and before.network is not None and before.network.units:
            around.append((before, network))
            network = before.network  # what a model gives is what its last layer gives
            before = _last(network)
        if before is not None and _may_size(before):
            return is_open_inside
    return is_open_inside


def _last(network: Network) -> Unit | None:
    """Return the layer whose tensor is the first output of a network."""
    if network.is_chain:
        return network.units[-1]
    output = next(references(network.outputs), None)
    return network.unit(output.layer) if output is not None else None


def _may_size(unit: Unit) -> bool:
    is_layer = unit.role is Role.LAYER and unit.network is None and unit.class_name != INPUT_CLASS
    return not is_layer or unit.custom or unit.class_name in _SIZING


REWRITE: Final = Rewrite(
    name="convlstm",
    after=("inputs",),  # has the shapes of inputs where Keras 3 has them
    applies=lambda situation: situation.crosses and situation.to_keras3,
    apply=_apply,
)
