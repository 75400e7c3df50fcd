"""
The interfaces for rewriting and creating files: changes of files, and creators. Also the change of
a text file (JSON by default), and rules that apply to all container formats.
"""

from __future__ import annotations

import codecs
import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

from msgspec import Struct

from policytool.formats.writing import WriteError, require_same
from policytool.support import limits
from policytool.support.files import atomic, opening
from policytool.support.grouping import group_pairs
from policytool.support.text import jsonedit, jsontext

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from policytool.formats.document import Document, Tensor, Values
    from policytool.formats.edits import Cast, Content, Counted, Edit, StateSlot
    from policytool.support.text.jsontext import Json

    Apply: TypeAlias = Callable[[str, Sequence[jsonedit.Change]], str]
    """Returns a text after values in it are replaced, added and removed."""

    FindChanges: TypeAlias = Callable[[Path, "Changes"], Mapping[str, "FileChange"]]
    """
    Returns the changes to files of a model, by file name in its directory; the name is empty for a
    model that is one file.
    """


class Changes(Struct, frozen=True, kw_only=True):
    """The changes to a model."""

    edits: tuple[Edit, ...] = ()
    casts: tuple[Cast, ...] = ()
    state: tuple[StateSlot, ...] | None = None
    """The optimizer's new state; None to keep the stored state."""


class FileChange(Protocol):
    """The change to one file of a model, which can write and compare the file."""

    def measure(self, source: Path) -> Counted:  # noqa: ARG002  # of those with tensors
        """Return the effects of the casts on the values; empty for a file without tensors."""
        return {}

    def write(self, source: Path, draft: Path) -> Counted:
        """Write the changed source into an empty draft; return the same as :meth:`measure`."""

    def compare(self, source: Path, draft: Path) -> None:
        """
        Raise :class:`~policytool.formats.writing.WriteError` if the draft differs from the source
        by anything but the change.
        """


def refuse_casts(path: Path, casts: Sequence[Cast]) -> None:
    """
    Reject casts for a file without tensors.

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
    Return the new text of each part that changes; ``apply`` edits texts in their language.

    :raises WriteError: if the file does not match the edits, or cannot be edited.
    """
    by_part = group_pairs(
        (edit.address.part, (edit.address.pointer, edit.before, edit.after)) for edit in edits
    )
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

    :raises WriteError: if the file is not UTF-8.
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
    Return the text of a text file.

    :raises WriteError: if the file is not UTF-8.
    """
    return _decode(_content(path), "the file")


@dataclass(frozen=True, kw_only=True, slots=True)
class TextChange(FileChange):
    """Edits of a text file."""

    part: str
    edits: Sequence[Edit]
    apply: Apply = jsonedit.apply

    def write(self, source: Path, draft: Path) -> Counted:
        """
        Write the edited text into an empty draft.

        :raises WriteError: if the file does not match the edits.
        :raises OSError: if reading or writing fails.
        """
        with atomic.open_descriptor(draft, os.O_WRONLY) as descriptor:
            atomic.write_all(descriptor, self.new_bytes(_content(source)), 0)
        return {}

    def compare(self, source: Path, draft: Path) -> None:
        """
        Compare a written text with its source.

        :raises WriteError: if the written text is not the edited source.
        """
        require_same(_content(draft) == self.new_bytes(_content(source)), self.part)

    def new_bytes(self, data: bytes) -> bytes:
        """
        Return the content of the edited file, with its byte order mark.

        :raises WriteError: if the file does not match the edits.
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
    Return the change to a text file, whose only part is ``part``.

    :raises WriteError: if the plan casts tensors, because the file stores none.
    """
    refuse_casts(path, changes.casts)
    return {"": TextChange(part=part, edits=changes.edits, apply=apply)}


class Creator(Struct, frozen=True, kw_only=True):
    """
    The functions that create models in one container format, as a format's ``creator`` returns
    them.
    """

    main: str = ""
    """The main file in a model's directory; empty for a model that is one file."""

    state_group: tuple[str, ...] = ()
    """
    The group that contains only the optimizer's state; empty if the state is in the same tree as
    the layers' variables.
    """

    write: Callable[[Path, Content, Values | None], Counted]
    """
    Write into an empty draft, which is a directory if :attr:`main` is not empty. Return the effects
    of casts on the values, by :attr:`policytool.formats.edits.Placement.path`.
    """

    unpack: Callable[[Path, Content, Values | None], Counted] | None = None
    """
    Write an unpacked archive into an empty directory, for a release that loads it; None if the
    format is not an archive. The directory has the document of the archive.
    """

    document: Callable[[Content, str], Document]
    """Return the document of the new file, as if it were at a path."""

    check: Callable[[Path, Content], None] | None = None
    """
    Raise :class:`policytool.formats.writing.WriteError` if a draft lacks names in attributes, which
    releases need and a document does not contain.
    """


def ascii_json(value: Json) -> str:
    """
    Return JSON in ASCII, with all other characters escaped.

    h5py 2 returns text attributes that are not ASCII as ``str``, which TF 2.3 and 2.4 cannot decode
    (tensorflow/python/keras/saving/hdf5_format.py).
    """
    return json.dumps(value)


def read_back(value: Json, part: str) -> Json:
    """
    Return JSON after writing and parsing it.

    :raises WriteError: if readers would reject the JSON because it is too deep or too large.
    """
    try:
        return jsontext.parse(ascii_json(value))[0]
    except jsontext.JsonError as error:
        raise WriteError("not-rewritable", f"the new {part} {error}") from error


def flat(path: Iterable[str]) -> tuple[str, ...]:
    """
    Return the steps of a path in HDF5. A ``/`` in a name separates groups; empty names and ``.``
    mean the group itself.
    """
    return tuple(step for name in path for step in name.split("/") if step not in {"", "."})


def walk_order(tensors: Iterable[Tensor]) -> tuple[Tensor, ...]:
    """
    Return tensors in the order of a walk through a file: the tensors of a group before those of its
    subgroups, each sorted by name.
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
    Check that all paths in the new file are distinct.

    :param state_group: as in :attr:`Creator.state_group`
    :raises WriteError: if two variables, or a variable and a group, have the same path.
    """
    in_one_group = ((*content.placements, *content.state),)
    for placements in (content.placements, content.state) if state_group else in_one_group:
        datasets = [flat(placement.path) for placement in placements]
        group_paths = {path[:end] for path in datasets for end in range(len(path))}
        if placements is not content.state:
            group_paths |= {
                path[:end]
                for path in (flat(group.path) for group in content.groups)
                for end in range(len(path) + 1)
            }
        for path in datasets:
            if path in group_paths:
                raise WriteError(
                    "not-rewritable",
                    f"the new file would have two objects at {'/'.join(path) or 'its root'}; "
                    "rename one of the layers",
                )
            group_paths.add(path)
