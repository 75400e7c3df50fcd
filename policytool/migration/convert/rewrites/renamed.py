"""Arguments and classes with other names."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from policytool.migration.convert.rewrites._base import ConversionContext, layer_rewrite
from policytool.releases.layer_classes import layer_facts

if TYPE_CHECKING:
    from policytool.migration.convert.architecture import Unit, Value


@layer_rewrite(
    after=("keras1",),  # knows classes of Keras 2 alone
    applies=lambda situation: situation.crosses,
)
def renamed(unit: Unit, situation: ConversionContext) -> Unit:
    """
    Converts keys and classes that have different names but the same meaning.
    """
    facts = layer_facts(unit.class_name)
    for keras2, keras3 in facts.renamed_arguments.items():
        here, there = (keras2, keras3) if situation.to_keras3 else (keras3, keras2)
        if here in unit.config:
            situation.log.change("key-renamed", unit, f"{here} becomes {there}")
            unit = replace(
                unit,
                config={there if key == here else key: value for key, value in unit.config.items()},
            )
    if not situation.to_keras3:
        return unit
    unused = [key for key in facts.unused_arguments if key in unit.config]
    if unused:
        situation.log.change(
            "key-dropped",
            unit,
            f"{', '.join(unused)} of {unit.class_name} are omitted: they have no effect",
        )
        unit = unit.without(*unused)
    if unit.class_name == "ThresholdedReLU":
        return _relu(unit, situation)
    if facts.predicts_as is not None:
        situation.log.change(
            "class-renamed",
            unit,
            f"{unit.class_name} becomes the equivalent {facts.predicts_as} with synchronized=True",
        )
        return replace(unit.with_config(synchronized=True), class_name=facts.predicts_as)
    return unit


def _relu(unit: Unit, situation: ConversionContext) -> Unit:
    """
    Return a ThresholdedReLU as a ReLU: x where it is above theta, and 0 elsewhere
    (keras/layers/activation/thresholded_relu.py).
    """
    theta: Value = unit.config.get("theta", 1.0)
    situation.log.change(
        "class-renamed",
        unit,
        "ThresholdedReLU becomes the equivalent ReLU with a threshold",
    )
    return replace(
        unit.without("theta").with_config(max_value=None, negative_slope=0.0, threshold=theta),
        class_name="ReLU",
    )
