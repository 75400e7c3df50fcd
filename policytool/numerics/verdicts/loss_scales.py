"""
Decides from measured gradients whether training with the candidate's policies needs a loss scale,
which scales work, and whether dropping the recorded scale matters.

The decision depends only on measurements, and not on names of dtypes: in float32 and bfloat16, a
scale recovers nothing. An element that is zero under every scale is not a loss that scaling could
avoid; for example, rounding may have disabled a ReLU.
"""

from __future__ import annotations

import math
from enum import Enum
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from policytool.migration.planning.training import scale_text
from policytool.releases.policy import Dynamic
from policytool.support.text.phrases import join_first

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.numerics.check_results.gradients import GradientReductions, Gradients, Trial

MATTERS: Final = 0.01
"""
Minimum effect of a scale that matters, for a variable or for all variables: the scale recovers this
share of the nonzero elements, or reduces the relative error of the gradient by this amount.
Rounding to float16 has a relative error of 0.0005, and rounding to bfloat16 of 0.004.
"""

USUAL: Final = 2.0**15
"""The initial value of dynamic scaling in both libraries, which is suggested if it works."""

MARGIN: Final = 8.0
"""
Factor between a suggested scale and the highest one without overflow, because gradients of other
batches and of real targets can be larger.
"""

LEAST_SHOWN: Final = 0.001
"""Smaller shares are reported as less than this."""


class ScaleNeed(Enum):
    """Whether the candidate needs a loss scale."""

    NOTHING_TO_TRAIN = "nothing-to-train"
    NOT_FINITE = "not-finite"
    """
    The loss, the gradients of the reference, or the gradients under every scale are not finite.
    """

    NONE = "none"
    """No scale has an effect that matters."""

    SCALE = "scale"
    """A scale recovers elements that underflow, or keeps gradients finite."""


class GradientLoss(Struct, frozen=True, kw_only=True):
    """The gradients of a variable, or of all variables, without a scale and with one."""

    path: str
    """The path of the layer and the name of the variable; empty for all variables."""

    without: GradientReductions
    scaled: GradientReductions

    @property
    def matters(self) -> bool:
        """
        Whether the scale keeps at least the share :data:`MATTERS` of the nonzero elements from
        underflow, or reduces the relative error by at least :data:`MATTERS`, without an overflow.
        """
        if self.scaled.overflow:
            return False
        recovered = self.without.underflow - self.scaled.underflow
        error_reduction = self.without.relative_error - self.scaled.relative_error
        return (
            recovered > 0 and recovered >= MATTERS * self.without.nonzero
        ) or error_reduction >= MATTERS

    @property
    def weight(self) -> tuple[float, float]:
        """The sort key: the recovered share of elements, and the error without the scale."""
        return (
            self.without.underflow_share - self.scaled.underflow_share,
            self.without.relative_error,
        )


class LossScaleDecision(Struct, frozen=True, kw_only=True):
    """Whether the candidate needs a loss scale, with the sentences for the report."""

    need: ScaleNeed
    matters: bool
    """Whether training gets worse if the recorded loss scale is dropped."""

    suggested: float | None
    """A scale that works; None if no scale is needed, or no scale works."""

    losing: tuple[str, ...] = ()
    """The variables for which a scale matters, most affected first."""

    sentences: tuple[str, ...]


