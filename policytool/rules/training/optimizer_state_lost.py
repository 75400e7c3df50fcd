"""
Target release does not restore the optimizer state.

The model and its training configuration load without an error, but training restarts with an empty
optimizer state. The running averages that Adam and other optimizers store for each weight are zero.
From HDF5 files, Keras 3 restores the number of steps but not the averages, so the first steps also
lack the bias correction.

Sources: measured with 76 compiled models written by 16 releases: each model was loaded in the
releases that support it, and the loaded state was compared with the stored state; keras-team/keras
issues 15709 and 18112.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.model.compatibility import training_incompatibilities
from policytool.releases.releases import release_name
from policytool.rules.base import Needs, Rule
from policytool.rules.finding import Severity
from policytool.rules.training._said import evidence, takers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.rules.base import AuditOptions, RuleInput
    from policytool.rules.finding import Finding


def check(case: RuleInput, options: AuditOptions) -> Iterator[Finding]:
    """Yield a finding for each target that loses it."""
    found = evidence(case)
    if found is None:
        return
    for target in takers(case, options):
        row = training_incompatibilities.first(training_incompatibilities.LOST, found, target)
        if row is not None:
            message = (
                f"{release_name(target)} does not restore the state of the saved optimizer: "
                f"{row.reason}"
            )
            yield RULE.finding(message, detail=target, advice=row.advice)


RULE: Final = Rule(
    id="PT206",
    name="optimizer-state-lost",
    severity=Severity.WARNING,
    fix=None,
    check=check,
    doc=__doc__,
    example="an HDF5 file whose optimizer is a LossScaleOptimizerV3, audited with --target tf2.15",
    needs=Needs.TARGET,
)
