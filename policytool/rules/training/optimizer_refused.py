"""
A training configuration that a target refuses, though it takes the model.

``load_model`` then fails, unless it is called with ``compile=False``. Keras renamed the
loss-scaling wrapper four times and its arguments twice; optimizers of TF 2.11 on have other names
and arguments than those before; and Keras 3 does not find in HDF5 what it wrote there itself, a
loss called ``'mse'``.

Sources: measured by loading 83 compiled files of 17 releases with 15 loaders, with ``compile=True``
and ``compile=False``; GantMan/nsfw_model issue 164.
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
    """Yield a finding for each target that refuses it."""
    found = evidence(case)
    if found is None:
        return
    for target in takers(case, options):
        row = training_incompatibilities.first(training_incompatibilities.REFUSALS, found, target)
        if row is not None:
            yield RULE.finding(
                f"{target} refuses the training configuration: {row.reason}",
                detail=target,
                advice=row.advice,
            )


RULE: Final = Rule(
    id="PT205",
    name="optimizer-refused",
    severity=Severity.ERROR,
    fix=None,
    check=check,
    doc=__doc__,
    example='--target tf2.3 and "optimizer_config": {"class_name": "LossScaleOptimizer", "config": '
    '{"inner_optimizer": ...}}',
    needs=Needs.TARGET,
)
