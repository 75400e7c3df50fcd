"""
What the formats declare to be rewritten and created: changes of files and creators, the change of a
file that is one text (JSON where nothing else is said), and the rules that hold in every container.
"""

from __future__ import annotations

import codecs
import json
import os
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

from policytool.formats.writing import WriteError, require_same
from policytool.support import limits
from policytool.support.files import atomic, opening
from policytool.support.text import jsonedit, jsontext

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from policytool.formats.document import Document, Tensor, Values
    from policytool.formats.edits import Cast, Content, Counted, Edit, StateSlot
    from policytool.support.text.jsontext import Json

    Apply: TypeAlias = Callable[[str, Sequence[jsonedit.Change]], str]
    """Returns a text with values replaced, added and removed in it."""

    FindChanges: TypeAlias = Callable[[Path, "Changes"], Mapping[str, "FileChange"]]
    """
    Returns the files of a model that change, by their names in its directory; a model that is one
    file has an empty name.
    """


@dataclass(frozen=True, kw_only=True, slots=True)
class Changes:
    """What changes in one file."""

    edits: tuple[Edit, ...] = ()
    casts: tuple[Cast, ...] = ()
    state: tuple[StateSlot, ...] | None = None
    """The optimizer's state as it will be stored; None where it stays."""


class FileChange(Protocol):
    """What changes in one file of a model, and how the file is written with it."""

    def measure(self, source: Path) -> Counted:  # noqa: ARG002  # of those with tensors
        """Return what the casts do to the values: nothing where there are no tensors."""
        return {}

    def write(self, source: Path, draft: Path) -> Counted:
        """Write the changed source into an empty draft; return what :meth:`measure` does."""

    def compare(self, source: Path, draft: Path) -> None:
        """
        Raise :class:`~policytool.formats.writing.WriteError` where the draft is not the
        source with the change, and nothing but it.
        """


def refuse_casts(path: Path, casts: Sequence[Cast]) -> None:
    """
    Do nothing without casts, of which a file without tensors has none.

    :raises WriteError: if there are casts.
    """
    if casts:
        raise WriteError(
            "source-changed",
            f"{path.name} stores no tensors, but the plan casts some; run again with --preview",
        )


def edit_texts(
    texts: Mapping[str, str], edits: Sequence[Edit], apply: Apply = jsonedit.apply
) -> Mapping[str, str]:
    """
    Return the new text of each part that changes; ``apply`` knows the language of the texts.

    :raises WriteError: where the file does not hold what the edits say, or cannot be edited.
    """
    by_part: dict[str, list[jsonedit.Change]] = defaultdict(list)
    for edit in edits:
        by_part[edit.address.part].append((edit.address.pointer, edit.before, edit.after))
    missing = sorted(by_part.keys() - texts.keys())
    if missing:
        raise WriteError(
            "source-changed",
            f"has no {missing[0]}, which the plan changes; run again with --preview",
        )
    try:
        return {part: apply(texts[part], changes) for part, changes in by_part.items()}
    except jsonedit.EditError as error:
        raise WriteError(
            "source-changed", f"does not match the plan: {error}; run again with --preview"
        ) from error


def _decode(data: bytes, what: str) -> str:
    """
    Return the text of a file without its byte order mark.

    :raises WriteError: where it is not UTF-8.
    """
    try:
        return data.removeprefix(codecs.BOM_UTF8).decode("utf-8")
    except UnicodeDecodeError as error:
        raise WriteError(
            "not-rewritable", f"{what} is not UTF-8 text (byte {error.start}) and cannot be edited"
        ) from error


def _content(path: Path) -> bytes:
    return opening.read_bounded(path, limits.JSON_BYTES)


def whole_text(path: Path) -> str:
    """
    Return the text of a file that is nothing but one.

    :raises WriteError: where it is not UTF-8.
    """
    return _decode(_content(path), "the file")


