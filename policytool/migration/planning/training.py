"""
What a migration does to the saved optimizer: its wrapper's spelling, its loss scaling, and where
its state stands.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from policytool.formats.edits import Edit, EditKind, StateSlot
from policytool.migration.plan import Note, NoteSeverity
from policytool.migration.planning import loss_scale, optimizers
from policytool.migration.planning import optimizers as state
from policytool.migration.planning.optimizers import (
    NEVER_WRAPPED,
    WRAPPED_BY_TF_KERAS,
    Dialect,
)
from policytool.migration.planning.options import LossScales, Optimizers
from policytool.model import optimizer_config
from policytool.releases.policy import Dynamic, Fixed
from policytool.support.errors import SpellingError
from policytool.support.text import jsontext

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.migration.planning.options import Options
    from policytool.model.loaded_model import LoadedModel
    from policytool.support.text.jsontext import Json

_SCALED: Final = "mixed_float16"
"""The only policy under which ``compile()`` scales losses by itself, in every release."""


_NUMBER: Final = "shared_object_id"
"""The key of the number that Keras gives each object in its metadata."""

_LEGACY_TARGETS: Final = "tf2.1-2.3"


@dataclass(frozen=True, kw_only=True, slots=True)
class Training:
    """What becomes of the optimizer."""

    edits: tuple[Edit, ...] = ()
    state: tuple[StateSlot, ...] | None = None
    notes: tuple[Note, ...] = ()


@dataclass
class _Work:
    """The optimizer on its way through the steps."""

    value: Json
    reasons: list[str]
    notes: list[Note]
    kind: EditKind = EditKind.FORMAT

    def change(self, value: Json, reason: str, kind: EditKind = EditKind.TRAINING) -> None:
        """
        Take another value, if it is another; any change of training outweighs one of spelling.
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
    keep = (
        loss_scale.scale_to_keep(loaded)
        if options.loss_scale is LossScales.KEEP and respells
        else None
    )
    retargeted = options.to is not None and base != options.to and changes
    leaves = retargeted and base == _SCALED and options.optimizer is Optimizers.FOLLOW
    scale_notes = (
        loss_scale.notes(loaded, kept=keep is not None, leaves=str(options.to) if leaves else None)
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
    if keep is not None:
        _wrap(work, keep, dialect, "--keep loss-scale")
    if not leaves and _lost_its_wrapper(loaded, before, dialect):
        _fix_wrapper(work, dialect, keep=options.loss_scale is LossScales.KEEP)
    if retargeted and options.optimizer is Optimizers.FOLLOW:
        _follow(loaded, work, dialect, base, str(options.to))
    elif retargeted and {base, options.to} & {_SCALED}:
        work.notes.append(
            Note(
                severity=NoteSeverity.NOTE,
                code="optimizer-kept",
                message="the saved optimizer is unchanged because of --keep optimizer",
            )
        )
    moved = state.move_state(loaded, dialect, before, work.value, leaves_scaled=leaves)
    if retargeted and options.to == "bfloat16":
        work.notes += state.about_bfloat16(loaded, dialect, work.value)
    work.notes += state.notes(loaded, dialect, before, work.value, moved)
    if work.value == before:
        return Training(state=moved, notes=tuple(work.notes))
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
        state=moved,
        notes=tuple(work.notes),
    )


def _copies(loaded: LoadedModel, edit: Edit, before: Json, after: Json) -> Iterator[Edit]:
    """
    Yield the edit of the optimizer in TF 2.5's other file, where that says the same; it may lack
    the numbers of objects.
    """
    for node in loaded.document.nodes.values():
        if node.part == edit.address.part and node.other_part is not None:
            address = replace(edit.address, part=node.other_part)
            other, bare = loaded.value_at(address), jsontext.without(before, _NUMBER)
            if other == before:
                yield replace(edit, address=address)
            elif other == bare:
                yield replace(
                    edit, address=address, before=bare, after=jsontext.without(after, _NUMBER)
                )


def _modernise(work: _Work) -> None:
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
    Let the optimizer follow the model's policy: to mixed_float16 it scales losses, away from it it
    does not.
    """
    if to == _SCALED:
        _wrap(work, Dynamic(), dialect, "mixed_float16 requires loss scaling")
    elif base == _SCALED and optimizer_config.is_wrapped(work.value):
        work.reasons.clear()  # how the wrapper is spelled no longer matters
        work.change(optimizer_config.unwrap(work.value), f"{to} does not require loss scaling")
    elif base == _SCALED and optimizers.has_factor(work.value):
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
    root = loaded.document.config
    module = root.get("module") if isinstance(root, dict) else None
    package = (
        module.partition(".engine.")[0].partition(".models.")[0]
        if isinstance(module, str) and "." in module
        else "keras"
    )
    newest = all(release.library == "tf_keras" for release in loaded.origins)
    return Dialect(
        keras3=loaded.is_keras3,
        archive=loaded.document.format == "keras",
        package=package,
        unwrapped=NEVER_WRAPPED if newest else NEVER_WRAPPED | WRAPPED_BY_TF_KERAS,
    )
