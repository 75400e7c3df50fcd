"""
Layers have ``autocast=False``, which only SavedModels written by TF 2.12 and later preserve.

A layer with ``autocast=False`` does not cast its inputs. If the attribute is lost, the layer casts
its inputs to its compute dtype. TF 2.12, TF 2.15 and tf_keras 2.21 restore the attribute from a
SavedModel; TF 2.9 and older neither write nor read it. The attribute is also lost if Keras builds
the layer from a config in HDF5, ``.keras`` or JSON. The rule skips Functional and Sequential
models, op layers, and classes that always disable autocasting.

Sources: a model with ``Dense(autocast=False)`` that was saved and loaded as a SavedModel and as
HDF5 in TF 2.9, 2.12, 2.15 and tf_keras 2.21; https://github.com/keras-team/tf-keras/issues/328.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.releases.layer_classes import layer_facts
from policytool.releases.releases import KERAS2
from policytool.rules.base import Rule
from policytool.rules.finding import Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.rules.base import AuditOptions, RuleInput
    from policytool.rules.finding import Finding


def check(case: RuleInput, _options: AuditOptions) -> Iterator[Finding]:
    """Yield the layers."""
    if case.loaded is None:
        return
    for site, layer in zip(case.loaded.sites, case.model.layers, strict=True):
        facts = layer_facts(site.class_name)
        disabled = facts.is_op_layer or KERAS2 in facts.without_autocast
        if layer.autocast is False and not site.is_model and not disabled:
            message = (
                f"{layer.path} has autocast=False, which is lost if the model is saved in a "
                "format other than SavedModel or loaded in TF 2.9 or older"
            )
            yield RULE.finding(
                message,
                path=layer.path,
                address=layer.address,
                advice="to keep the setting in every format, disable autocasting in the "
                "constructor of a custom class",
            )


RULE: Final = Rule(
    id="PT405",
    name="autocast-lost",
    severity=Severity.NOTE,
    fix=None,
    check=check,
    doc=__doc__,
    example='"class_name": "Dense", "autocast": false',
)
