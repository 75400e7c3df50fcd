"""
The variables of layers that ``adapt``: what they found is in their configs, and only the weights of
words are a variable too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.releases.layer_classes import layer_facts
from policytool.releases.layer_variables import VariableSlot

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.migration.convert.architecture import Unit
    from policytool.migration.convert.target import Target

_WEIGHTS: Final = "idf_weights"


def has_its_state_in_config(unit: Unit) -> bool:
    """Return whether what a layer stores is in its config by now."""
    return not unit.custom and layer_facts(unit.class_name).state_in_config


def adapted_slots(unit: Unit, target: Target) -> Iterator[VariableSlot]:
    """
    Yield where the target looks for a layer's weights: in an archive under their name, of a
    TextVectorization twice, and in HDF5 of Keras 2 once (tf_keras 2.21, Keras 3.15).
    """
    if _WEIGHTS not in unit.given or (target.is_keras3 and target.container == "h5"):
        return
    yield _slot(())
    inner = layer_facts(unit.class_name).inner_lookup
    if inner is not None and target.container == "keras":
        yield _slot((inner,))


def _slot(within: tuple[str, ...]) -> VariableSlot:
    return VariableSlot(
        name=_WEIGHTS,
        scopes=(),
        within=within,
        index=_WEIGHTS,
        attribute=_WEIGHTS,
        trainable=False,
        known_as=_WEIGHTS,
    )
