"""Text files, JSON where nothing else is said: their text, and the bytes of an edited one."""

from __future__ import annotations

import codecs
import os
from typing import TYPE_CHECKING, Final

from policytool.formats.rewriting.base import Rewriter, edit_texts, measure_nothing
from policytool.formats.writing.failures import WriteError, differs
from policytool.support import limits
from policytool.support.files import atomic, opening
from policytool.support.text import jsonedit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from policytool.formats.edits import Cast, Counted, Edit
    from policytool.formats.rewriting.base import Apply, Changes

_THE_FILE: Final = "the file"
"""What a file that is one text is called in errors."""


def decode(data: bytes, what: str) -> str:
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


def new_bytes(
    data: bytes, part: str, edits: Sequence[Edit], apply: Apply = jsonedit.apply
) -> bytes:
    """
    Return a text file with its part edited; a byte order mark stays.

    :raises WriteError: where the file does not hold what the edits say.
    """
    mark = codecs.BOM_UTF8 if data.startswith(codecs.BOM_UTF8) else b""
    text = decode(data, part)
    return mark + edit_texts({part: text}, edits, apply).get(part, text).encode(
        "utf-8", "surrogatepass"
    )


def member(path: Path) -> str:
    """
    Return the text of a file of a model's directory.

    :raises WriteError: where it is not UTF-8.
    :raises OSError: where it cannot be read.
    """
    return decode(_content(path), path.name)


def _content(path: Path) -> bytes:
    return opening.read_bounded(path, limits.JSON_BYTES)


def write(
    source: Path, draft: Path, part: str, edits: Sequence[Edit], apply: Apply = jsonedit.apply
) -> None:
    """
    Write an edited text file into an empty draft.

    :raises WriteError: where the file does not hold what the edits say.
    :raises OSError: where reading or writing fails.
    """
    with atomic.open_descriptor(draft, os.O_WRONLY) as descriptor:
        atomic.write_all(descriptor, new_bytes(_content(source), part, edits, apply), 0)


def compare(
    source: Path, draft: Path, part: str, edits: Sequence[Edit], apply: Apply = jsonedit.apply
) -> None:
    """
    Compare a written text file with its source.

    :raises WriteError: where it is not the edited source.
    """
    if _content(draft) != new_bytes(_content(source), part, edits, apply):
        raise differs(part)


def text(path: Path) -> str:
    """
    Return the text of a file that is nothing but one.

    :raises WriteError: where it is not UTF-8.
    """
    return decode(_content(path), _THE_FILE)


def text_rewriter(
    part: str,
    measure: Callable[[Path, Sequence[Cast]], Counted] = measure_nothing,
    apply: Apply = jsonedit.apply,
    companions: Callable[[Path], tuple[str, ...]] | None = None,
) -> Rewriter:
    """
    Return the rewriter of a format whose files are one text, in which nothing but ``part`` is
    edited; ``measure`` refuses casts.
    """

    def texts(path: Path) -> Mapping[str, str]:
        return {part: text(path)}

    def write_changes(source: Path, draft: Path, changes: Changes) -> Counted:
        write(source, draft, part, changes.edits, apply)
        return measure(source, changes.casts)

    def compare_changes(source: Path, draft: Path, changes: Changes) -> None:
        compare(source, draft, part, changes.edits, apply)

    return Rewriter(
        texts=texts,
        measure=measure,
        write=write_changes,
        compare=compare_changes,
        companions=companions,
    )
