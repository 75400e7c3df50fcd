"""
Saved optimizer has a format that no Keras release writes.

The loss scale of this optimizer is unknown, and ``migrate`` leaves the optimizer unchanged. The
model fails to load unless you pass ``compile=False``. Such a file was edited or converted after it
was saved.

Source: the optimizer configs in files written by TF 1.15 to 2.15, tf_keras 2.21 and Keras 3.0 to
3.15.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.rules.base import Rule
from policytool.rules.finding import Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.rules.base import AuditOptions, RuleInput
    from policytool.rules.finding import Finding

_CODE: Final = "unknown-optimizer"


def check(case: RuleInput, _options: AuditOptions) -> Iterator[Finding]:
    """Yield a finding where the reader understood none of it."""
    for observation in case.model.observations:
        if observation.code == _CODE:
            yield RULE.finding(
                observation.message, advice="load the model with compile=False and compile it again"
            )


RULE: Final = Rule(
    id="PT207",
    name="unknown-optimizer",
    severity=Severity.WARNING,
    fix=None,
    check=check,
    doc=__doc__,
    example='"optimizer_config": {"class_name": "LossScaleOptimizer", "config": {"optimizer": ..., '
    '"loss_scale": {"class_name": "MyScale"}}}',
)
