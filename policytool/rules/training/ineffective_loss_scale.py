"""
Policies have a loss scale that later releases drop, but training does not change.

Training does not change if the saved optimizer has the same loss scale, if ``compile()`` sets the
loss scale again, or if only the policies of layers contain a loss scale. In every release, only the
loss scale in the policy of the model itself affects training. Compiling the model again replaces
the saved optimizer and its loss scale.

Sources: tensorflow/python/keras/engine/training.py in TF 2.3.4 (``_get_optimizer``); measured by
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
        yield RULE.finding(f"TF 2.4 and later drop {verdict.what}; {verdict.consequence}")


RULE: Final = Rule(
    id="PT202",
    name="ineffective-loss-scale",
    severity=Severity.NOTE,
    fix=None,
    check=check,
    doc=__doc__,
    example="a policy with FixedLossScale 128, and a LossScaleOptimizer with the same scale",
)
