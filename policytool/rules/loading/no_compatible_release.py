"""
Model fails to load in every checked release.

The checked releases include the release that wrote the file, or the releases directly before and
after it. The cause is therefore one of the following: the file was already unreadable when it was
written, it was damaged or edited later, or no other release can read its format. ``migrate
--target`` can often convert the file for a release of the same library.

Sources: docs/reference/compatibility.md. Among the fixtures, the causes are bfloat16 variables in
HDF5, subclassed models in HDF5, models with Keras 3 operations in HDF5, and archives with an
unexpected file extension (fixtures/loads.json).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.model.model import Obstacle
from policytool.releases.releases import release_name
from policytool.rules import conversion_advice
from policytool.rules.base import Rule
from policytool.rules.finding import Fix, Severity
from policytool.rules.loading import _targets

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.rules.base import AuditOptions, RuleInput
    from policytool.rules.finding import Finding


def check(case: RuleInput, _options: AuditOptions) -> Iterator[Finding]:
    """Yield one finding about the file, with the cause that the loader of its own family gives."""
    found = case.model.loaders
    if not found or case.loaded is None or any(verdict.reason is None for verdict in found):
        return
    own = next(verdict for verdict in found if verdict.loader == case.loaded.loader)
    cause = next(
        (cause for cause in own.causes if cause.kind is not Obstacle.POLICY), own.causes[0]
    )
    remedy = _targets.remedy(case, own)
    yield RULE.finding(
        f"fails to load in all {len(found)} checked releases; in {release_name(own.loader)}: "
        f"{cause.reason}{_targets.at(cause)}",
        remedy=remedy,
        advice=None
        if remedy
        else conversion_advice.advice(
            case, own.loader, "build the model from its code and load the weights into it"
        ),
    )


RULE: Final = Rule(
    id="PT503",
    name="no-compatible-release",
    severity=Severity.ERROR,
    fix=Fix.SAFE,
    check=check,
    doc=__doc__,
    example="an HDF5 file whose variables are stored as bfloat16",
)
