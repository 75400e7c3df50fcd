"""
Model's policy has a loss scale that later releases silently drop, which changes training.

In TF 2.0 to 2.8, policies could contain a loss scale. TF 2.4 and later ignore it, even in files
that they wrote themselves. The model then trains with a different loss scale or without one; under
mixed_float16, small gradients become zero. A compiled model also stores the loss scale in its
optimizer, and later releases preserve that copy. This rule reports models whose optimizer has no
loss scale or a different one.

Sources: tensorflow/python/keras/mixed_precision/policy.py in TF 2.3.4 and 2.5.3; measured by saving
with TF 2.1 to 2.6 and loading with TF 2.4 to 2.15, tf_keras 2.21 and Keras 3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.migration import planning
from policytool.migration.planning import loss_scale
from policytool.migration.planning.loss_scale import Fate
from policytool.migration.planning.options import LossScales
from policytool.rules.base import Rule
from policytool.rules.finding import Fix, Remedy, Severity
from policytool.rules.training._said import loss_scale_verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.migration.planning.loss_scale import LossScaleVerdict
    from policytool.model.loaded_model import LoadedModel
    from policytool.rules.base import AuditOptions, RuleInput
    from policytool.rules.finding import Finding


def check(case: RuleInput, options: AuditOptions) -> Iterator[Finding]:
    """Yield a finding where a dropped loss scale changes training."""
    verdict = loss_scale_verdict(case, options)
    if case.loaded is None or verdict is None or not verdict.matters:
        return
    message = f"TF 2.4 and later drop {verdict.what}, and {verdict.consequence}"
    remedy = _remedy(case.loaded, verdict)
    yield RULE.finding(message, remedy=remedy, advice=None if remedy else _advice(verdict))


def _remedy(loaded: LoadedModel, verdict: LossScaleVerdict) -> Remedy | None:
    """Return ``--loss-scale keep`` where it puts the scale into the optimizer."""
    if verdict.fate is not Fate.PLAIN or loss_scale.scale_to_keep(loaded) is None:
        return None
    kept = planning.draft(loaded, planning.Options(loss_scale=LossScales.KEEP))
    lost = any(note.code == "loss-scale-lost" for note in kept.notes)
    return None if lost or kept.refusals else Remedy(fix=Fix.UNSAFE, keep_loss_scale=True)


def _advice(verdict: LossScaleVerdict) -> str:
    if verdict.fate is Fate.OTHER:
        return f"to keep the policy's loss scale, add this before compile(): {verdict.line}"
    return f"before compile(), add {verdict.line}"


RULE: Final = Rule(
    id="PT201",
    name="loss-scale-dropped",
    severity=Severity.WARNING,
    fix=Fix.UNSAFE,
    check=check,
    doc=__doc__,
    example='"dtype": {"class_name": "Policy", "config": {"name": "mixed_float16", "loss_scale": '
    '{"class_name": "FixedLossScale", ...}}} in a model without an optimizer',
)
