"""Reporters, which create the output of the results of commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from policytool.reports.fields import json_pieces

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from policytool.reports.fields import Report
    from policytool.reports.layout import View
    from policytool.reports.page import Page


Value = TypeVar("Value")


class Reporter(Struct, Generic[Value], frozen=True, kw_only=True):
    """Creates a text report of values of a type."""

    name: str
    """The FORMAT by which it is chosen."""

    render: Callable[[Value, View], str]
    """
    Pure: the same values and the same view give the same text, which ends in a newline unless it is
    empty.
    """

    pieces: Callable[[Value, View], Iterable[str]] | None = None
    """Returns the same text in pieces, to save memory; None if the text has no pieces."""

    render_directory: Callable[[Value, View], Mapping[str, str]] | None = None
    """
    The texts of a directory by file name, the index last; None if the report is always one file.
    """


class BinaryReporter(Struct, Generic[Value], frozen=True, kw_only=True):
    """Creates a binary report of values of a type, which is never printed to a terminal."""

    name: str
    """The FORMAT by which it is chosen."""

    render: Callable[[Value, View], bytes]
    """Pure: the same values give the same bytes."""

    pieces: Callable[[Value, View], Iterable[bytes]]
    """Returns the same bytes in pieces."""

    check: Callable[[], None]
    """
    Raises MissingPackageError if a required package is not installed; called before models are
    read.
    """

    render_directory: None = None
    """None, because the report is always a single file."""


def streaming_reporter(
    name: str, pieces: Callable[[Value, View], Iterable[str]]
) -> Reporter[Value]:
    """Return a reporter that creates its text in pieces."""

    def render(value: Value, view: View) -> str:
        return "".join(pieces(value, view))

    return Reporter(name=name, render=render, pieces=pieces)


def json_reporter(report: Report[Value], *, ascii_only: bool = False) -> Reporter[Value]:
    """
    Return the reporter for the JSON of a report. Characters that the stream does not support are
    escaped.

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

    :param fill: creates the page; it uses the view only to decide on the amount of detail
    :param title: the title of the HTML page
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
