"""The backward layer of a Bidirectional, which configs of Keras 2 mostly leave out."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from policytool.migration.convert.traversal import map_units

if TYPE_CHECKING:
    from policytool.migration.convert.architecture import Unit
    from policytool.model.loaded_model import LoadedModel

BACKWARD: Final = "backward_layer"
"""What a Bidirectional and its config call it by."""


def backward_twin(unit: Unit, forward: Unit, loaded: LoadedModel) -> Unit | None:
    """
    Return the forward layer of a Bidirectional with the variables of its backward layer; None if
    the file has none of it.
    """
    if unit.site is None or forward.site is None:
        return None
    children = loaded.children[unit.site]
    other = next((one for one in children if loaded.sites[one].attribute == BACKWARD), None)
    if other is None:
        return None
    sites = dict(zip(loaded.below(forward.site), loaded.below(other), strict=False))
    return map_units(
        forward,
        lambda one: replace(one, site=sites.get(one.site) if one.site is not None else None),
    )
