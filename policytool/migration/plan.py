"""
The planned changes to one file, as a value: pure code creates it, ``--dry-run`` prints it, and the
writers apply it.

A plan lists each changed JSON value with its old value, each cast of a stored tensor, and the
changes to the optimizer's state. The verdicts of releases are on the document with the plan
applied.
"""

from __future__ import annotations

from collections.abc import Sequence  # noqa: TC003  # for the codec
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, structs

from policytool.formats.edits import Cast, Content, Edit, StateSlot  # noqa: TC001  # for the codec
from policytool.model import reading
from policytool.model.model import Verdict, verdict_for
from policytool.releases.behaviour import Proof  # noqa: TC001  # for the codec
from policytool.support.grouping import group_pairs
from policytool.support.text.jsontext import ABSENT, steps

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from policytool.formats.document import Document
    from policytool.model.loaded_model import LoadedModel
    from policytool.support.text.jsontext import Json


REBUILD: Final = (
    "load the model in the release that wrote it, rebuild it in the target release, and copy the "
    "weights"
)
"""The advice on a model that no command can convert."""

COPY_WEIGHTS: Final = f"{REBUILD}: new.set_weights(old.get_weights())"
"""The advice on a subclassed model: both models are instances of its class."""


class NoteSeverity(StrEnum):
    """The severity of a note."""

    WARNING = "warning"
    NOTE = "note"


class Note(Struct, frozen=True, kw_only=True):
    """A note on the plan: lost information, or unchanged parts, and the reason."""

    severity: NoteSeverity
    code: str
    """Stable and machine-readable, such as ``loss-scale-dropped``."""

    message: str
    path: str | None = None


class Kept(Struct, frozen=True, kw_only=True):
    """A layer that ``--to`` does not change, with the reason."""

    path: str
    policy: str
    reason: str


class Refusal(Struct, frozen=True, kw_only=True):
    """The reason why a file cannot be migrated, with the layer and a suggestion."""

    code: str
    message: str
    path: str | None = None


WEIGHT_REWRITE: Final = "weight-rewrite"
"""The code of a refusal that ``--allow weight-rewrite`` overrides."""


CUSTOM_CODE: Final = "custom-classes"
"""The code of a note: predictions depend on the code of custom classes."""

WRAPPER_POLICY: Final = "wrapper-policy"
"""The code of a note: Keras 3 loads the edited file, but computes layers in other dtypes."""


class ConversionChange(Struct, frozen=True, kw_only=True):
    """A difference between the source and the result of a conversion."""

    code: str
    """Stable and machine-readable, such as ``key-dropped``."""

    text: str
    """The difference, as part of a sentence: ``batch_shape becomes batch_input_shape``."""

    path: str | None = None
    """The layer; None for the whole model or file."""

    omitted: str | None = None
    """
    The argument that is omitted because the target always uses its value: ``optional of
    InputLayer``; None for other changes.
    """


class Conversion(Struct, frozen=True, kw_only=True):
    """The conversion of a model for a release that does not load it unchanged."""

    target: str
    """The target release, such as ``keras3.6``."""

    content: Content
    changes: tuple[ConversionChange, ...] = ()
    proofs: tuple[tuple[str, Proof], ...] = ()
    """The proof of the conversion of each class, by class name."""

    unmeasured: tuple[str, ...] = ()
    """The unmeasured classes, each with its arguments if it was measured with other arguments."""

    functions: tuple[tuple[str, str], ...] = ()
    """The functions of Lambda layers that the result calls by name, with their expressions."""

    unknown_functions: tuple[str, ...] = ()
    """The names of those whose expression is unknown, or that the source also calls by name."""

    agreeing: tuple[str, ...] = ()
    """
    The releases of the target's family whose measured predictions equal those of the target; empty
    if a layer was not measured. Some may fail to load the result.
    """


class Plan(Struct, frozen=True, kw_only=True):
    """All changes of a migration to one file."""

    path: str
    """The path of the file, as reports print it."""

    format: str
    generation: str | None
    suffix: str
    """
    The part of the default output name before the extension: ``migrated``, the policy or the
    target.
    """

    base_policy: str | None = None
    """The policy that ``--to`` replaces; None without ``--to``, or if no layer has a policy."""

    weights: str | None = None
    """The path of the separate weights of an architecture, as reports print it."""

    edits: tuple[Edit, ...] = ()
    casts: tuple[Cast, ...] = ()
    state: tuple[StateSlot, ...] | None = None
    """The new optimizer state of a ``.keras`` file; None if it does not change."""

    kept: tuple[Kept, ...] = ()
    notes: tuple[Note, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    loaders_before: Sequence[Verdict] = ()
    loaders_after: Sequence[Verdict] = ()
    conversion: Conversion | None = None
    """The conversion for a target, which writes a new file; None if the source is edited."""

    retrace: bool = False
    """
    Whether the model is re-exported, which changes the graph of a SavedModel even if its metadata
    does not change.
    """

    @property
    def matching_releases(self) -> tuple[str, ...]:
        """The agreeing releases of a conversion that are known to load the result."""
        if self.conversion is None:
            return ()
        return tuple(
            name
            for name in self.conversion.agreeing
            if (verdict := verdict_for(self.loaders_after, name)) is not None and verdict.loads
        )

    def note(self, code: str) -> Note | None:
        """Return the first note with a code; None if the plan has none."""
        return next((note for note in self.notes if note.code == code), None)

    @property
    def written_format(self) -> str:
        """The format of the result; :attr:`format` is the format of the source."""
        return self.conversion.content.container if self.conversion is not None else self.format

    @property
    def is_empty(self) -> bool:
        """Whether the plan changes nothing in the file."""
        return not (
            self.edits
            or self.casts
            or self.state is not None
            or self.refusals
            or self.retrace
            or self.conversion is not None
        )


def planned_model(loaded: LoadedModel, plan: Plan) -> LoadedModel:
    """Return the model with the edits and casts of a plan."""
    if not (plan.edits or plan.casts):
        return loaded
    return reading.load_model(apply_edits(loaded.document, plan.edits, plan.casts))


def apply_edits(document: Document, edits: Iterable[Edit], casts: Iterable[Cast]) -> Document:
    """Return the document after the edits and casts, which is not yet under a name."""
    by_part = group_pairs((edit.address.part, edit) for edit in edits)
    parts: Mapping[str, Json] = {
        part: _edit(value, by_part[part]) for part, value in document.parts.items()
    }
    after = {cast.tensor: cast.after for cast in casts}
    tensors = document.tensors
    if tensors is not None and after:
        tensors = tuple(
            structs.replace(tensor, dtype=after.get(tensor.path, tensor.dtype))
            for tensor in tensors
        )
    return replace(document, parts=parts, tensors=tensors, local_path=None)


def _edit(value: Json, edits: Iterable[Edit]) -> Json:
    """Return a value with edits applied; only the objects and lists that change are copied."""
    root: list[Any] = [value]
    copies: dict[int, Any] = {}
    for edit in edits:
        holder: Any = root
        key: Any = 0
        for step in steps(edit.address.pointer):
            inner = holder[key]
            if id(inner) not in copies:
                inner = holder[key] = inner.copy()
                copies[id(inner)] = inner
            holder, key = inner, int(step) if isinstance(inner, list) else step
        if edit.after is ABSENT:
            del holder[key]
        else:
            holder[key] = edit.after
    edited: Json = root[0]
    return edited
