"""What holds for the reports of every command, and their golden files."""

from __future__ import annotations

import difflib
import json
import re
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, ClassVar, Final

import jsonschema
import pytest

from policytool.reports import View
from policytool.reports.layout import width_of
from policytool.support.project import VERSION
from tests.contracts.reporter_contract import compared, rendered_by
from tests.helpers.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from policytool.reports import Reporter

_ANSI: Final = re.compile(r"\x1b\[[0-9;]*m")
_TABLES: Final = re.compile(r"(?:^\|.*\|\n)+", re.MULTILINE)


@cache
def validator(name: str) -> jsonschema.Draft202012Validator:
    """Return the validator of a shipped schema."""
    text = resources.files("policytool.reports.schemas").joinpath(f"{name}.schema.json")
    schema = json.loads(text.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def strict_json(name: str, text: str) -> Any:
    """Return the values of a JSON report, which has to follow the shipped schema."""
    values = json.loads(
        text, parse_constant=lambda constant: pytest.fail(f"{constant} is not in JSON")
    )
    validator(name).validate(values)
    return values


def even_tables(text: str) -> bool:
    """Return whether the rows of each Markdown table have as many cells as its header."""
    return all(
        len({line.count("|") for line in table.splitlines()}) == 1
        for table in _TABLES.findall(text)
    )


def without_style(page: str) -> str:
    """Return an HTML page without its style and script, which all pages have."""
    text = re.sub(r"<(style|script)>.*?</\1>", "", page, flags=re.DOTALL)
    return re.sub(r"sha256-[^']*", "HASH", text).replace(VERSION, "VERSION")


class ReportContract:
    """Shared assertions; a subclass names the command, its reporters and its cases."""

    name: ClassVar[str]
    """The command: the name of its schema, and the beginning of its golden files."""

    reporters: ClassVar[Sequence[Reporter[Any]]]
    cases: ClassVar[Mapping[str, Callable[[], Any]]]
    """What makes the value of each report."""

    widths: ClassVar[tuple[int, ...]] = (80, 160)
    suffixes: ClassVar[Mapping[str, str]] = {"markdown": "md", "json": "json"}
    """Reporters other than the table that have golden files, with their file name extensions."""

    without_golden: ClassVar[frozenset[str]] = frozenset()
    """Golden files that would show nothing new."""

    page: ClassVar[str | None] = None
    """The case with a golden file of its HTML page."""

    options: ClassVar[Mapping[str, bool]] = {}
    """What the view of each report has."""

    @pytest.fixture(autouse=True)
    def _in_the_root(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Paths in reports are relative to the working directory."""
        monkeypatch.chdir(ROOT)

    def rendered(self, reporter: str, case: str, **view: Any) -> str:
        """Return a report of a case."""
        shown = View(**{**self.options, **view})
        return rendered_by(self.reporters, reporter, self.cases[case](), shown)

    def is_too_wide(self, line: str, width: int) -> bool:
        """Return whether a line does not fit; some lines cannot be broken."""
        return width_of(line) > width

    def golden(self, case: str, suffix: str) -> str:
        """Return the name of a golden file."""
        return f"{self.name}-{case}.{suffix}"

    def test_tables_are_the_golden_ones(self) -> None:
        """In each width, and no line is wider."""
        for case in self.cases:
            for width in self.widths:
                text = self.rendered("table", case, width=width)
                compared(text, self.golden(case, f"{width}.txt"))
                lines = text.splitlines()
                assert not [line for line in lines if self.is_too_wide(line, width)], case
                assert all(line == line.rstrip() for line in lines), case

    def test_other_reports_are_the_golden_ones(self) -> None:
        """Rows of Markdown are even, and JSON follows the schema, also without a golden file."""
        for case in self.cases:
            for reporter, suffix in self.suffixes.items():
                text = self.rendered(reporter, case)
                name = self.golden(case, suffix)
                if name not in self.without_golden:
                    compared(text, name)
                if reporter == "markdown":
                    assert even_tables(text), case
                elif reporter == "json":
                    strict_json(self.name, text)

    def test_page_is_the_golden_one(self) -> None:
        """Without its style and script, which all pages have."""
        if self.page is not None:
            text = without_style(self.rendered("html", self.page))
            compared(text, self.golden(self.page, "html"))

    def test_same_input_gives_same_bytes(self) -> None:
        """In UTF-8, with one newline at the end, and without the directory of the tree."""
        for reporter in self.reporters:
            for case in self.cases:
                text = self.rendered(reporter.name, case)
                assert text == self.rendered(reporter.name, case)
                assert text.encode("utf-8") or not text
                assert not text or (text.endswith("\n") and not text.endswith("\n\n")), case
                assert str(ROOT) not in text

    def test_colour_and_ascii_change_nothing_else(self) -> None:
        """Without its escape sequences, a coloured table is the plain one; ASCII is enough."""
        for case in self.cases:
            plain = self.rendered("table", case, width=100)
            coloured = _ANSI.sub("", self.rendered("table", case, width=100, colour=True))
            assert "\x1b" not in plain
            assert [line.rstrip() for line in coloured.splitlines()] == plain.splitlines(), case
            assert self.rendered("table", case, width=100, unicode=False).isascii(), case


class VariationsContract:
    """
    Many values that differ little: one golden file shows what is different in the table and the
    JSON report of each.
    """

    name: ClassVar[str]
    reporters: ClassVar[Sequence[Reporter[Any]]]
    plain: ClassVar[Mapping[str, Any]]
    """Values that the others are variations of; each is compared with the most similar one."""

    variations: ClassVar[Mapping[str, Any]]
    width: ClassVar[int] = 120

    def test_variations_are_the_golden_ones(self) -> None:
        """The lines of the table, and the values of JSON, that differ from those of a plain one."""
        plain = {title: self._lines(value) for title, value in self.plain.items()}
        sections = [
            f"== {title}\n{self._rendered('table', value)}" for title, value in self.plain.items()
        ]
        for title, value in self.variations.items():
            lines = self._lines(value)
            changes = {
                other: tuple(difflib.unified_diff(before, lines, n=0, lineterm=""))[2:]
                for other, before in plain.items()
            }
            nearest = min(changes, key=lambda other: len(changes[other]))
            shown = (line for line in changes[nearest] if not line.startswith("@@"))
            sections.append("\n".join((f"== {title} (compared with: {nearest})", *shown, "")))
        compared("\n".join(sections), f"{self.name}-variations.txt")

    def _lines(self, value: Any) -> list[str]:
        """Return the lines of the table, and a line for each value of the JSON report."""
        table = self._rendered("table", value).splitlines()
        assert all(width_of(line) <= self.width for line in table if "$'" not in line)
        return [line for line in table if line] + list(_leaves(self.values(value), ""))

    def values(self, value: Any) -> Any:
        """Return the values of the JSON report."""
        return strict_json(self.name, self._rendered("json", value))

    def test_every_reporter_shows_the_variations(self) -> None:
        """Rows of Markdown are even, and no report has a control character."""
        for title, value in self.variations.items():
            assert even_tables(self._rendered("markdown", value)), title
            assert "<html" in self._rendered("html", value)
            lines = self._rendered("markdown", value).splitlines()
            assert all(line.isprintable() for line in lines), title

    def _rendered(self, reporter: str, value: Any) -> str:
        (renderer,) = (found for found in self.reporters if found.name == reporter)
        return renderer.render(value, View(width=self.width))


_MEASUREMENTS: Final = frozenset({"calls", "outputs", "layers", "trials", "migration", "tool"})
"""Keys whose values are long, and summarized by the tables, or the same in every report."""


def _leaves(value: Any, place: str) -> Iterator[str]:
    """Yield the texts and numbers of a report with their places."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        if key in _MEASUREMENTS:
            continue
        if isinstance(item, dict | list) and item:
            yield from _leaves(item, f"{place}{key}.")
        else:
            yield f"{place}{key} = {json.dumps(item)}"
