"""
A policy of the experimental API of TF 2.0 to 2.8, which carried a loss scale.

``Policy`` with a ``loss_scale`` (TF 2.1 to 2.3) and ``PolicyV1`` (TF 2.4 to 2.8, which wrote it for
every policy of that API) are no longer written by any release. TF 2.1 to 2.3 refuse PolicyV1, Keras
3 refuses both, and every loader from TF 2.4 on drops the loss scale without a word. ``migrate``
writes the bare name, which computes the same; what the loss of the scale means for training is said
by loss-scale-dropped and loss-scale-inert.

Sources: tensorflow/python/keras/mixed_precision/policy.py of TF 2.3.4 and 2.5.3; the measured table
in docs/loaders.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.migration.planning.loss_scale import spells_scale
from policytool.rules.base import Rule
from policytool.rules.finding import Fix, Remedy, Severity
from policytool.rules.spelling._spelled import describe_layers, everywhere

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.rules.base import AuditOptions, RuleInput
    from policytool.rules.finding import Finding


def check(case: RuleInput, _options: AuditOptions) -> Iterator[Finding]:
    """Yield a finding for the layers whose policy is one."""
    found = (
        [one for one in everywhere(case.loaded) if one.is_experimental]
        if case.loaded is not None
        else []
    )
    if found:
        path, layers = describe_layers(found)
        names = ", ".join(sorted({str(one.name) for one in found}))
        classes = " and ".join(sorted({str(one.class_name) for one in found}))
        scaled = " with a loss scale" if any(spells_scale(one.value) for one in found) else ""
        message = (
            f"{layers} {'spells' if path else 'spell'} {names} as the experimental API did "
            f"({classes}{scaled})"
        )
        yield RULE.finding(
            message, path=path, address=found[0].address, remedy=Remedy(fix=Fix.SAFE)
        )


RULE: Final = Rule(
    id="PT101",
    name="experimental-policy",
    severity=Severity.WARNING,
    fix=Fix.SAFE,
    check=check,
    doc=__doc__,
    example='"dtype": {"class_name": "PolicyV1", "config": {"name": "mixed_float16", "loss_scale": '
    '{"class_name": "FixedLossScale", ...}}}',
)
