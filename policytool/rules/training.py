"""Rules about changes in training after loading."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.formats.edits import EditKind
from policytool.migration import planning
from policytool.migration.planning import training
from policytool.migration.planning.decisions import base_policy
from policytool.migration.planning.options import LossScales
from policytool.migration.planning.training import SCALED, Fate, scale_text
from policytool.model.compatibility import optimizer_state, training_incompatibilities
from policytool.model.compatibility.training_incompatibilities import INNER_STATE
from policytool.model.tree import Unspelled
from policytool.releases.policy import Fixed
from policytool.releases.releases import release_name
from policytool.rules import fixes
from policytool.rules.base import Fix, Needs, Remedy, Severity, rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.migration.planning.training import LossScaleVerdict
    from policytool.model.compatibility.training_incompatibilities import TrainingEvidence
    from policytool.model.loaded_model import LoadedModel
    from policytool.rules.base import AuditOptions, Finding, RuleInput


_KEEP_SCALES: Final = frozenset({"tf2.1", "tf2.2", "tf2.3"})
"""The releases that restore the loss scale of a policy."""


def _loss_scale_verdict(case: RuleInput, options: AuditOptions) -> LossScaleVerdict | None:
    """
    Return the effect of dropping the loss scales of policies; None if the policies have no loss
    scale, or if the targets keep it.
    """
    if case.loaded is None or (options.targets and _KEEP_SCALES.issuperset(options.targets)):
        return None
    return training.verdict(case.loaded)


def _training_evidence(case: RuleInput) -> TrainingEvidence | None:
    """Return the facts about the training configuration; None if the file has none."""
    return (
        None
        if case.loaded is None
        else training_incompatibilities.evidence(
            case.document, case.loaded.placed, keras3=case.loaded.is_keras3
        )
    )


def _loading_targets(case: RuleInput, options: AuditOptions) -> Iterator[str]:
    """
    Yield the targets without a known failure on the training configuration. PT205 and the rules
    about loading report the others.
    """
    # None: the file has no training configuration, or does not load
    fails = {
        verdict.loader: verdict.training is None or verdict.training.reason is not None
        for verdict in case.model.loaders
    }
    yield from (target for target in options.targets if not fails.get(target, True))


def _computes_in_float16(case: RuleInput) -> bool | None:
    """
    Return whether some layer computes in float16; None if the file does not determine it.
    """
    if case.loaded is None:
        return None
    unknown = False
    for index, layer in enumerate(case.model.layers):
        if layer.compute_dtype == "float16" or "float16" in layer.traced_dtypes:
            return True
        site = case.loaded.sites[index]
        is_unknown = layer.compute_dtype is None and (
            not site.is_model or site.spelled is not Unspelled.ABSENT
        )
        unknown = unknown or layer.opaque or is_unknown
    return None if unknown else False


@rule(
    id="PT201",
    severity=Severity.NOTE,
    fix=Fix.UNSAFE,
    example='"dtype": {"class_name": "Policy", "config": {"name": "mixed_float16", "loss_scale": '
    '{"class_name": "FixedLossScale", ...}}} in a model without an optimizer',
)
def loss_scale_dropped(case: RuleInput, options: AuditOptions) -> Iterator[Finding]:
    """
    Model's policy has a loss scale that later releases silently drop, which changes training.

    In TF 2.0 to 2.8, policies could contain a loss scale. TF 2.4 and later ignore it, even in files
    that they wrote themselves. The model then trains with a different loss scale or without one;
    under mixed_float16, small gradients become zero. A compiled model also stores the loss scale in
    its optimizer, and later releases preserve that copy. This rule reports models whose optimizer
    has no loss scale or a different one.

    The state of an archive is also lost, with a warning, if it has another number of variables than
    the optimizer creates, for example after an interrupted save.

    Predictions are not affected, so the finding is a note, unless ``--select`` names rules about
    training, such as PT2: then it is a warning.

    Sources: tensorflow/python/keras/mixed_precision/policy.py in TF 2.3.4 and 2.5.3; measured by
    saving with TF 2.1 to 2.6 and loading with TF 2.4 to 2.15, tf_keras 2.21 and Keras 3.
    """
    verdict = _loss_scale_verdict(case, options)
    if case.loaded is None or verdict is None or not verdict.matters:
        return
    message = f"TF 2.4 and later drop {verdict.what}, and {verdict.consequence}"
    remedy = _keep_remedy(case.loaded, verdict)
    yield loss_scale_dropped.finding(
        message,
        severity=options.training_severity,
        remedy=remedy,
        advice=None if remedy else _scale_advice(verdict),
    )


def _keep_remedy(loaded: LoadedModel, verdict: LossScaleVerdict) -> Remedy | None:
    """Return ``--keep loss-scale`` if this option moves the scale into the optimizer."""
    if verdict.fate is not Fate.PLAIN or training.scale_to_keep(loaded) is None:
        return None
    kept = planning.draft(loaded, planning.Options(loss_scale=LossScales.KEEP))
    is_lost = any(note.code == "loss-scale-lost" for note in kept.notes)
    return None if is_lost or kept.refusals else Remedy(fix=Fix.UNSAFE, keep_loss_scale=True)


def _scale_advice(verdict: LossScaleVerdict) -> str:
    if verdict.fate is Fate.OTHER:
        return f"to keep the policy's loss scale, add this before compile(): {verdict.line}"
    return f"before compile(), add {verdict.line}"


@rule(
    id="PT202",
    severity=Severity.NOTE,
    example="a policy with FixedLossScale 128, and a LossScaleOptimizer with the same scale",
)
def ineffective_loss_scale(case: RuleInput, options: AuditOptions) -> Iterator[Finding]:
    """
    Policies have a loss scale that later releases drop, but training does not change.

    Training does not change if the saved optimizer has the same loss scale, if ``compile()`` sets
    the loss scale again, or if only the policies of layers contain a loss scale. In every release,
    only the loss scale in the policy of the model itself affects training. Compiling the model
    again replaces the saved optimizer and its loss scale.

    Sources: tensorflow/python/keras/engine/training.py in TF 2.3.4 (``_get_optimizer``); measured
    by saving with TF 2.1 to 2.6 and loading with TF 2.4 to 2.15, tf_keras 2.21 and Keras 3.
    """
    verdict = _loss_scale_verdict(case, options)
    if verdict is not None and not verdict.matters:
        yield ineffective_loss_scale.finding(
            f"TF 2.4 and later drop {verdict.what}; {verdict.consequence}"
        )


_SCALE_BEFORE: Final = (
    f"call keras.mixed_precision.set_global_policy('{SCALED}') before "
    "load_model() or compile() to enable loss scaling"
)


@rule(
    id="PT203",
    severity=Severity.NOTE,
    fix=Fix.UNSAFE,
    example='"compile_config": {"optimizer": {"class_name": "Adam", ...}} in a .keras file whose '
    "layers use mixed_float16",
)
def unscaled_mixed_float16(case: RuleInput, options: AuditOptions) -> Iterator[Finding]:
    """
    Model computes in mixed_float16, but its saved optimizer does not scale losses.

    In float16, gradients below 6e-8 become zero. Loss scaling multiplies the loss by a factor
    before the gradients are computed, and then divides the gradients by the same factor.
    ``compile()`` enables loss scaling if the model's policy is mixed_float16. However, a functional
    or sequential model uses the global policy at load time, which is float32 by default. ``.keras``
    files store the optimizer that was passed to ``compile()``, without the wrapper that
    ``compile()`` adds. Under the default policy, the layers therefore compute in float16, but
    losses are not scaled. In Keras 3, the optimizer state in such a file is lost as well, because
    it belongs to the wrapper.

    The state of an archive is also lost, with a warning, if it has another number of variables than
    the optimizer creates, for example after an interrupted save.

    Predictions are not affected, so the finding is a note, unless ``--select`` names rules about
    training, such as PT2: then it is a warning.

    Sources: https://www.tensorflow.org/guide/mixed_precision; measured with TF 2.12, TF 2.15,
    tf_keras 2.21 and Keras 3.0 to 3.15. Each of these releases saved such a model as a ``.keras``
    file and loaded it again: under the default policy, the loaded optimizer is not wrapped; under
    mixed_float16, it is wrapped and keeps its state.
    """
    # PT201 and PT202 report policies that ask for loss scaling.
    loaded, optimizer = case.loaded, case.model.optimizer
    if (
        loaded is None
        or optimizer is None
        or optimizer.loss_scale is not None
        or base_policy(loaded) != SCALED
    ):
        return
    if (verdict := training.verdict(loaded)) is not None and verdict.policy == SCALED:
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
    remedy = _wrap_remedy(loaded)
    yield unscaled_mixed_float16.finding(
        message,
        severity=options.training_severity,
        remedy=remedy,
        advice=None if remedy else _SCALE_BEFORE,
    )


def _wrap_remedy(loaded: LoadedModel) -> Remedy | None:
    """
    Return ``--keep loss-scale`` if this option wraps the optimizer: in Keras 3 archives with the
    state of a wrapped optimizer.
    """
    kept = planning.draft(loaded, planning.Options(loss_scale=LossScales.KEEP))
    wraps = any(edit.path is None and edit.kind is EditKind.TRAINING for edit in kept.edits)
    return Remedy(fix=Fix.UNSAFE, keep_loss_scale=True) if wraps and not kept.refusals else None


_MIXED_LOST: Final = "policy-not-stored"
"""The code of the observation on formats that cannot represent a mixed policy."""


_NO_SCALE: Final = Fixed(value=1.0)


@rule(
    id="PT204",
    severity=Severity.NOTE,
    example='"optimizer_config": {"class_name": "LossScaleOptimizer", ...} and every "dtype": '
    '"float32"',
)
def unnecessary_loss_scaling(case: RuleInput, _options: AuditOptions) -> Iterator[Finding]:
    """
    Optimizer scales losses, but no layer computes in float16.

    float32, float64 and bfloat16 represent gradients down to 1e-38, so loss scaling has no benefit.
    Loss scaling slows down each step slightly, and dynamic loss scaling skips a step after each
    overflow. The setting is usually left over from an experiment with mixed_float16.

    Sources: https://www.tensorflow.org/guide/mixed_precision, "Loss scaling";
    keras/src/optimizers/loss_scale_optimizer.py in Keras 3.15.
    """
    # There is no finding if the file does not determine whether a layer computes in float16.
    optimizer = case.model.optimizer
    if (
        optimizer is None
        or optimizer.loss_scale in {None, _NO_SCALE}
        or any(case.observations(_MIXED_LOST))
    ):
        return
    if _computes_in_float16(case) is False:
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
            f"{optimizer.class_name} scales losses ({scale_text(optimizer.loss_scale)}), but "
            f"no layer computes in float16 (compute dtypes: {used})"
        )
        yield unnecessary_loss_scaling.finding(
            message, advice="compile the model without loss scaling"
        )


@rule(
    id="PT205",
    severity=Severity.ERROR,
    example='"optimizer_config": {"class_name": "LossScaleOptimizer", "config": '
    '{"inner_optimizer": ...}}, audited with --target tf2.3',
    needs=Needs.TARGET,
)
def incompatible_optimizer(case: RuleInput, options: AuditOptions) -> Iterator[Finding]:
    """
    Training configuration fails to load in the target release.

    The model itself loads, or will load once its policies are rewritten, but ``load_model`` fails
    unless you pass ``compile=False``. Keras renamed the loss-scaling wrapper four times and its
    arguments twice. The optimizers in TF 2.11 and later have different names and arguments than in
    earlier releases. Keras 3 cannot read the loss ``'mse'`` from HDF5 files, not even from files
    that it wrote. The rule does not check custom losses and metrics; PT603 lists them.

    Sources: measured with 83 compiled models that were written by 17 releases and loaded in 15
    releases with ``compile=True`` and ``compile=False``; GantMan/nsfw_model issue 164.
    """
    for verdict in case.model.loaders:
        training = verdict.training
        if verdict.loader in options.targets and training is not None and training.reason:
            yield incompatible_optimizer.finding(
                f"training configuration fails to load in {release_name(verdict.loader)}: "
                f"{training.reason}",
                detail=verdict.loader,
                advice=fixes.conversion_advice(
                    case, verdict.loader, "load the model with compile=False and compile it again"
                ),
            )


@rule(
    id="PT206",
    severity=Severity.NOTE,
    example="an HDF5 file whose optimizer is a LossScaleOptimizerV3, audited with --target tf2.15",
    needs=Needs.TARGET,
)
def optimizer_state_lost(case: RuleInput, options: AuditOptions) -> Iterator[Finding]:
    """
    Target release does not restore the optimizer state.

    The model and its training configuration load without an error, but training restarts with an
    empty optimizer state. The running averages that Adam and other optimizers store for each weight
    are zero. From HDF5 files, Keras 3 restores the number of steps but not the averages, so the
    first steps also lack the bias correction.

    The state of an archive is also lost, with a warning, if it has another number of variables than
    the optimizer creates, for example after an interrupted save, or because the model was quantized
    after training.

    Predictions are not affected, so the finding is a note, unless ``--select`` names rules about
    training, such as PT2: then it is a warning.

    Sources: measured with 76 compiled models written by 16 releases: each model was loaded in the
    releases that support it, and the loaded state was compared with the stored state;
    keras-team/keras issues 15709 and 18112.
    """
    compiled = _training_evidence(case)
    if compiled is None:
        return
    for target in _loading_targets(case, options):
        row = training_incompatibilities.first_matching_row(
            training_incompatibilities.LOST_STATE, compiled, target
        )
        reason = row.reason if row is not None else optimizer_state.loss(compiled, target)
        if reason is not None:
            yield optimizer_state_lost.finding(
                f"{release_name(target)} does not restore the state of the saved optimizer: "
                f"{reason}",
                detail=target,
                severity=options.training_severity,
                advice=row.advice if row is not None else optimizer_state.continuation(compiled),
            )


@rule(
    id="PT207",
    severity=Severity.WARNING,
    example='"optimizer_config": {"class_name": "LossScaleOptimizer", "config": {"optimizer": ..., '
    '"loss_scale": {"class_name": "MyScale"}}}',
)
def unknown_optimizer(case: RuleInput, options: AuditOptions) -> Iterator[Finding]:
    """
    Saved optimizer has a format that no Keras release writes.

    The loss scale of this optimizer is unknown, and ``migrate`` leaves the optimizer unchanged. The
    model fails to load unless you pass ``compile=False``. Such a file was edited or converted after
    it was saved.

    Source: the optimizer configs in files written by TF 1.15 to 2.15, tf_keras 2.21 and Keras 3.0
    to 3.15.
    """
    for observation in case.observations("unknown-optimizer"):
        yield unknown_optimizer.finding(
            observation.message,
            severity=options.training_severity,
            advice="load the model with compile=False and compile it again",
        )
