"""
Training configuration fails to load in the target release.

The model itself loads, or will load once its policies are rewritten, but ``load_model`` fails
unless you pass ``compile=False``. Keras renamed
the loss-scaling wrapper four times and its arguments twice. The optimizers in TF 2.11 and later
have different names and arguments than in earlier releases. Keras 3 cannot read the loss ``'mse'``
from HDF5 files, not even from files that it wrote. The rule does not check custom losses and
metrics; PT603 lists them.

Sources: measured with 83 compiled models that were written by 17 releases and loaded in 15 releases
with ``compile=True`` and ``compile=False``; GantMan/nsfw_model issue 164.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.releases.releases import release_name
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
                f"training configuration fails to load in {release_name(verdict.loader)}: "
                f"{training.reason}",
                detail=verdict.loader,
                advice=conversion_advice.advice(
                    case, verdict.loader, "load the model with compile=False and compile it again"
                ),
            )


RULE: Final = Rule(
    id="PT205",
    name="incompatible-optimizer",
    severity=Severity.ERROR,
    fix=None,
    check=check,
    doc=__doc__,
    example='"optimizer_config": {"class_name": "LossScaleOptimizer", "config": '
    '{"inner_optimizer": ...}}, audited with --target tf2.3',
    needs=Needs.TARGET,
)
