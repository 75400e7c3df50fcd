"""
Optimizer scales losses, but no layer computes in float16.

float32, float64 and bfloat16 represent gradients down to 1e-38, so loss scaling has no benefit.
Loss scaling slows down each step slightly, and dynamic loss scaling skips a step after each
overflow. The setting is usually left over from an experiment with mixed_float16.

Sources: https://www.tensorflow.org/guide/mixed_precision, "Loss scaling";
keras/src/optimizers/loss_scale_optimizer.py in Keras 3.15.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.migration.planning.loss_scale import words
from policytool.releases.policy import Fixed
from policytool.rules.base import Rule
from policytool.rules.finding import Severity
from policytool.rules.training._said import computes_in_float16

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.rules.base import AuditOptions, RuleInput
    from policytool.rules.finding import Finding

_MIXED_LOST: Final = "policy-not-stored"
"""The observation on files that cannot show a mixed policy."""

_NO_SCALE: Final = Fixed(value=1.0)


def check(case: RuleInput, _options: AuditOptions) -> Iterator[Finding]:
    """
    Yield a finding where nothing computes in float16; not where the file cannot show it, or a layer
    leaves it open.
    """
    optimizer = case.model.optimizer
    if (
        optimizer is None
        or optimizer.loss_scale in {None, _NO_SCALE}
        or any(found.code == _MIXED_LOST for found in case.model.observations)
    ):
        return
    if computes_in_float16(case) is False:
        used = ", ".join(
            sorted(
                {
                    layer.compute_dtype
                    for layer in case.model.layers
                    if layer.compute_dtype and "float" in layer.compute_dtype
                }
            )
        )
        message = (
            f"the {optimizer.class_name} scales losses ({words(optimizer.loss_scale)}), but "
            f"no layer computes in float16 (compute dtypes: {used})"
        )
        yield RULE.finding(message, advice="compile the model without loss scaling")


RULE: Final = Rule(
    id="PT204",
    name="unnecessary-loss-scaling",
    severity=Severity.NOTE,
    fix=None,
    check=check,
    doc=__doc__,
    example='"optimizer_config": {"class_name": "LossScaleOptimizer", ...} and every "dtype": '
    '"float32"',
)
