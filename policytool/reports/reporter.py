"""What a reporter is: a way to show what a command found; and values as the text of JSON."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from policytool.support.text import codec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from policytool.reports.fields import Report
    from policytool.reports.layout import View
    from policytool.reports.page import Page


Value = TypeVar("Value")


@dataclass(frozen=True, kw_only=True, slots=True)
class Reporter(Generic[Value]):
    """A way to show values of one kind."""

    name: str
    """The FORMAT by which it is chosen."""

    render: Callable[[Value, View], str]
    """
    Pure: the same values and the same view give the same text, which ends in a newline unless it is
    empty.
    """

    pieces: Callable[[Value, View], Iterable[str]] | None = None
    """The same text in pieces, so that it is never in memory as a whole; None if it has to be."""

    render_directory: Callable[[Value, View], Mapping[str, str]] | None = None
    """
    The texts of a directory by file name, the index last; None if the report is always one file.
    """


@dataclass(frozen=True, kw_only=True, slots=True)
class BinaryReporter(Generic[Value]):
    """A way to show values of one kind that is no text, so that it never goes to a terminal."""

    name: str
    """The FORMAT by which it is chosen."""

    render: Callable[[Value, View], bytes]
    """Pure: the same values give the same bytes."""

    pieces: Callable[[Value, View], Iterable[bytes]]
    """The same bytes in pieces."""

    check: Callable[[], None]
    """
    Raises MissingPackageError if a package that it needs is not installed; called before anything
    is read.
    """

    render_directory: None = None
    """It is always one file."""


def streaming_reporter(
    name: str, pieces: Callable[[Value, View], Iterable[str]]
) -> Reporter[Value]:
    """Return the reporter that makes its text in pieces."""

    def render(value: Value, view: View) -> str:
        return "".join(pieces(value, view))

    return Reporter(name=name, render=render, pieces=pieces)


def json_reporter(report: Report[Value], *, ascii_only: bool = False) -> Reporter[Value]:
    """
    Return the reporter of a report's JSON; where the stream lacks characters, they are escaped as
    JSON does it.

    :param ascii_only: whether characters are escaped on every stream
    """

    def pieces(value: Value, view: View) -> Iterator[str]:
        return json_pieces(report.values(value), unicode=view.unicode and not ascii_only)

    return streaming_reporter("json", pieces)


def reporters_for_people(
    fill: Callable[[Value, View], Page], title: str
) -> tuple[Reporter[Value], Reporter[Value], Reporter[Value]]:
    """
    Return the reporters of a page: as text for a terminal, the default, as Markdown and as HTML.

    :param fill: makes the page; of the view, only how much to show concerns it
    :param title: what HTML calls the page
    """

    def as_text(value: Value, view: View) -> str:
        from policytool.reports import terminal

        return terminal.render(fill(value, view), view)

    def as_markdown(value: Value, view: View) -> str:
        from policytool.reports import markdown

        return markdown.render(fill(value, view))

    def as_html(value: Value, view: View) -> str:
        from policytool.reports import html

        return html.render(fill(value, replace(view, is_searchable=True)), title)

    def as_html_files(value: Value, view: View) -> Mapping[str, str]:
        from policytool.reports import html

        return html.render_directory(fill(value, replace(view, is_searchable=True)), title)

    return (
        Reporter(name="table", render=as_text),
        Reporter(name="markdown", render=as_markdown),
        Reporter(name="html", render=as_html, render_directory=as_html_files),
    )


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
    yield from _pieces(values, lambda value: _compact_json(value, unicode=unicode))
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
    return _compact_json(values, unicode=unicode) + "\n"


def _compact_json(values: object, *, unicode: bool) -> str:
    text = codec.encode(values, ascii_only=not unicode, nan=False)
    if text.isascii():
        return text.replace("\x7f", "\\u007f")
    return _HIDDEN.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
