"""
Pages as HTML: one file that needs nothing else, several files behind an index, or a part of a
notebook.

A page has a Content-Security-Policy that allows its own style and script, by their hashes, and
nothing else. Text from models is data: templates escape it, and what is not printable is written
by number. Long tables have filters.
"""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from policytool.reports import shell
from policytool.reports.html import charts
from policytool.reports.layout import escape_unprintable
from policytool.reports.page import INDEX, Cell, Chart, Page, Tone, Verdict
from policytool.support.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from policytool.reports.page import Block, Column, Table


_SEARCHED: Final = 12
"""Rows from which on a table has a search field."""

_CHOICES: Final = 12
"""Different texts that a column with a filter has at most."""

_DEEPEST: Final = 12
"""Levels of a tree that are indented; deeper ones are shown at the last of them."""


class Filter(NamedTuple):
    """A choice between the texts of a column."""

    title: str
    column: int
    """The place among the shown columns."""

    choices: tuple[str, ...]


class ShownRow(NamedTuple):
    """A row of the shown columns."""

    cells: tuple[Cell, ...]
    depth: int
    indent: int
    above: str
    """The part of the first cell's whole name that its label leaves out."""

    is_spanning: bool
    is_missed: bool


class ShownTable(NamedTuple):
    """A table as it is shown."""

    columns: tuple[Column, ...]
    rows: tuple[ShownRow, ...]
    filters: tuple[Filter, ...]
    is_searched: bool


def prepare(table: Table) -> ShownTable:
    """Return the table without columns that have no text in any row."""
    indices = table.shown
    is_searched = len(table.rows) >= _SEARCHED
    return ShownTable(
        columns=tuple(table.columns[index] for index in indices),
        rows=tuple(_rows(table, indices)),
        filters=tuple(_filters(table, indices)) if is_searched else (),
        is_searched=is_searched,
    )


def _rows(table: Table, indices: list[int]) -> Iterator[ShownRow]:
    """
    Yield the rows. A row without a label gets that of the row before, which a search may hide.
    """
    label = Cell(text="")
    for row in table.rows:
        first = row.cells[0]
        label = first if first.text else label._replace(tone=Tone.DIM)
        yield ShownRow(
            cells=(label, *(row.cells[index] for index in indices[1:])),
            depth=row.depth,
            indent=min(row.depth, _DEEPEST),
            above=label.whole.removesuffix(label.text) if label.whole.endswith(label.text) else "",
            is_spanning=row.is_spanning,
            is_missed=row.is_missed,
        )


def _filters(table: Table, indices: list[int]) -> list[Filter]:
    """
    Return the filters of the columns that have a few different texts; columns of measurements have
    none.
    """
    filters = []
    for place, index in enumerate(indices[1:], start=1):
        texts = sorted({row.cells[index].text for row in table.rows} - {""})
        if 1 < len(texts) <= _CHOICES and not all(text[0].isdigit() for text in texts):
            filters.append(
                Filter(title=table.columns[index].title, column=place, choices=tuple(texts))
            )
    return filters


_SPAN: Final = re.compile(r"`([^`]+)`")
_BEYOND: Final = re.compile(r"[^A-Za-z0-9._-]+")
_NAME_CHARACTERS: Final = 60


def render(page: Page, title: str) -> str:
    """Return a page as a document; ``title`` says what made it."""
    subjects = [subject for group in page.groups if (subject := _subject(group))]
    whole = f"{title}: {subjects[0]}" if len(subjects) == 1 else title
    return _document("page.html", title=whole, heading=title, page=page)


def render_directory(page: Page, title: str) -> Mapping[str, str]:
    """
    Return the files of a directory by name: a page for each group that has a subject, and last the
    index with their verdicts.
    """
    files: dict[str, str] = {}
    entries: list[tuple[str, Verdict]] = []
    about: list[tuple[Block, ...]] = []
    for group in page.groups:
        verdict = group[0]
        if not isinstance(verdict, Verdict) or not verdict.subject:
            about.append(group)
            continue
        name = f"{len(files) + 1:04}-{_file_part(verdict.subject)}.html"
        files[name] = render(Page(groups=(group,)), title)
        entries.append((name, verdict))
    files[INDEX] = _document(
        "index.html",
        title=title,
        heading=title,
        page=Page(groups=tuple(about), failures=page.failures),
        charts=[block for group in about for block in group if isinstance(block, Chart)],
        entries=tuple(entries),
    )
    return files


def fragment(page: Page) -> str:
    """Return a page as an element for a notebook, with its style and without a script."""
    template = _environment().get_template("fragment.html")
    return template.render(style=Markup(_source("style.css")), page=page)  # noqa: S704  # our own


def _document(name: str, **values: object) -> str:
    style, script = (_source(file) for file in ("style.css", "script.js"))
    return (
        _environment()
        .get_template(name)
        .render(
            style=Markup(style),  # noqa: S704  # our own
            script=Markup(script),  # noqa: S704  # our own
            style_hash=_digest(style),
            script_hash=_digest(script),
            version=VERSION,
            **values,
        )
    )


@cache
def _environment() -> Environment:
    """
    Return the environment of the templates, which fails for a name that does not exist, escapes
    every value, and makes it printable.
    """
    environment = Environment(
        loader=PackageLoader("policytool.reports.html"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
        lstrip_blocks=True,
        finalize=_printable,
    )
    environment.filters.update(
        kind=lambda block: type(block).__name__,
        prose=_prose,
        command=shell.command,
        table=prepare,
        curves=charts.curves,
        spreads=charts.spreads,
        bars=charts.bars,
        profile=charts.profile,
    )
    return environment


@cache
def _source(name: str) -> str:
    """Return a file beside the templates, without the line break at its end."""
    return files(__name__).joinpath("templates", name).read_text(encoding="utf-8").strip()


@cache
def _digest(text: str) -> str:
    """Return the hash of an inline style or script, as a Content-Security-Policy names it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _printable(value: object) -> object:
    return (
        escape_unprintable(value)
        if isinstance(value, str) and not isinstance(value, Markup)
        else value
    )


def _prose(text: str) -> Markup:
    """Return a sentence, in which words between backticks are code."""
    pieces = _SPAN.split(escape_unprintable(text))  # every second one stood between backticks
    return Markup().join(
        Markup("<code>{}</code>").format(piece) if position % 2 else escape(piece)
        for position, piece in enumerate(pieces)
    )


def _subject(group: Sequence[Block]) -> str:
    return next((block.subject for block in group if isinstance(block, Verdict)), "")


def _file_part(subject: str) -> str:
    """Return the last characters of a path that are safe in a file name and in a link."""
    return _BEYOND.sub("-", subject)[-_NAME_CHARACTERS:].strip("-.") or "model"
