"""
Optimizer state that a target does not restore.

The model and its training configuration load without an error, and training goes on as if it had
just begun: the averages that Adam and others keep for each weight are zero. Keras 3 goes further
with HDF5: it restores the number of steps and none of the averages, so that the correction for the
first steps is missing too.

Sources: measured by loading 76 compiled files of 16 releases with the loaders that take them, and
comparing what the optimizer holds with what the file does; keras-team/keras issues 15709 and 18112.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.model.compatibility import training_incompatibilities
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
            message = f"{target} does not restore the state of the saved optimizer: {row.reason}"
            yield RULE.finding(message, detail=target, advice=row.advice)


RULE: Final = Rule(
    id="PT206",
    name="optimizer-state-lost",
    severity=Severity.WARNING,
    fix=None,
    check=check,
    doc=__doc__,
    example="--target tf2.15 and an HDF5 file whose optimizer is a LossScaleOptimizerV3",
    needs=Needs.TARGET,
)
