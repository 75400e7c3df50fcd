"""
What a policy's loss scale meant for training, and what becomes of it when the policy is spelled without one.

Only the model's policy scales losses; a layer policy's loss scale is inert. Files of TF 2.1 to 2.6 that were compiled hold the scale once more in
the optimizer, and there it survives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool import generations
from policytool.errors import SpellingError
from policytool.plan import Note, Severity
from policytool.planning.base import base_policy
from policytool.policy import Auto, Dynamic, Fixed, Policy

if TYPE_CHECKING:
    from policytool.model import Optimizer
    from policytool.planning.subject import Subject

_DROPPED: Final = "loss-scale-dropped"
_WRAP: Final = "tf.keras.mixed_precision.LossScaleOptimizer"


def model_policy(subject: Subject) -> Policy | None:
    """Return the model's policy with the loss scale that the file spells; None where no layer says one."""
    name = base_policy(subject)
    for index, site in enumerate(subject.sites):
        if subject.policy_name(index) == name and site.sub_policy is None and isinstance(site.spelled, str | dict) and not subject.is_input(index):
            try:
                found = generations.parse(site.spelled, subject.generation)
            except SpellingError:
                continue
            if isinstance(found, Policy):
                return found
    return None


def spells_scale(value: object) -> bool:
    """Return whether a policy's dict passes a loss scale explicitly."""
    config = value.get("config") if isinstance(value, dict) else None
    return isinstance(config, dict) and "loss_scale" in config


def scale_to_keep(subject: Subject) -> Dynamic | Fixed | None:
    """Return the scale that ``--loss-scale keep`` puts into the optimizer: the model policy's, where the model is compiled with an optimizer that has none."""
    found, optimizer = model_policy(subject), subject.analysis.model.optimizer
    if found is None or optimizer is None or optimizer.loss_scale is not None or not _is_explicit(found):
        return None
    return found.effective_loss_scale


def notes(subject: Subject, *, kept: bool, leaves: str | None) -> tuple[Note, ...]:
    """
    Return what is to be said of the loss scales that the plan drops.

    :param kept: whether the model's moves into the optimizer
    :param leaves: the policy that the model goes to from mixed_float16, and the optimizer with it; None where it does not
    """
    scaled = [index for index, site in enumerate(subject.sites) if spells_scale(site.spelled) and site.sub_policy is None]
    if not scaled:
        return ()
    found = model_policy(subject)
    if found is None or not _is_explicit(found):
        paths = ", ".join(subject.layers[index].path for index in scaled[:3])
        message = f"the loss scales of {len(scaled)} layer policies ({paths}{', ...' if len(scaled) > 3 else ''}) are dropped; they were inert: only the model's policy scales losses"  # noqa: PLR2004, E501  # three examples
        return (Note(severity=Severity.NOTE, code="loss-scale-inert", message=message),)
    if leaves is not None:
        message = f"the policy's loss scale ({_words(found.effective_loss_scale)}) is dropped, as {leaves} needs none"
        return (Note(severity=Severity.NOTE, code=_DROPPED, message=message),)
    optimizer = subject.analysis.model.optimizer
    if optimizer is None:
        return _uncompiled(found)
    return (_kept_note(found),) if kept else (_compiled(found, optimizer),)


def _is_explicit(found: Policy) -> bool:
    return found.loss_scale is not None and not isinstance(found.loss_scale, Auto)


def _kept_note(found: Policy) -> Note:
    message = f"the policy's loss scale ({_words(found.effective_loss_scale)}) moves into the saved optimizer"
    return Note(severity=Severity.NOTE, code="loss-scale-moved", message=message)


def _compiled(found: Policy, optimizer: Optimizer) -> Note:
    policys, optimizers = found.effective_loss_scale, optimizer.loss_scale
    if policys is not None and policys == optimizers:
        message = f"the policy's loss scale ({_words(policys)}) is dropped; the saved optimizer has the same and keeps it"
        return Note(severity=Severity.NOTE, code=_DROPPED, message=message)
    if policys is None and optimizers is None:
        message = (
            "the policy's loss_scale=None is dropped; the saved optimizer scales nothing and stays so, and compiling anew under mixed_float16 would wrap it"
        )
        return Note(severity=Severity.NOTE, code=_DROPPED, message=message)
    if optimizers is None:
        message = (
            f"the policy's loss scale ({_words(policys)}) is dropped, and the saved optimizer scales nothing: "
            "training goes on without; --loss-scale keep moves it into the optimizer"
        )
        return Note(severity=Severity.WARNING, code=_DROPPED, message=message)
    message = f"the policy's loss scale ({_words(policys)}) is dropped; the saved optimizer has another ({_words(optimizers)}), which counts"
    return Note(severity=Severity.WARNING, code=_DROPPED, message=message)


def _uncompiled(found: Policy) -> tuple[Note, ...]:
    """Nothing is in the file to keep it in: say what to write before ``compile()`` where a modern compile would do otherwise."""
    scale = found.effective_loss_scale
    if scale == (Dynamic() if found.name == "mixed_float16" else None):
        message = f"the policy's loss scale ({_words(scale)}) is dropped; compile() does the same under {found.name} by itself"
        return (Note(severity=Severity.NOTE, code=_DROPPED, message=message),)
    message = f"the policy's loss scale ({_words(scale)}) is dropped, and the model is not compiled, so nothing keeps it; before compile() write {_line(scale)}"
    return (Note(severity=Severity.WARNING, code=_DROPPED, message=message),)


def _line(scale: Dynamic | Fixed | None) -> str:
    match scale:
        case Fixed(value=value):
            return f"optimizer = {_WRAP}(optimizer, dynamic=False, initial_scale={value:g}), or in Keras 3 pass loss_scale_factor={value:g} to the optimizer"
        case Dynamic():
            steps = f"initial_scale={scale.initial:g}, dynamic_growth_steps={scale.growth_steps}"
            return f"optimizer = {_WRAP}(optimizer, {steps}), in Keras 3 keras.optimizers.LossScaleOptimizer(optimizer, {steps})"
    return f"optimizer = {_WRAP}(optimizer, dynamic=False, initial_scale=1), or in Keras 3 compile(..., auto_scale_loss=False)"


def _words(scale: Dynamic | Fixed | None) -> str:
    match scale:
        case Fixed(value=value):
            return f"fixed {value:g}"
        case Dynamic():
            default = scale == Dynamic()
            return "dynamic" if default else f"dynamic from {scale.initial:g}, {scale.growth_steps} steps, times {scale.multiplier:g}"
    return "none"
