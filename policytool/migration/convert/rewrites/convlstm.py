"""ConvLSTM layers that accept images of any size."""

from __future__ import annotations

from typing import Final

from policytool.migration.convert.architecture import Network, Unit, walk
from policytool.migration.convert.rewrites._base import ConversionContext, rewrite
from policytool.migration.convert.tensor_dtypes import Sizes, image_sizes

_CLASSES: Final = frozenset({"ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D"})


@rewrite(
    after=("inputs",),  # has the shapes of inputs where Keras 3 has them
    applies=lambda context: context.crosses and context.to_keras3,
)
def convlstm(root: Unit, context: ConversionContext) -> Unit:
    """
    Reports Keras 2 ConvLSTM layers that accept images of any size, because Keras 3 cannot build
    them (``build`` in keras/src/layers/rnn/conv_lstm.py).
    """
    for model in walk(root):
        for unit in model.network.units if model.network is not None else ():
            if model.network is not None and _has_open_sizes(unit, model.network):
                context.log.refuse(
                    "argument",
                    unit,
                    f"{unit.path} ({unit.class_name}) accepts images of any size, but "
                    f"{context.target.name} requires a fixed size; set the input shape of the "
                    "model and save it again",
                )
    return root


def _has_open_sizes(unit: Unit, network: Network) -> bool:
    """Return whether a layer is a ConvLSTM that gets a size which the model leaves open."""
    inner = unit.config.get("layer") if unit.class_name == "Bidirectional" else unit
    if not isinstance(inner, Unit) or inner.class_name not in _CLASSES or inner.custom:
        return False
    sizes = image_sizes(network, str(inner.config.get("data_format")))
    return sizes[unit.name, 0] in {Sizes.OPEN, Sizes.OPEN_INSIDE}
