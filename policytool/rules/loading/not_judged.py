"""
Something in the model that leaves open whether a target takes it.

A custom class, a Lambda, an op called by name, a key that no release was seen to write: the loader
may take them or not, and the file does not tell. What is not judged is no promise in either
direction; the loader itself tells. Where ``migrate --target`` writes the model anew for the loader,
the finding says so, and what stays open; where it cannot, the finding says why.

Sources: docs/loaders.md says what is judged, and what the real loaders made of the fixtures that
are not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.model.model import Obstacle
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
                    f"whether {verdict.loader} takes the file is not judged: "
                    f"{doubt.reason}{_targets.also(doubt)}",
                    path=doubt.layers[0] if doubt.layers else None,
                    address=_targets.address(case, doubt),
                    detail=_targets.detail(verdict, doubt),
                    advice=conversion_advice.advice(
                        case, verdict.loader, _otherwise(verdict.loader, doubt)
                    ),
                )


def _otherwise(loader: str, doubt: Cause) -> str:
    """Return what to do where migrate does not convert the file."""
    if doubt.kind is Obstacle.CONTAINER:
        return "use its signatures: tf.saved_model.load returns them"
    return f"load it once with {loader} and the code of its classes"


RULE: Final = Rule(
    id="PT502",
    name="not-judged",
    severity=Severity.NOTE,
    fix=None,
    check=check,
    doc=__doc__,
    example='audit --target keras3 of {"class_name": "Lambda", "config": {"function": '
    '["4wEAAAAA...", '
    "null, null], ...}}",
    needs=Needs.TARGET,
)
