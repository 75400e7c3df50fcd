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
from policytool.migration.planning.base import base_policy
from policytool.releases import generations
from policytool.releases.policy import Auto, Dynamic, Fixed, Policy
from policytool.support.errors import SpellingError
from policytool.support.shorten import join_first

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
        return _line(self.scale)

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
        return f"the policy's loss scale ({words(self.scale)})"

    @property
    def consequence(self) -> str:
        """What that means for training, as a sentence part."""
        match self.fate:
            case Fate.SAME:
                return "the saved optimizer has the same loss scale and keeps it"
            case Fate.UNSCALED:
                return (
                    "the saved optimizer does not scale losses, but compiling the model again "
                    "under mixed_float16 would add loss scaling"
                )
            case Fate.PLAIN:
                return (
                    "the saved optimizer does not scale losses, so training continues without "
                    "loss scaling"
                )
            case Fate.OTHER:
                return f"the saved optimizer uses a different loss scale ({words(self.others)})"
            case Fate.COMPILED_ANEW:
                return f"compile() adds the same loss scaling under {self.policy}"
            case Fate.UNCOMPILED:
                return "the model is not compiled, so the loss scale is lost"
            case Fate.INERT:
                return (
                    "they had no effect because only the policy of the model itself scales losses"
                )


def model_policy(loaded: LoadedModel) -> Policy | None:
    """
    Return the model's policy with the loss scale that the file spells; None where no layer says
    one.
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
                found = generations.parse(site.spelled, loaded.generation)
            except SpellingError:
                continue
            if isinstance(found, Policy):
                return found
    return None


def spells_scale(value: object) -> bool:
    """Return whether a policy's dict passes a loss scale explicitly."""
    config = value.get("config") if isinstance(value, dict) else None
    return isinstance(config, dict) and "loss_scale" in config


def scale_to_keep(loaded: LoadedModel) -> Dynamic | Fixed | None:
    """
    Return the scale that ``--keep loss-scale`` puts into the optimizer: the model policy's, where
    the model is compiled with an optimizer that has none.
    """
    found, optimizer = model_policy(loaded), loaded.optimizer
    if (
        found is None
        or optimizer is None
        or optimizer.loss_scale is not None
        or not _is_explicit(found)
    ):
        return None
    return found.effective_loss_scale


def verdict(loaded: LoadedModel) -> LossScaleVerdict | None:
    """
    Return what dropping the loss scales of a model's policies comes to; None where no policy passes
    one.
    """
    scaled = tuple(
        loaded.layers[index].path
        for index, site in enumerate(loaded.sites)
        if spells_scale(site.spelled) and site.sub_policy is None
    )
    if not scaled:
        return None
    found = model_policy(loaded)
    if found is None or not _is_explicit(found):
        return LossScaleVerdict(fate=Fate.INERT, layers=scaled)
    scale, optimizer = found.effective_loss_scale, loaded.optimizer
    if optimizer is None:
        does_the_same = scale == (Dynamic() if found.name == "mixed_float16" else None)
        return LossScaleVerdict(
            fate=Fate.COMPILED_ANEW if does_the_same else Fate.UNCOMPILED,
            policy=found.name,
            scale=scale,
            layers=scaled,
        )
    others = optimizer.loss_scale
    same = Fate.UNSCALED if scale is None else Fate.SAME
    differs = Fate.PLAIN if others is None else Fate.OTHER
    return LossScaleVerdict(
        fate=same if scale == others else differs,
        policy=found.name,
        scale=scale,
        others=others,
        layers=scaled,
    )


def notes(loaded: LoadedModel, *, kept: bool, leaves: str | None) -> tuple[Note, ...]:
    """
    Return what is to be said of the loss scales that the plan drops.

    :param kept: whether the model's moves into the optimizer
    :param leaves: the policy that the model goes to from mixed_float16, and the optimizer with it;
        None where it does not
    """
    found = verdict(loaded)
    if found is None:
        return ()
    if found.fate is Fate.INERT:
        return (
            Note(
                severity=NoteSeverity.NOTE,
                code="ineffective-loss-scale",
                message=f"{found.what} are dropped; {found.consequence}",
            ),
        )
    scale = words(found.scale)
    if leaves is not None:
        return (
            Note(
                severity=NoteSeverity.NOTE,
                code=_DROPPED,
                message=(
                    f"the policy's loss scale ({scale}) is dropped because {leaves} does not "
                    "need one"
                ),
            ),
        )
    if kept:
        return (
            Note(
                severity=NoteSeverity.NOTE,
                code="loss-scale-moved",
                message=f"the policy's loss scale ({scale}) moves to the saved optimizer",
            ),
        )
    joint = ", and" if found.fate in {Fate.PLAIN, Fate.UNCOMPILED} else ";"
    message = f"{found.what} is dropped{joint} {found.consequence}"
    if found.fate is Fate.PLAIN:
        message += "; --keep loss-scale moves it to the optimizer"
    elif found.fate is Fate.UNCOMPILED:
        message += f"; before compile(), add {found.line}"
    return (
        Note(
            severity=NoteSeverity.WARNING if found.matters else NoteSeverity.NOTE,
            code=_DROPPED,
            message=message,
        ),
    )


def _is_explicit(found: Policy) -> bool:
    return found.loss_scale is not None and not isinstance(found.loss_scale, Auto)


def _line(scale: Dynamic | Fixed | None) -> str:
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


def words(scale: Dynamic | Fixed | None) -> str:
    """Return a loss scale in words."""
    match scale:
        case Fixed(value=value):
            return f"fixed {value:g}"
        case Dynamic():
            default = scale == Dynamic()
            return (
                "dynamic"
                if default
                else (
                    f"dynamic from {scale.initial:g}, growth by {scale.multiplier:g} every "
                    f"{scale.growth_steps} steps"
                )
            )
    return "none"
