"""
Compatibility of the model with the target release is unknown.

The model contains a custom class, a Lambda layer, an op that is called by name, or a key that no
known release writes. Only loading the model in the target release shows whether it is compatible.
If ``migrate --target`` can convert the model, the finding contains the command and the parts that
remain unknown; otherwise, it states the reason.

Sources: docs/reference/compatibility.md, which lists the checks and the results of loading the
fixtures in real releases.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.model.model import Obstacle
from policytool.releases.releases import release_name
from policytool.rules import conversion_advice
from policytool.rules.base import Needs, Rule
from policytool.rules.finding import Severity
from policytool.rules.loading import _targets

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.model.model import Cause
    from policytool.rules.base import AuditOptions, RuleInput
    from policytool.rules.finding import Finding


def check(case: RuleInput, options: AuditOptions) -> Iterator[Finding]:
    """
    Yield a finding for each target and open question; none for a target that refuses the file
    anyway.
    """
    for verdict in _targets.verdicts(case, options):
        if verdict.reason is None:
            for doubt in verdict.doubts:
                yield RULE.finding(
                    f"compatibility with {release_name(verdict.loader)} is unknown: "
                    f"{doubt.reason}{_targets.also(doubt)}",
                    path=doubt.layers[0] if doubt.layers else None,
                    address=_targets.address(case, doubt),
                    detail=_targets.detail(verdict, doubt),
                    advice=conversion_advice.doubt_advice(
                        case, verdict.loader, _otherwise(verdict.loader, doubt)
                    ),
                )


def _otherwise(loader: str, doubt: Cause) -> str:
    """Return what to do where migrate does not convert the file."""
    if doubt.kind is Obstacle.CONTAINER:
        return "load the model with tf.saved_model.load and use its signatures"
    return f"to check, load the model in {release_name(loader)} with the code of its classes"


RULE: Final = Rule(
    id="PT502",
    name="unknown-compatibility",
    severity=Severity.NOTE,
    fix=None,
    check=check,
    doc=__doc__,
    example='{"class_name": "Lambda", "config": {"function": ["4wEAAAAA...", null, null], ...}}, '
    "audited with --target keras3",
    needs=Needs.TARGET,
)
