"""
Every loader that was asked refuses the file.

The release that wrote it is among those that were asked, or lies between two of them: the file
could not be read back when it was written, was damaged or edited since, or was written by a release
that others do not follow. Often ``migrate --target`` writes it anew so that the loader of its own
family takes it.

Sources: docs/loaders.md; found so among the fixtures are bfloat16 variables in HDF5, subclassed
models in HDF5, models with operations of Keras 3 in HDF5, and archives under another suffix
(fixtures/loads.json).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.model.model import Obstacle
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
        f"none of the {len(found)} loaders that were asked takes the file; {own.loader}: "
        f"{cause.reason}{_targets.at(cause)}",
        remedy=remedy,
        advice=None
        if remedy
        else conversion_advice.advice(
            case, own.loader, "build the model with its own code and load the weights into it"
        ),
    )


RULE: Final = Rule(
    id="PT503",
    name="no-loader",
    severity=Severity.ERROR,
    fix=Fix.SAFE,
    check=check,
    doc=__doc__,
    example="an HDF5 file whose variables are stored as bfloat16",
)
