"""Values as the text of a JSON report."""

from __future__ import annotations

import re
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from policytool.support.text import codec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_HIDDEN: Final = re.compile(
    "[\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb\ufffe\uffff]"
)
"""
What JSON need not escape and a terminal obeys, or shows as nothing; and lone surrogates, which
UTF-8 has no bytes for.
"""


class JsonItems(NamedTuple):
    """The items of a list, which are made one after the other."""

    values: Iterable[object]


def json_pieces(values: object, *, unicode: bool) -> Iterator[str]:
    """
    Yield a report as :func:`json_text` returns it, with a piece for each of the ``JsonItems`` in
    it.
    """
    yield from _pieces(values, lambda value: _one_line(value, unicode=unicode))
    yield "\n"


def _pieces(values: object, encode: Callable[[object], str]) -> Iterator[str]:
    """Yield the text of values; parts without ``JsonItems`` are encoded as a whole."""
    match values:
        case JsonItems():
            yield from _enclosed("[", ((encode(item),) for item in values.values), "]")
        case dict() if _has_items(values):
            members = (
                chain((encode(key), ": "), _pieces(value, encode)) for key, value in values.items()
            )
            yield from _enclosed("{", members, "}")
        case list() if _has_items(values):
            yield from _enclosed("[", (_pieces(value, encode) for value in values), "]")
        case _:
            yield encode(values)


def _enclosed(opening: str, parts: Iterable[Iterable[str]], closing: str) -> Iterator[str]:
    yield opening
    for number, part in enumerate(parts):
        yield from (", ",) if number else ()
        yield from part
    yield closing


def _has_items(values: object) -> bool:
    """Return whether there are ``JsonItems`` in values."""
    match values:
        case JsonItems():
            return True
        case dict():
            return any(map(_has_items, values.values()))
        case list():
            return any(map(_has_items, values))
    return False


def json_text(values: object, *, unicode: bool) -> str:
    """
    Return a report as one line of JSON; without ``unicode``, or if a character would not be seen,
    it is escaped as JSON does it.
    """
    return _one_line(values, unicode=unicode) + "\n"


def _one_line(values: object, *, unicode: bool) -> str:
    text = codec.encode(values, ascii_only=not unicode, nan=False)
    if text.isascii():
        return text.replace("\x7f", "\\u007f")
    return _HIDDEN.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
