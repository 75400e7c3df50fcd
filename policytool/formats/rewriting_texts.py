"""Text files, JSON where nothing else is said: their text, and the bytes of an edited one."""

from __future__ import annotations

import codecs
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from policytool.formats.writers import Rewriter, edit_texts, refuse_casts
from policytool.formats.writing import WriteError, differs
from policytool.support import limits
from policytool.support.files import atomic, opening
from policytool.support.text import jsonedit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from policytool.formats.edits import Cast, Counted, Edit
    from policytool.formats.writers import Apply, Changes, FileChange


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


def text(path: Path) -> str:
    """
    Return the text of a file that is nothing but one.

    :raises WriteError: where it is not UTF-8.
    """
    return _decode(_content(path), "the file")


@dataclass(frozen=True, kw_only=True, slots=True)
class TextChange:
    """Edits of a file that is one text."""

    part: str
    edits: Sequence[Edit]
    apply: Apply = jsonedit.apply

    def measure(self, source: Path) -> Counted:
        """Return nothing: there are no tensors."""
        del source
        return {}

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
        if _content(draft) != self.new_bytes(_content(source)):
            raise differs(self.part)

    def new_bytes(self, data: bytes) -> bytes:
        """
        Return the file with its text edited; a byte order mark stays.

        :raises WriteError: where the file does not hold what the edits say.
        """
        mark = codecs.BOM_UTF8 if data.startswith(codecs.BOM_UTF8) else b""
        text = _decode(data, self.part)
        edited = edit_texts({self.part: text}, self.edits, self.apply).get(self.part, text)
        return mark + edited.encode("utf-8", "surrogatepass")


def text_rewriter(
    part: str,
    *,
    apply: Apply = jsonedit.apply,
    refuse: Callable[[Path, Sequence[Cast]], None] = refuse_casts,
    companions: Callable[[Path], tuple[str, ...]] | None = None,
) -> Rewriter:
    """
    Return the rewriter of a format whose files are one text, in which nothing but ``part`` is
    edited; ``refuse`` raises for casts.
    """

    def files(path: Path, changes: Changes) -> Mapping[str, FileChange]:
        refuse(path, changes.casts)
        return {"": TextChange(part=part, edits=changes.edits, apply=apply)}

    return Rewriter(files=files, companions=companions)
