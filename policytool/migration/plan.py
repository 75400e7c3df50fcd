"""
What migrate is about to do to one file, as a value: made by pure code, shown before any write, and
obeyed by the writers.

A plan names every JSON value that changes with what stood there, every stored tensor that is cast,
and what happens to the optimizer's state. Loaders are judged by the document as it will be once the
plan is carried out.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from policytool.formats.edits import Cast, Content, Edit, StateSlot  # noqa: TC001  # for the codec
from policytool.model.model import Verdict  # noqa: TC001  # for the codec
from policytool.releases.behaviour import Proof  # noqa: TC001  # for the codec
from policytool.releases.releases import target_and_containers
from policytool.support.grouping import grouped
from policytool.support.text.jsontext import ABSENT, place

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from policytool.formats.document import Document
    from policytool.support.text.jsontext import Json


class NoteSeverity(StrEnum):
    """How much a note matters."""

    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, kw_only=True, slots=True)
class Note:
    """Something to know about the plan: what is lost, what was left alone, and why."""

    severity: NoteSeverity
    code: str
    """Stable and machine-readable, such as ``loss-scale-dropped``."""

    message: str
    path: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Kept:
    """A layer that does not follow ``--to``, and why."""

    path: str
    policy: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
    """Why a file cannot be migrated as asked: the layer, the reason, and what to do."""

    code: str
    message: str
    path: str | None = None


WEIGHT_REWRITE: Final = "weight-rewrite"
"""The code of a refusal that ``--allow weight-rewrite`` lifts."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ConversionChange:
    """One thing that a conversion writes otherwise than the source has it."""

    code: str
    """Stable and machine-readable, such as ``key-dropped``."""

    text: str
    """What became of what, as a sentence part: ``batch_shape becomes batch_input_shape``."""

    path: str | None = None
    """The layer; None where it is the model or the file as a whole."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Conversion:
    """How a model is written for a loader that does not take it as it is."""

    target: str
    """The loader, such as ``keras3.6``."""

    content: Content
    changes: tuple[ConversionChange, ...] = ()
    proofs: tuple[tuple[str, Proof], ...] = ()
    """By class name, how sure its conversion is."""

    agreeing: tuple[str, ...] = ()
    """
    The releases of the target's family that are not known to fail on the result and were measured
    to predict with it what the target does; nothing if a layer was not measured.
    """


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """Everything that a migration does to one file."""

    path: str
    """The file, as reports show it."""

    format: str
    generation: str | None
    suffix: str
    """
    What the default name of the output has before its suffix: ``migrated``, the policy or the
    target.
    """

    base_policy: str | None = None
    """The policy that ``--to`` replaces; None where nothing is retargeted."""

    edits: tuple[Edit, ...] = ()
    casts: tuple[Cast, ...] = ()
    state: tuple[StateSlot, ...] | None = None
    """The optimizer's state as it will stand in a ``.keras`` file; None where it stays as it is."""

    kept: tuple[Kept, ...] = ()
    notes: tuple[Note, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    loaders_before: tuple[Verdict, ...] = ()
    loaders_after: tuple[Verdict, ...] = ()
    conversion: Conversion | None = None
    """The file that is written anew for a target; None where the source's own file is edited."""

    retrace: bool = False
    """
    Whether the model is built and traced anew, which changes a SavedModel's graph whatever becomes
    of its metadata.
    """

    @property
    def matching_releases(self) -> tuple[str, ...]:
        """
        Those of the agreeing releases of a conversion that load the result for certain.

        A release that runs a file which is written as for an older one has that one's verdict.
        """
        if self.conversion is None:
            return ()
        loading = {verdict.loader for verdict in self.loaders_after if verdict.loads}
        return tuple(
            name for name in self.conversion.agreeing if target_and_containers(name)[0] in loading
        )

    @property
    def written_format(self) -> str:
        """The format of the result, as :attr:`format` names that of the source."""
        return self.conversion.content.container if self.conversion is not None else self.format

    @property
    def is_empty(self) -> bool:
        """Whether the file needs nothing."""
        return not (
            self.edits
            or self.casts
            or self.state is not None
            or self.refusals
            or self.retrace
            or self.conversion is not None
        )


def apply_edits(document: Document, edits: Iterable[Edit], casts: Iterable[Cast]) -> Document:
    """Return the document with the edits made and the tensors cast."""
    by_part = grouped((edit.address.part, edit) for edit in edits)
    parts: Mapping[str, Json] = {
        part: _edit(value, by_part[part]) for part, value in document.parts.items()
    }
    after = {cast.tensor: cast.after for cast in casts}
    tensors = document.tensors
    if tensors is not None and after:
        tensors = tuple(
            replace(tensor, dtype=after.get(tensor.path, tensor.dtype)) for tensor in tensors
        )
    return replace(document, parts=parts, tensors=tensors)


def _edit(value: Json, edits: list[Edit]) -> Json:
    if not edits:
        return value
    edited = copy.deepcopy(value)
    for edit in edits:
        holder, key = place(edited, edit.address.pointer)
        if edit.after is ABSENT:
            del holder[key]
        else:
            holder[key] = edit.after
    return edited
