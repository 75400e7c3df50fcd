"""
The changes of a migration to the saved optimizer: the format of its wrapper, its loss scaling, and
the place of its state; and the effect on training if a policy loses its loss scale.

Only the model's policy scales losses; the loss scale of a layer's policy has no effect. Compiled
models of TF 2.1 to 2.6 store the scale in the optimizer too, which keeps it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from policytool.formats.edits import Edit, EditKind, StateSlot
from policytool.migration.plan import Note, NoteSeverity
from policytool.migration.planning import optimizers
from policytool.migration.planning import optimizers as state
from policytool.migration.planning.decisions import base_policy
from policytool.migration.planning.optimizers import Dialect
from policytool.migration.planning.options import LossScales, Optimizers
from policytool.model import optimizer_config
from policytool.releases import generations, keras_objects
from policytool.releases.policy import Auto, Dynamic, Fixed, Policy
from policytool.support.errors import SpellingError
from policytool.support.text import jsontext
from policytool.support.text.phrases import join_first

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.migration.planning.options import Options
    from policytool.model.loaded_model import LoadedModel
    from policytool.support.text.jsontext import Json

_WRAP: Final = "tf.keras.mixed_precision.LossScaleOptimizer"


class Fate(Enum):
    """The effect of dropping the loss scale of a policy."""

    SAME = auto()
    """The saved optimizer has the same loss scale."""

    UNSCALED = auto()
    """Neither the policy nor the saved optimizer scales losses."""

    PLAIN = auto()
    """The saved optimizer does not scale losses."""

    OTHER = auto()
    """The saved optimizer has another loss scale."""

    COMPILED_ANEW = auto()
    """There is no saved optimizer, and ``compile()`` scales losses in the same way."""

    UNCOMPILED = auto()
    """There is no saved optimizer, and ``compile()`` scales losses differently or not at all."""

    INERT = auto()
    """Only policies of layers have a loss scale, not the policy of the model."""


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
"""The effect on training for each fate, as part of a sentence."""


class LossScaleVerdict(Struct, frozen=True, kw_only=True):
    """
    The effect on training if releases, or a migration, drop the loss scales of a model's policies.
    """

    fate: Fate
    policy: str | None = None
    """The name of the model's policy; None if only layers have a loss scale."""

    scale: Dynamic | Fixed | None = None
    """The loss scale of the model's policy; None for no scaling."""

    optimizer_scale: Dynamic | Fixed | None = None
    """The loss scale of the saved optimizer; None for no scaling."""

    layers: tuple[str, ...] = ()
    """The paths of the layers whose policies have a loss scale."""

    @property
    def matters(self) -> bool:
        """Whether training changes."""
        return self.fate in {Fate.PLAIN, Fate.OTHER, Fate.UNCOMPILED}

    @property
    def line(self) -> str:
        """The code before ``compile()`` that restores the policy's loss scale."""
        return _wrap_code(self.scale)

    @property
    def what(self) -> str:
        """The dropped loss scales, in words."""
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
        """The effect on training, as part of a sentence."""
        return _CONSEQUENCES[self.fate].format(
            others=scale_text(self.optimizer_scale), policy=self.policy
        )


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
    return "loss_scale" in keras_objects.arguments_of(value)


