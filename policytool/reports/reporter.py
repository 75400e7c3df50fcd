"""What a reporter is: a way to show what a command found."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, TypeVar

from policytool.reports.fields import json_pieces

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
    """A way to show values of one kind that is not text, so that it never goes to a terminal."""

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
