"""Text files, JSON where nothing else is said: their text, and the bytes of an edited one."""

from __future__ import annotations

import codecs
import os
from typing import TYPE_CHECKING

from policytool import drafts, jsonedit
from policytool.writers._base import WriteError, differs, edited

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from policytool.plan import Edit
    from policytool.writers._base import Apply


def decoded(data: bytes, what: str) -> str:
    """
    Return the text of a file without its byte order mark.

    :raises WriteError: where it is not UTF-8.
    """
    try:
        return data.removeprefix(codecs.BOM_UTF8).decode("utf-8")
    except UnicodeDecodeError as error:
        raise WriteError("not-rewritable", f"{what} is not UTF-8 text (byte {error.start}), and is only read") from error


def new_bytes(data: bytes, part: str, edits: Sequence[Edit], apply: Apply = jsonedit.apply) -> bytes:
    """
    Return a text file with its part edited; a byte order mark stays.

    :raises WriteError: where the file does not hold what the edits say.
    """
    mark = codecs.BOM_UTF8 if data.startswith(codecs.BOM_UTF8) else b""
    text = decoded(data, part)
    return mark + edited({part: text}, edits, apply).get(part, text).encode("utf-8", "surrogatepass")


def write(source: Path, draft: Path, part: str, edits: Sequence[Edit], apply: Apply = jsonedit.apply) -> None:
    """
    Write an edited text file into an empty draft.

    :raises WriteError: where the file does not hold what the edits say.
    :raises OSError: where reading or writing fails.
    """
    with drafts.opened(draft, os.O_WRONLY) as descriptor:
        drafts.write_all(descriptor, new_bytes(source.read_bytes(), part, edits, apply), 0)


def compare(source: Path, draft: Path, part: str, edits: Sequence[Edit], apply: Apply = jsonedit.apply) -> None:
    """
    Compare a written text file with its source.

    :raises WriteError: where it is not the edited source.
    """
    if draft.read_bytes() != new_bytes(source.read_bytes(), part, edits, apply):
        raise differs(part)
