"""
A policy of the experimental API of TF 2.0 to 2.8, which carried a loss scale.

``Policy`` with a ``loss_scale`` (TF 2.1 to 2.3) and ``PolicyV1`` (TF 2.4 to 2.8) are no longer written by any release. TF 2.1 to 2.3 refuse PolicyV1, Keras 3
refuses both, and every loader from TF 2.4 on drops the loss scale without a word. ``migrate`` writes the bare name, which computes the same.

Sources: tensorflow/python/keras/mixed_precision/policy.py of TF 2.3.4 and 2.5.3; the measured table in docs/loaders.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.finding import Fix, Remedy, Severity
from policytool.planning.loss_scale import spells_scale
from policytool.rules._base import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.finding import Finding
    from policytool.rules._base import Case, Question


def check(case: Case, _question: Question) -> Iterator[Finding]:
    """Yield the layers whose policy is one."""
    if case.subject is None:
        return
    for site, layer in zip(case.subject.sites, case.model.layers, strict=True):
        spelled = site.spelled
        if site.sub_policy is None and isinstance(spelled, dict) and (spelled.get("class_name") == "PolicyV1" or spells_scale(spelled)):
            message = f"{layer.path} spells {layer.policy} as the experimental API did ({spelled.get('class_name')} with a loss scale)"
            yield RULE.finding(message, path=layer.path, address=layer.address, remedy=Remedy(fix=Fix.SAFE))


RULE: Final = Rule(
    id="PT101",
    name="experimental-policy",
    severity=Severity.WARNING,
    fix=Fix.SAFE,
    check=check,
    doc=__doc__,
    example='"dtype": {"class_name": "PolicyV1", "config": {"name": "mixed_float16", "loss_scale": {"class_name": "FixedLossScale", ...}}}',
)