def loss_scale_decision(grads: Gradients) -> LossScaleDecision:
    """Return whether the model needs a loss scale, and which, according to the measurement."""
    none = grads.at(1.0)
    if none is None:
        return LossScaleDecision(
            need=ScaleNeed.NOTHING_TO_TRAIN,
            matters=False,
            suggested=None,
            sentences=("the model has no trainable variables, so no loss is scaled",),
        )
    best = grads.at(grads.workable[1]) if grads.workable is not None else None
    if best is None or grads.workable is None:
        return LossScaleDecision(
            need=ScaleNeed.NOT_FINITE,
            matters=False,
            suggested=None,
            sentences=(_not_finite(grads, none), *_circumstances(grads)),
        )
    gradient_losses = _gradient_losses(grads, none, best)
    suggested = _suggestion(*grads.workable) if gradient_losses or none.total.overflow else None
    recorded = grads.at(grads.recorded_scale)
    matters = recorded is not None and bool(_gradient_losses(grads, none, recorded))
    needed = (
        _about_no_need(none, best)
        if suggested is None
        else _about_need(none, best, grads.workable, suggested)
    )
    return LossScaleDecision(
        need=ScaleNeed.NONE if suggested is None else ScaleNeed.SCALE,
        matters=matters,
        suggested=suggested,
        losing=tuple(loss.path for loss in gradient_losses if loss.path),
        sentences=(
            _about_recorded(grads, none),
            needed + ("" if matters else _worst(gradient_losses)),
            _about_dynamic(grads),
            *_circumstances(grads),
        ),
    )


def _gradient_losses(grads: Gradients, none: Trial, scaled: Trial) -> tuple[GradientLoss, ...]:
    """
    Return the gradient losses that a scale avoids: first the loss of all variables together, if it
    matters, and then the losses of single variables, most affected first.
    """
    if scaled.total.overflow:
        return ()
    total_loss = GradientLoss(path="", without=none.total, scaled=scaled.total)
    single = [
        GradientLoss(path=variable.path, without=reductions_without, scaled=other)
        for variable, reductions_without, other in zip(
            grads.variables, none.variables, scaled.variables, strict=True
        )
    ]
    worst = sorted(
        (loss for loss in single if loss.matters),
        key=lambda loss: (-loss.weight[0], -loss.weight[1], loss.path),
    )
    return (total_loss, *worst) if total_loss.matters else tuple(worst)


def _suggestion(lowest: float, highest: float) -> float:
    """
    Return the usual scale, or the nearest scale in the range that works, with a margin to overflow.
    """
    return min(max(USUAL, lowest), max(highest / MARGIN, lowest))


def _not_finite(grads: Gradients, none: Trial) -> str:
    """Return why no loss scale makes the gradients finite."""
    if none.total.undefined:
        return (
            f"{_share(none.total.undefined, none.total.elements)} of the gradient elements are not "
            "finite in the reference, so these inputs do not show whether a loss scale is needed"
        )
    if not math.isfinite(none.loss):
        return (
            f"the candidate's loss is {none.loss} ({grads.reference_loss:.3g} in the reference): "
            "no loss scale makes its gradients finite"
        )
    return (
        f"{_share(none.total.overflow, none.total.elements)} of the gradient elements "
        "overflow under every loss scale tried"
    )


def _about_recorded(grads: Gradients, none: Trial) -> str:
    """Return a sentence with the measured effect of dropping the recorded loss scale."""
    if grads.recorded is None:
        return "the file records no loss scale"
    scale_words = f"the recorded loss scale ({scale_text(grads.recorded)})"
    scaled = grads.at(grads.recorded_scale)
    if scaled is None:
        return f"{scale_words} never reaches a value with finite gradients"
    with_it = scaled.total
    if with_it.overflow:
        ending = (
            ", and some also overflow without it"
            if none.total.overflow
            else ", so dropping it is correct"
        )
        return (
            f"with {scale_words}, {_share(with_it.overflow, with_it.elements)} of the gradient "
            f"elements overflow{ending}"
        )
    lost_without_scale = _share(none.total.underflow, none.total.nonzero)
    shares = (
        f"{lost_without_scale} of the gradient elements underflow without it, "
        f"{_share(with_it.underflow, with_it.nonzero)} with it"
    )
    gradient_losses = _gradient_losses(grads, none, scaled)
    return (
        f"dropping {scale_words} matters: {shares}{_worst(gradient_losses)}"
        if gradient_losses
        else f"dropping {scale_words} does not matter: {shares}"
    )


def _worst(gradient_losses: tuple[GradientLoss, ...]) -> str:
    """Return the most affected variables, as a part of a sentence."""
    named = [
        (
            f"{loss.path} {_share(loss.without.underflow, loss.without.nonzero)} (error "
            f"{loss.without.relative_error:.2g} instead of {loss.scaled.relative_error:.2g})"
        )
        for loss in gradient_losses
        if loss.path
    ]
    return f"; most affected: {join_first(named)}" if named else ""


