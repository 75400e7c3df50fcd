"""
Model fails to load in the newest Keras.

``pip install tensorflow`` and ``pip install keras`` install the newest Keras. One finding
summarizes all causes. With ``--target``, this rule reports nothing, and the other loading rules
report each cause. If the model is meant for another release, specify that release with
``--target``, or skip this rule with ``--ignore``.

Sources: docs/reference/compatibility.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.releases.releases import KERAS3, newest, release_name
from policytool.rules.base import Rule
from policytool.rules.finding import Fix, Severity
from policytool.rules.loading import _targets

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.rules.base import AuditOptions, RuleInput
    from policytool.rules.finding import Finding


def check(case: RuleInput, options: AuditOptions) -> Iterator[Finding]:
    """Yield one finding with the first cause; none if no release at all loads the model."""
    found = case.model.loaders
    if options.targets or case.loaded is None or all(one.reason is not None for one in found):
        return
    verdict = next((one for one in found if one.loader == newest(KERAS3).id), None)
    if verdict is None or not verdict.causes:
        return
    first, *others = verdict.causes
    more = f"; {len(others)} more cause{'s' if others[1:] else ''}" if others else ""
    yield RULE.finding(
        f"{release_name(verdict.loader)}, the newest Keras, fails to load the model: {first.reason}"
        f"{_targets.at(first)}{more}",
        remedy=_targets.remedy(case, verdict),
    )


RULE: Final = Rule(
    id="PT505",
    name="newest-keras-fails",
    severity=Severity.WARNING,
    fix=Fix.SAFE,
    check=check,
    doc=__doc__,
    example='"dtype": {"class_name": "Policy", ...} in an HDF5 file, audited without --target',
)
