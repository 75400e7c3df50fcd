"""
Text from files as GitHub-flavoured Markdown that shows it and does nothing else.

Escaping by backslash is not enough: GitHub turns ``@name``, ``#1`` and addresses into links after
Markdown is done, and parsers disagree on a backslash before a pipe. Within code nothing of that
happens, so what is more than plain words becomes code.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from policytool.reports.layout import clean

if TYPE_CHECKING:
    from collections.abc import Sequence

_SPAN: Final = re.compile(r"`([^`]+)`")
_PLAIN: Final = re.compile(r"(?:[^\W_]|[.,;'\"()/%+=!?·→-])*")
"""Letters and digits, and punctuation that is no markup within a line."""

_BLOCK: Final = re.compile(r"(?:\d+[.)]|[-+=]+)(?= |$)")
"""What would begin a list or underline a heading where a sentence begins with it."""

_LINK: Final = re.compile(r"(?i)www\.|\bGH-\d")
"""What GitHub makes a link of; ``://`` and ``@`` are not plain anyway."""

_STOPS: Final = ".,;:"
_IN_SPAN: Final = re.compile(r"[^`|\\&<>]*")


def code(text: str) -> str:
    """
    Return text as code: between backticks if a table cell leaves them as they are, otherwise as an
    element whose special characters are numeric references.
    """
    safe = clean(text)
    if not safe:
        return ""
    if _IN_SPAN.fullmatch(safe) and safe == safe.strip():
        return f"`{safe}`"
    return f"<code>{''.join(char if char.isalnum() else f'&#{ord(char)};' for char in safe)}</code>"


def name(text: str) -> str:
    """Return a name as it is, where it is one plain word, and as code otherwise."""
    return text if _is_plain(text) else code(text)


def prose(text: str) -> str:
    """Return a sentence whose plain words are unchanged and whose other words are code."""
    safe = clean(text)
    begin = _BLOCK.match(safe)
    if begin:
        return code(begin[0]) + prose(safe[begin.end() :])
    pieces = _SPAN.split(safe)  # every second piece was between backticks
    return "".join(
        code(piece) if position % 2 else " ".join(_word(word) for word in piece.split(" "))
        for position, piece in enumerate(pieces)
    )


def row(cells: Sequence[str]) -> str:
    """Return a row of a table, from cells that are Markdown."""
    return f"| {' | '.join(cells)} |"


def _word(word: str) -> str:
    core = word.rstrip(_STOPS)
    return name(core) + word[len(core) :]


def _is_plain(word: str) -> bool:
    return _PLAIN.fullmatch(word) is not None and not _LINK.search(word)
