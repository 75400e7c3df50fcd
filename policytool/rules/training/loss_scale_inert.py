"""
A loss scale in policies that loaders drop, and whose loss changes nothing.

It stands in the saved optimizer too, or ``compile()`` does the same by itself, or only layers have
it: in every release the model's policy alone scales losses. Worth knowing before the model is
compiled anew, which forgets what stood in the optimizer.

Sources: tensorflow/python/keras/engine/training.py of TF 2.3.4 (``_get_optimizer``); measured by
saving with TF 2.1 to 2.6 and loading with TF 2.4 to 2.15, tf_keras 2.21 and Keras 3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.rules.base import Rule
from policytool.rules.finding import Severity
from policytool.rules.training._said import loss_scale_verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.rules.base import AuditOptions, RuleInput
    from policytool.rules.finding import Finding


def check(case: RuleInput, options: AuditOptions) -> Iterator[Finding]:
    """Yield a finding where a dropped loss scale changes nothing."""
    verdict = loss_scale_verdict(case, options)
    if verdict is not None and not verdict.matters:
        yield RULE.finding(f"loaders from TF 2.4 on drop {verdict.what}; {verdict.consequence}")


RULE: Final = Rule(
    id="PT202",
    name="loss-scale-inert",
    severity=Severity.NOTE,
    fix=None,
    check=check,
    doc=__doc__,
    example="a policy with FixedLossScale 128, and an optimizer in a LossScaleOptimizer with 128",
)
