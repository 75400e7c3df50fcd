"""
Model computes in mixed_float16, but its saved optimizer does not scale losses.

In float16, gradients below 6e-8 become zero. Loss scaling multiplies the loss by a factor before
the gradients are computed, and then divides the gradients by the same factor. ``compile()`` enables
loss scaling if the model's policy is mixed_float16. However, a functional or sequential model uses
the global policy at load time, which is float32 by default. ``.keras`` files store the optimizer
that was passed to ``compile()``, without the wrapper that ``compile()`` adds. Under the default
policy, the layers therefore compute in float16, but losses are not scaled. In Keras 3, the
optimizer state in such a file is lost as well, because it belongs to the wrapper.

Sources: https://www.tensorflow.org/guide/mixed_precision; measured with TF 2.12, TF 2.15, tf_keras
2.21 and Keras 3.0 to 3.15. Each of these releases saved such a model as a ``.keras`` file and
loaded it again: under the default policy, the loaded optimizer is not wrapped; under mixed_float16,
it is wrapped and keeps its state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.formats.edits import EditKind
from policytool.migration import planning
from policytool.migration.planning import loss_scale
from policytool.migration.planning.base import base_policy
from policytool.migration.planning.options import LossScales
from policytool.model.compatibility.training_incompatibilities import INNER_STATE
from policytool.rules.base import Rule
from policytool.rules.finding import Fix, Remedy, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.model.loaded_model import LoadedModel
    from policytool.rules.base import AuditOptions, RuleInput
    from policytool.rules.finding import Finding

_SCALED: Final = "mixed_float16"
_BEFORE: Final = (
    f"call keras.mixed_precision.set_global_policy('{_SCALED}') before "
    "load_model() or compile() to enable loss scaling"
)


def check(case: RuleInput, _options: AuditOptions) -> Iterator[Finding]:
    """
    Yield a finding where the optimizer of a mixed_float16 model scales nothing; a policy that asks
    for that, or for a scale, is another rule's.
    """
    loaded, optimizer = case.loaded, case.model.optimizer
    if (
        loaded is None
        or optimizer is None
        or optimizer.loss_scale is not None
        or base_policy(loaded) != _SCALED
    ):
        return
    if (found := loss_scale.verdict(loaded)) is not None and found.policy == _SCALED:
        return
    half = sum(layer.compute_dtype == "float16" for layer in case.model.layers)
    layers = "1 layer computes" if half == 1 else f"{half} layers compute"
    if any(
        tensor.path[: len(INNER_STATE)] == INNER_STATE for tensor in case.document.tensors or ()
    ):
        message = (
            f"{layers} in float16, but the file does not contain the loss scaling that "
            f"{optimizer.class_name} was trained with: under the default policy, losses are "
            "not scaled"
        )
    else:
        message = (
            f"{layers} in float16, but {optimizer.class_name} does not scale losses: "
            "small gradients become zero"
        )
    remedy = _remedy(loaded)
    yield RULE.finding(message, remedy=remedy, advice=None if remedy else _BEFORE)


def _remedy(loaded: LoadedModel) -> Remedy | None:
    """
    Return ``--loss-scale keep`` where it wraps the optimizer: in Keras 3's archives, whose state
    shows that it was wrapped.
    """
    kept = planning.draft(loaded, planning.Options(loss_scale=LossScales.KEEP))
    wraps = any(edit.path is None and edit.kind is EditKind.TRAINING for edit in kept.edits)
    return Remedy(fix=Fix.UNSAFE, keep_loss_scale=True) if wraps and not kept.refusals else None


RULE: Final = Rule(
    id="PT203",
    name="unscaled-mixed-float16",
    severity=Severity.WARNING,
    fix=Fix.UNSAFE,
    check=check,
    doc=__doc__,
    example='"compile_config": {"optimizer": {"class_name": "Adam", ...}} in a .keras file whose '
    "layers use mixed_float16",
)
