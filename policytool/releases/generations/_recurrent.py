"""
The cells that recurrent layers make themselves, with their own dtype.

Their names are fixed from TF 2.13 on; before, they carry a number per process (``lstm_cell_3``),
which stands in the names of HDF5 weights from TF 2.2 on and nowhere else.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from policytool.releases.generations._base import SubLayer

if TYPE_CHECKING:
    from collections.abc import Mapping


def _cell(class_name: str, name: str) -> tuple[SubLayer, ...]:
    return (SubLayer(attribute="cell", class_name=class_name, name=name, numbered=True),)


_PLAIN: Final = {
    "SimpleRNN": _cell("SimpleRNNCell", "simple_rnn_cell"),
    "GRU": _cell("GRUCell", "gru_cell"),
    "LSTM": _cell("LSTMCell", "lstm_cell"),
}

CELLS: Final[Mapping[str, tuple[SubLayer, ...]]] = MappingProxyType(
    {
        **_PLAIN,
        **dict.fromkeys(
            ("ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D"), _cell("ConvLSTMCell", "conv_lstm_cell")
        ),
    }
)

CELLS_TO_TF25: Final[Mapping[str, tuple[SubLayer, ...]]] = MappingProxyType(
    {**_PLAIN, "ConvLSTM2D": _cell("ConvLSTM2DCell", "conv_lst_m2d_cell")}
)
"""Up to TF 2.5 there is one convolutional cell, of another class and name."""
