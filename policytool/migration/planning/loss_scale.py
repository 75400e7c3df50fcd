"""
What a policy's loss scale meant for training, and what becomes of it when the policy is spelled
without one.

Only the model's policy scales losses; a layer policy's loss scale is inert. Files of TF 2.1 to 2.6
that were compiled hold the scale once more in the optimizer, and there it survives.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from policytool.migration.plan import Note, NoteSeverity
from policytool.migration.planning.decisions import base_policy
from policytool.releases import generations
from policytool.releases.policy import Auto, Dynamic, Fixed, Policy
from policytool.support.errors import SpellingError
from policytool.support.text.phrases import join_first

if TYPE_CHECKING:
    from policytool.model.loaded_model import LoadedModel

_DROPPED: Final = "loss-scale-dropped"
_WRAP: Final = "tf.keras.mixed_precision.LossScaleOptimizer"


class Fate(Enum):
    """What dropping the loss scale of a policy comes to."""

    SAME = auto()
    """The saved optimizer has the same."""

    UNSCALED = auto()
    """Neither the policy nor the saved optimizer scales."""

    PLAIN = auto()
    """The saved optimizer scales nothing."""

    OTHER = auto()
    """The saved optimizer has another."""

    COMPILED_ANEW = auto()
    """There is no saved optimizer, and ``compile()`` does the same by itself."""

    UNCOMPILED = auto()
    """There is no saved optimizer, and ``compile()`` does otherwise."""

    INERT = auto()
    """It is not the model's policy that has one."""


_CONSEQUENCES: Final = {
    Fate.SAME: "the saved optimizer has the same loss scale and keeps it",
    Fate.UNSCALED: (
        "the saved optimizer does not scale losses, but compiling the model again under "
        "mixed_float16 would add loss scaling"
    ),
    Fate.PLAIN: (
        "the saved optimizer does not scale losses, so training continues without loss scaling"
    ),
    Fate.OTHER: "the saved optimizer uses a different loss scale ({others})",
    Fate.COMPILED_ANEW: "compile() adds the same loss scaling under {policy}",
    Fate.UNCOMPILED: "the model is not compiled, so the loss scale is lost",
    Fate.INERT: "they had no effect because only the policy of the model itself scales losses",
}
"""What each fate means for training, as a sentence part."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LossScaleVerdict:
    """
    What becomes of training where loaders, or a migration, drop the loss scales of a model's
    policies.
    """

    fate: Fate
    policy: str | None = None
    """The name of the model's policy; None where only layers have a loss scale."""

    scale: Dynamic | Fixed | None = None
    """What the model's policy says; None for no scaling."""

    others: Dynamic | Fixed | None = None
    """What the saved optimizer has."""

    layers: tuple[str, ...] = ()
    """The paths of the layers whose policies have a loss scale."""

    @property
    def matters(self) -> bool:
        """Whether training goes on otherwise."""
        return self.fate in {Fate.PLAIN, Fate.OTHER, Fate.UNCOMPILED}

    @property
    def line(self) -> str:
        """What to write before ``compile()`` for the policy's loss scale."""
        return _wrap_code(self.scale)

    @property
    def what(self) -> str:
        """What is dropped, in words."""
        match self.fate:
            case Fate.INERT:
                return (
                    f"the loss scales of {len(self.layers)} layer policies "
                    f"({join_first(self.layers)})"
                )
            case Fate.UNSCALED:
                return "the policy's loss_scale=None"
        return f"the policy's loss scale ({scale_text(self.scale)})"

    @property
    def consequence(self) -> str:
        """What that means for training, as a sentence part."""
        return _CONSEQUENCES[self.fate].format(others=scale_text(self.others), policy=self.policy)


def model_policy(loaded: LoadedModel) -> Policy | None:
    """
    Return the model's policy with the loss scale that is stored in the file; None if no layer
    stores the policy.
    """
    name = base_policy(loaded)
    for index, site in enumerate(loaded.sites):
        if (
            loaded.policy_name(index) == name
            and site.sub_policy is None
            and isinstance(site.spelled, str | dict)
            and not loaded.is_input(index)
        ):
            try:
                policy = generations.parse(site.spelled, loaded.generation)
            except SpellingError:
                continue
            if isinstance(policy, Policy):
                return policy
    return None


def has_explicit_scale(value: object) -> bool:
    """Return whether a policy's dict passes a loss scale explicitly."""
    config = value.get("config") if isinstance(value, dict) else None
    return isinstance(config, dict) and "loss_scale" in config


