"""
A training configuration that a target refuses, though it takes the model.

``load_model`` then fails, unless it is called with ``compile=False``. Keras renamed the
loss-scaling wrapper four times and its arguments twice; optimizers of TF 2.11 on have other names
and arguments than those before; and Keras 3 does not find in HDF5 what it wrote there itself, a
loss called ``'mse'``. Losses and metrics of the user's own leave it open: PT603 names them.

Sources: measured by loading 83 compiled files of 17 releases with 15 loaders, with ``compile=True``
and ``compile=False``; GantMan/nsfw_model issue 164.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.rules import conversion_advice
from policytool.rules.base import Needs, Rule
from policytool.rules.finding import Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.rules.base import AuditOptions, RuleInput
    from policytool.rules.finding import Finding


def check(case: RuleInput, options: AuditOptions) -> Iterator[Finding]:
    """Yield a finding for each target that refuses it."""
    for verdict in case.model.loaders:
        training = verdict.training
        if verdict.loader in options.targets and training is not None and training.reason:
            yield RULE.finding(
                f"{verdict.loader} refuses the training configuration: {training.reason}",
                detail=verdict.loader,
                advice=conversion_advice.advice(
                    case, verdict.loader, "load it with compile=False and compile it again"
                ),
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