def _about_need(none: Trial, best: Trial, workable: tuple[float, float], suggested: float) -> str:
    """Return a sentence with the loss scales that work, if the model needs a loss scale."""
    unscaled, scaled, (lowest, highest) = none.total, best.total, workable
    problem = (
        f"{_share(unscaled.overflow, unscaled.elements)} of the gradient elements overflow"
        if unscaled.overflow
        else f"{_share(unscaled.underflow, unscaled.nonzero)} of the gradient elements underflow"
    )
    return (
        f"{problem} without a loss scale, and {_share(scaled.underflow, scaled.nonzero)} underflow "
        f"with a loss scale of {_number(highest)}: use {_number(suggested)}; any value from "
        f"{_number(lowest)} to {_number(highest)} works for these inputs"
    )


def _about_no_need(none: Trial, best: Trial) -> str:
    unscaled, scaled = none.total, best.total
    return (
        f"no loss scale is needed: {_share(unscaled.underflow, unscaled.nonzero)} of the gradient "
        f"elements underflow without one, {_share(scaled.underflow, scaled.nonzero)} with "
        f"{_number(best.scale)}, the highest scale without overflow"
    )


def _about_dynamic(grads: Gradients) -> str:
    """Return a sentence about dynamic scaling, which ``compile()`` enables under mixed_float16."""
    rule = grads.dynamic
    if rule.scale is None:
        return (
            f"dynamic scaling from {_number(rule.initial)} never reaches a scale with finite "
            "gradients"
        )
    skipped = (
        f"after {rule.skipped} skipped step{'s' * (rule.skipped != 1)}"
        if rule.skipped
        else "immediately"
    )
    trial = grads.at(rule.scale)
    skipped_words = (
        (
            f", where {_share(trial.total.underflow, trial.total.nonzero)} of the gradient "
            "elements underflow"
        )
        if trial is not None
        else ""
    )
    origin = (
        "as recorded" if isinstance(grads.recorded, Dynamic) else f"from {_number(rule.initial)}"
    )
    return f"dynamic scaling {origin} settles at {_number(rule.scale)} {skipped}{skipped_words}"


def _circumstances(grads: Gradients) -> Iterator[str]:
    """Yield sentences about the conditions of the measurement."""
    used = [
        f"{output.loss} ({output.targets})"
        for output in grads.outputs
        if output.source == "recorded"
    ]
    if used:
        yield f"recorded loss on synthetic targets: {join_first(used)}"
    for output in grads.outputs:
        if output.source == "substitute":
            yield (
                f"{output.loss} on synthetic targets replaces the loss of {output.output}: "
                f"{output.why}"
            )
    if grads.own:
        yield (
            f"the model class overrides {join_first(grads.own)}, but this check uses the default "
            "Keras training step, so training may behave differently"
        )
    if grads.quiet:
        yield (
            "layers that are random during training ran in inference mode: "
            f"{join_first(grads.quiet)}"
        )
    if grads.random:
        yield (
            f"{join_first(grads.random)} used random numbers, so values and gradients may differ "
            "between the two models"
        )
    if grads.unconnected:
        yield (
            "the loss does not depend on these trainable variables: "
            f"{join_first(grads.unconnected)}"
        )


def _share(part: int, whole: int) -> str:
    """Return a share as a percentage; ``none`` for zero, and "less than ..." for small shares."""
    share = part / whole if whole else 0.0
    return (
        "none"
        if not part
        else f"{share:.1%}"
        if share >= LEAST_SHOWN
        else f"less than {LEAST_SHOWN:.1%}"
    )


def _number(scale: float) -> str:
    """
    Return a scale as text: powers of two below 1 are fractions such as ``1/8``.
    """
    return (
        f"{scale:.0f}"
        if scale >= 1 and scale.is_integer()
        else f"1/{1 / scale:.0f}"
        if scale < 1
        else f"{scale:g}"
    )