def scale_to_keep(loaded: LoadedModel) -> Dynamic | Fixed | None:
    """
    Return the scale that ``--keep loss-scale`` puts into the optimizer: the model policy's, where
    the model is compiled with an optimizer that has none.
    """
    policy, optimizer = model_policy(loaded), loaded.optimizer
    if (
        policy is None
        or optimizer is None
        or optimizer.loss_scale is not None
        or not _is_explicit(policy)
    ):
        return None
    return policy.effective_loss_scale


def verdict(loaded: LoadedModel) -> LossScaleVerdict | None:
    """
    Return the effect of dropping the loss scales of a model's policies; None if no policy has an
    explicit loss scale.
    """
    scaled = tuple(
        loaded.layers[index].path
        for index, site in enumerate(loaded.sites)
        if has_explicit_scale(site.spelled) and site.sub_policy is None
    )
    if not scaled:
        return None
    policy = model_policy(loaded)
    if policy is None or not _is_explicit(policy):
        return LossScaleVerdict(fate=Fate.INERT, layers=scaled)
    scale, optimizer = policy.effective_loss_scale, loaded.optimizer
    if optimizer is None:
        does_the_same = scale == (Dynamic() if policy.name == "mixed_float16" else None)
        return LossScaleVerdict(
            fate=Fate.COMPILED_ANEW if does_the_same else Fate.UNCOMPILED,
            policy=policy.name,
            scale=scale,
            layers=scaled,
        )
    others = optimizer.loss_scale
    same = Fate.UNSCALED if scale is None else Fate.SAME
    differs = Fate.PLAIN if others is None else Fate.OTHER
    return LossScaleVerdict(
        fate=same if scale == others else differs,
        policy=policy.name,
        scale=scale,
        others=others,
        layers=scaled,
    )


def notes(loaded: LoadedModel, *, kept: bool, leaves: str | None) -> tuple[Note, ...]:
    """
    Return the notes about the loss scales that the plan drops.

    :param kept: whether the model's loss scale moves to the optimizer
    :param leaves: the new policy of a model, and its optimizer, that leaves mixed_float16; None for
        other models
    """
    scale_verdict = verdict(loaded)
    if scale_verdict is None:
        return ()
    severity, code, what = NoteSeverity.NOTE, _DROPPED, scale_verdict.what
    scale = scale_text(scale_verdict.scale)
    if scale_verdict.fate is Fate.INERT:
        code = "ineffective-loss-scale"
        message = f"{what} are dropped; {scale_verdict.consequence}"
    elif leaves is not None:
        message = f"the policy's loss scale ({scale}) is dropped because {leaves} does not need one"
    elif kept:
        code = "loss-scale-moved"
        message = f"the policy's loss scale ({scale}) moves to the saved optimizer"
    else:
        severity = NoteSeverity.WARNING if scale_verdict.matters else NoteSeverity.NOTE
        advice = {
            Fate.PLAIN: "; --keep loss-scale moves it to the optimizer",
            Fate.UNCOMPILED: f"; before compile(), add {scale_verdict.line}",
        }.get(scale_verdict.fate, "")
        joint = ", and" if advice else ";"
        message = f"{what} is dropped{joint} {scale_verdict.consequence}{advice}"
    return (Note(severity=severity, code=code, message=message),)


def _is_explicit(policy: Policy) -> bool:
    return policy.loss_scale is not None and not isinstance(policy.loss_scale, Auto)


def _wrap_code(scale: Dynamic | Fixed | None) -> str:
    match scale:
        case Fixed(value=value):
            return (
                f"optimizer = {_WRAP}(optimizer, dynamic=False, initial_scale={value:g}), or in "
                f"Keras 3 pass loss_scale_factor={value:g} to the optimizer"
            )
        case Dynamic():
            steps = f"initial_scale={scale.initial:g}, dynamic_growth_steps={scale.growth_steps}"
            return (
                f"optimizer = {_WRAP}(optimizer, {steps}), or in Keras 3 "
                f"keras.optimizers.LossScaleOptimizer(optimizer, {steps})"
            )
    return (
        f"optimizer = {_WRAP}(optimizer, dynamic=False, initial_scale=1), or in Keras 3 "
        "compile(..., auto_scale_loss=False)"
    )


def scale_text(scale: Dynamic | Fixed | None) -> str:
    """Return a loss scale in words."""
    match scale:
        case Fixed(value=value):
            return f"fixed {value:g}"
        case Dynamic():
            return (
                "dynamic"
                if scale == Dynamic()
                else (
                    f"dynamic from {scale.initial:g}, growth by {scale.multiplier:g} every "
                    f"{scale.growth_steps} steps"
                )
            )
    return "none"