@dataclass(frozen=True, kw_only=True, slots=True)
class TextChange(FileChange):
    """Edits of a file that is one text."""

    part: str
    edits: Sequence[Edit]
    apply: Apply = jsonedit.apply

    def write(self, source: Path, draft: Path) -> Counted:
        """
        Write the edited text into an empty draft.

        :raises WriteError: where the file does not hold what the edits say.
        :raises OSError: where reading or writing fails.
        """
        with atomic.open_descriptor(draft, os.O_WRONLY) as descriptor:
            atomic.write_all(descriptor, self.new_bytes(_content(source)), 0)
        return {}

    def compare(self, source: Path, draft: Path) -> None:
        """
        Compare a written text with its source.

        :raises WriteError: where it is not the edited source.
        """
        require_same(_content(draft) == self.new_bytes(_content(source)), self.part)

    def new_bytes(self, data: bytes) -> bytes:
        """
        Return the file with its text edited; a byte order mark stays.

        :raises WriteError: where the file does not hold what the edits say.
        """
        mark = codecs.BOM_UTF8 if data.startswith(codecs.BOM_UTF8) else b""
        text = _decode(data, self.part)
        return mark + edit_texts({self.part: text}, self.edits, self.apply).get(
            self.part, text
        ).encode("utf-8", "surrogatepass")


def text_change(
    part: str, path: Path, changes: Changes, apply: Apply = jsonedit.apply
) -> Mapping[str, FileChange]:
    """
    Return what changes in a file that is one text, in which nothing but ``part`` is edited.

    :raises WriteError: if the plan casts tensors, because the file stores none.
    """
    refuse_casts(path, changes.casts)
    return {"": TextChange(part=part, edits=changes.edits, apply=apply)}


@dataclass(frozen=True, kw_only=True, slots=True)
class Creator:
    """
    How models of one container are written from nothing; the ``creator`` of a format returns one.
    """

    main: str = ""
    """The file of a model that says what the others are; empty for a model that is one file."""

    state_group: tuple[str, ...] = ()
    """
    The group that the optimizer's state has to itself; empty if it shares one tree with the layers'
    variables.
    """

    write: Callable[[Path, Content, Values | None], Counted]
    """
    Write into an empty draft, a directory if :attr:`main` names a file of it; return what the casts
    did to the values, by :attr:`policytool.formats.edits.Placement.path`.
    """

    document: Callable[[Content, str], Document]
    """Return the document that reading the file gives, as if it were at a path."""

    check: Callable[[Path, Content], None] | None = None
    """
    Raise :class:`policytool.formats.writing.WriteError` if a draft lacks what loaders need
    and a document does not say: names in attributes.
    """


def ascii_json(value: Json) -> str:
    """
    Return JSON in ASCII: what is not is escaped.

    h5py 2 gives text attributes of another character set as ``str``, which TF 2.3 and 2.4 decode
    (tensorflow/python/keras/saving/hdf5_format.py).
    """
    return json.dumps(value)


def read_back(value: Json, part: str) -> Json:
    """
    Return JSON as a reader will see it.

    :raises WriteError: for what would not be read: it nests too deep, or is too large.
    """
    try:
        return jsontext.parse(ascii_json(value))[0]
    except jsontext.JsonError as error:
        raise WriteError("not-rewritable", f"the new {part} {error}") from error


def flat(path: Iterable[str]) -> tuple[str, ...]:
    """
    Return the steps of a path in HDF5, where a ``/`` in a name makes groups, and empty names and
    ``.`` stand for the group itself.
    """
    return tuple(step for name in path for step in name.split("/") if step not in {"", "."})


def walk_order(tensors: Iterable[Tensor]) -> tuple[Tensor, ...]:
    """
    Return tensors in the order in which a walk through a file meets them: a group's own before
    those of the groups in it, each by name.
    """
    return tuple(
        sorted(
            tensors,
            key=lambda tensor: [
                (depth < len(tensor.path) - 1, step.encode())
                for depth, step in enumerate(tensor.path)
            ],
        )
    )


def refuse_collisions(content: Content, state_group: tuple[str, ...]) -> None:
    """
    Make sure that everything has a place of its own.

    :param state_group: as :attr:`Creator.state_group`
    :raises WriteError: where two variables have one path, or one has that of a group.
    """
    together = (*content.placements, *content.state)
    for placements in (content.placements, content.state) if state_group else (together,):
        datasets = [flat(placement.path) for placement in placements]
        seen = {path[:end] for path in datasets for end in range(len(path))}
        if placements is not content.state:
            seen |= {
                path[:end]
                for path in (flat(group.path) for group in content.groups)
                for end in range(len(path) + 1)
            }
        for path in datasets:
            if path in seen:
                raise WriteError(
                    "not-rewritable",
                    f"the new file would have two objects at {'/'.join(path) or 'its root'}; "
                    "rename one of the layers",
                )
            seen.add(path)
