"""
The layers that built-in layers make by themselves, as the facts of their classes list them.

The names of cells are fixed from TF 2.13 on; before, they carry a number per process
(``lstm_cell_3``), which only the names of HDF5 weights contain, from TF 2.2 on.

The projections of attention layers are made without a dtype up to TF 2.13, and so take the global
policy; from 2.14 on they take the layer's (``MultiHeadAttention._get_common_kwargs_for_sublayer``).
Softmax and Dropout are left out: their names are numbered per process and stand nowhere in a
config.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from policytool.releases.generations._base import SubLayer, SubPolicy
from policytool.releases.layer_classes import Category, classes_of, layer_facts

if TYPE_CHECKING:
    from collections.abc import Mapping


def _cells(*, to_tf25: bool = False) -> Mapping[str, tuple[SubLayer, ...]]:
    """Return the cells that each recurrent layer creates, which have their own dtype."""
    cells_by_layer = {}
    for name in classes_of(Category.RECURRENT):
        facts = layer_facts(name)
        older = facts.sublayers_to_tf25 if to_tf25 else {}
        cells_by_layer[name] = tuple(
            SubLayer(
                attribute=attribute,
                class_name=sublayer.class_name,
                name=sublayer.name,
                numbered=True,
            )
            for attribute, sublayer in (older or facts.sublayers).items()
        )
    return MappingProxyType({name: cells for name, cells in cells_by_layer.items() if cells})


def _projections(policy: SubPolicy, *, private: bool = False) -> Mapping[str, tuple[SubLayer, ...]]:
    """
    Return the projections that each attention layer creates.

    :param private: whether the names of all attributes begin with an underscore, as in Keras 2;
        Keras 3 walks attributes by name, and finds MultiHeadAttention's public properties first
    """
    projections_by_layer = {
        name: tuple(
            SubLayer(
                attribute=f"_{attribute.removeprefix('_')}" if private else attribute,
                class_name=sublayer.class_name,
                name=sublayer.name,
                policy=policy,
            )
            for attribute, sublayer in layer_facts(name).sublayers.items()
        )
        for name in classes_of(Category.ATTENTION)
    }
    return MappingProxyType(
        {name: projections for name, projections in projections_by_layer.items() if projections}
    )


CELLS: Final = _cells()
CELLS_TO_TF25: Final = _cells(to_tf25=True)
"""Up to TF 2.5 there is one convolutional cell, of another class and name."""

WITH_GLOBAL_POLICY: Final = _projections(SubPolicy.GLOBAL, private=True)
WITH_OWN_POLICY: Final = _projections(SubPolicy.OWN, private=True)
KERAS3_ATTENTION: Final = _projections(SubPolicy.OWN)