def scale_to_keep(loaded: LoadedModel) -> Dynamic | Fixed | None:
    """
    Return the loss scale that ``--keep loss-scale`` adds to the optimizer: that of the model's
    policy, if the model has an optimizer without a loss scale; otherwise None.
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
    optimizer_scale = optimizer.loss_scale
    fate_of_equal_scales = Fate.UNSCALED if scale is None else Fate.SAME
    fate_of_other_scales = Fate.PLAIN if optimizer_scale is None else Fate.OTHER
    return LossScaleVerdict(
        fate=fate_of_equal_scales if scale == optimizer_scale else fate_of_other_scales,
        policy=policy.name,
        scale=scale,
        optimizer_scale=optimizer_scale,
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
    severity, code, dropped_words = NoteSeverity.NOTE, "loss-scale-dropped", scale_verdict.what
    scale = scale_text(scale_verdict.scale)
    if scale_verdict.fate is Fate.INERT:
        code = "ineffective-loss-scale"
        message = f"{dropped_words} are dropped; {scale_verdict.consequence}"
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
        message = f"{dropped_words} is dropped{joint} {scale_verdict.consequence}{advice}"
    return (Note(severity=severity, code=code, message=message),)


def _is_explicit(policy: Policy) -> bool:
    return policy.loss_scale is not None and not isinstance(policy.loss_scale, Auto)


def _wrap_code(scale: Dynamic | Fixed | None) -> str:
    """Return the code that wraps an optimizer with a loss scale."""
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


SCALED: Final = "mixed_float16"
"""The only policy with which ``compile()`` scales losses by default, in all releases."""

_LEGACY_TARGETS: Final = "tf2.1-2.3"


class Training(Struct, frozen=True, kw_only=True):
    """The changes to the optimizer."""

    edits: tuple[Edit, ...] = ()
    state: tuple[StateSlot, ...] | None = None
    notes: tuple[Note, ...] = ()


@dataclass
class _Work:
    """The optimizer and its changes, updated by each step."""

    value: Json
    reasons: list[str]
    notes: list[Note]
    kind: EditKind = EditKind.FORMAT

    def change(self, value: Json, reason: str, kind: EditKind = EditKind.TRAINING) -> None:
        """
        Record a value if it differs; the edit counts as format-only if no change affects training.
        """
        if value != self.value:
            self.value = value
            self.reasons.append(reason)
            self.kind = kind if kind is EditKind.TRAINING else self.kind


def plan(
    loaded: LoadedModel,
    options: Options,
    base: str | None,
    *,
    changes: bool,
    respells: bool,
    target: str | None,
) -> Training:
    """
    Return the changes to the saved optimizer that the options require.

    :param base: the policy that ``--to`` replaces
    :param changes: whether the policy of any layer changes
    :param respells: whether policies lose a loss scale
    :param target: the generation whose policy format is written, if ``--target`` names one
    """
    place = optimizer_config.optimizer_place(loaded.document)
    kept_scale = (
        scale_to_keep(loaded) if options.loss_scale is LossScales.KEEP and respells else None
    )
    retargeted = options.to is not None and base != options.to and changes
    leaves = retargeted and base == SCALED and options.optimizer is Optimizers.FOLLOW
    scale_notes = (
        notes(loaded, kept=kept_scale is not None, leaves=str(options.to) if leaves else None)
        if respells
        else ()
    )
    if place is None:
        return Training(notes=scale_notes)
    address, before = place
    work = _Work(value=before, reasons=[], notes=list(scale_notes))
    dialect = _dialect(loaded)
    if not dialect.keras3 and target != _LEGACY_TARGETS:
        _modernise(work)
    if kept_scale is not None:
        _wrap(work, kept_scale, dialect, "--keep loss-scale")
    if not leaves and _lost_its_wrapper(loaded, before, dialect):
        _fix_wrapper(work, dialect, keep=options.loss_scale is LossScales.KEEP)
    if retargeted and options.optimizer is Optimizers.FOLLOW:
        _follow(loaded, work, dialect, base, str(options.to))
    elif retargeted and {base, options.to} & {SCALED}:
        work.notes.append(
            Note(
                severity=NoteSeverity.NOTE,
                code="optimizer-kept",
                message="the saved optimizer is unchanged because of --keep optimizer",
            )
        )
    moved_state = state.move_state(loaded, dialect, before, work.value, leaves_scaled=leaves)
    if retargeted and options.to == "bfloat16":
        work.notes += state.about_bfloat16(loaded, dialect, work.value)
    work.notes += state.notes(loaded, dialect, before, work.value, moved_state)
    if work.value == before:
        return Training(state=moved_state, notes=tuple(work.notes))
    edit = Edit(
        kind=work.kind,
        address=address,
        path=None,
        before=before,
        after=work.value,
        reason="; ".join(work.reasons),
    )
    return Training(
        edits=(edit, *_copies(loaded, edit, before, work.value)),
        state=moved_state,
        notes=tuple(work.notes),
    )


def _copies(loaded: LoadedModel, edit: Edit, before: Json, after: Json) -> Iterator[Edit]:
    """
    Yield the edit of the optimizer in the second metadata file of TF 2.5, if it stores the same
    optimizer; it may lack the numbers of objects.
    """
    for node in loaded.document.nodes.values():
        if node.part == edit.address.part and node.other_part is not None:
            address = replace(edit.address, part=node.other_part)
            other, without_numbers = (
                loaded.value_at(address),
                jsontext.without(before, keras_objects.SHARED_ID),
            )
            if other == before:
                yield replace(edit, address=address)
            elif other == without_numbers:
                yield replace(
                    edit,
                    address=address,
                    before=without_numbers,
                    after=jsontext.without(after, keras_objects.SHARED_ID),
                )


def _modernise(work: _Work) -> None:
    """Write the loss-scaling wrapper in its newest format, or add a note if that is impossible."""
    try:
        work.change(
            optimizers.modernize(work.value),
            "the loss-scaling wrapper is written in the format of TF 2.4 and later",
            EditKind.FORMAT,
        )
    except SpellingError as error:
        work.notes.append(
            Note(
                severity=NoteSeverity.WARNING,
                code="loss-scale-multiplier",
                message=(
                    f"the saved optimizer is unchanged: {error}; TF 2.4 and later load it only "
                    "with compile=False"
                ),
            )
        )


def _lost_its_wrapper(loaded: LoadedModel, before: Json, dialect: Dialect) -> bool:
    """
    Return whether Keras 3's compile() wrapped the optimizer and only the optimizer's state shows
    it. Such a file loads with an optimizer that starts without its state.
    """
    return (
        dialect.keras3
        and dialect.archive
        and not optimizer_config.is_wrapped(before)
        and state.is_of_wrapper(loaded)
    )


def _fix_wrapper(work: _Work, dialect: Dialect, *, keep: bool) -> None:
    """Write the loss-scaling wrapper that a Keras 3 config lacks, or add a note about it."""
    if keep:
        _wrap(
            work,
            Dynamic(),
            dialect,
            "the state belongs to a loss-scaling wrapper that is missing from the config",
        )
        return
    work.notes.append(
        Note(
            severity=NoteSeverity.WARNING,
            code="wrapper-lost",
            message=(
                "compile() wrapped the optimizer for loss scaling, but Keras 3 saved the config "
                "of the inner optimizer with the state of the wrapper, so loading resets the "
                "optimizer; use --keep loss-scale to write the wrapper and restore the state"
            ),
        )
    )


def _wrap(work: _Work, scale: Dynamic | Fixed, dialect: Dialect, reason: str) -> None:
    """Add a loss scale to the optimizer unless it has one."""
    if optimizer_config.is_wrapped(work.value) or optimizers.has_factor(work.value):
        return
    try:
        work.change(optimizers.wrap(work.value, scale, dialect), reason)
    except SpellingError as error:
        work.notes.append(
            Note(
                severity=NoteSeverity.WARNING,
                code="loss-scale-lost",
                message=f"loss scaling is not added to the saved optimizer: {error}",
            )
        )


def _follow(loaded: LoadedModel, work: _Work, dialect: Dialect, base: str | None, to: str) -> None:
    """
    Change the optimizer with the model's policy: add loss scaling for mixed_float16, and remove it
    for other policies.
    """
    if to == SCALED:
        _wrap(work, Dynamic(), dialect, "mixed_float16 requires loss scaling")
    elif base == SCALED and optimizer_config.is_wrapped(work.value):
        work.reasons.clear()  # the format of the wrapper no longer matters
        work.change(optimizer_config.unwrap(work.value), f"{to} does not require loss scaling")
    elif base == SCALED and optimizers.has_factor(work.value):
        optimizer = loaded.optimizer
        scale = optimizer.loss_scale if optimizer else None
        factor = f" of {scale.value:g}" if isinstance(scale, Fixed) else ""
        work.notes.append(
            Note(
                severity=NoteSeverity.NOTE,
                code="loss-scale-factor",
                message=(
                    f"the optimizer keeps its loss_scale_factor{factor}, which {to} does not "
                    "require; keeping it is harmless"
                ),
            )
        )


def _dialect(loaded: LoadedModel) -> Dialect:
    """Return how the library of a file writes optimizers."""
    root = loaded.document.config
    module = root.get("module") if isinstance(root, dict) else None
    package = (
        module.partition(".engine.")[0].partition(".models.")[0]
        if isinstance(module, str) and "." in module
        else "keras"
    )
    return Dialect(
        keras3=loaded.is_keras3,
        archive=loaded.document.format == "keras",
        package=package,
        is_tf_keras=all(release.library == "tf_keras" for release in loaded.origins),
    )
