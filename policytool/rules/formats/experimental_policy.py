"""
Layers use a policy created with the experimental API of TF 2.0 to 2.8.

For these policies, TF 2.1 to 2.3 wrote ``Policy`` with a ``loss_scale``, and TF 2.4 to 2.8 wrote
``PolicyV1``. Current releases write neither format. TF 2.1 to 2.3 cannot read PolicyV1, Keras 3
cannot read either format, and TF 2.4 and later silently drop the loss scale. ``migrate`` writes
only the policy name, which keeps predictions unchanged. The rules loss-scale-dropped and
ineffective-loss-scale report how the dropped loss scale affects training.

Sources: tensorflow/python/keras/mixed_precision/policy.py in TF 2.3.4 and 2.5.3; the measurements
in docs/reference/compatibility.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.migration.planning.loss_scale import spells_scale
from policytool.rules.base import Rule
from policytool.rules.finding import Fix, Remedy, Severity
from policytool.rules.formats._spelled import describe_layers, everywhere

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
            f"{layers} {'uses' if path else 'use'} {names} in the format of the "
            f"experimental API ({classes}{scaled})"
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
