"""
The report of a check for pull requests: GitHub-flavoured Markdown with the verdict, what ran, and
what was measured.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from policytool.reports._markdown import code, prose, row
from policytool.reports.checks._base import CheckReporter
from policytool.reports.checks._content import remarks, sections
from policytool.reports.checks._facts import around, sides
from policytool.reports.checks._shown import MISSED, WIDE
from policytool.reports.checks._verdict import overall, own, place, verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from policytool.numerics.check_results.checks import Check
    from policytool.reports.checks._base import Checks
    from policytool.reports.checks._section import CheckSection
    from policytool.reports.layout import Cell, View

_NAMES: Final = frozenset({"layer", "output", "variable"})
"""Columns that hold names from the file."""


def render(found: Checks, view: View) -> str:
    """
    Return the report as Markdown; nothing where nothing could be run.

    It is laid out by whoever shows it, so the view's width counts nothing.
    """
    check = found.check
    if check is None:
        return ""
    wide = replace(view, width=WIDE)
    paths = dict.fromkeys((check.reference.path, check.candidate.path))
    lines = [
        f"### {' → '.join(map(code, paths))}",
        "",
        *_verdict(check),
        "",
        *_facts(sides(check, wide)),
    ]
    for run in check.runs:
        if len(check.runs) > 1:
            lines += ["", f"#### {prose(place(run))}", ""]
        lines += _facts(around(run, wide))
        for section in sections(run, wide, everything=found.everything):
            lines += ["", *_section(section)]
    told = [f"- {prose(text)}" for text in remarks(check)]
    return "\n".join([*lines, *(["", *told] if told else [])]) + "\n"


def _verdict(check: Check) -> Iterator[str]:
    if len(check.runs) == 1:
        yield _bold_verdict(verdict(check, check.runs[0]))
        return
    yield _bold_verdict(overall(check))
    yield ""
    yield from (f"- {prose(place(run))}: {_bold_verdict(own(check, run))}" for run in check.runs)


def _bold_verdict(text: str) -> str:
    """Return a verdict with its first word in bold."""
    word, _, rest = text.partition(":")
    return f"**{word}**:{prose(rest)}"


def _facts(found: Iterable[tuple[str, str]]) -> list[str]:
    return [f"- **{label}** {prose(text)}" for label, text in found]


def _section(section: CheckSection) -> Iterator[str]:
    yield f"**{section.title}**"
    if section.rows:
        titles = [column.title.strip() for column in section.columns]
        yield ""
        yield row(titles)
        yield row(["---"] * len(titles))
        yield from (
            row([_cell(title, cell) for title, cell in zip(titles, cells, strict=True)])
            for cells in section.rows
        )
    if section.sentences:
        yield ""
        yield from (f"- {prose(sentence)}" for sentence in section.sentences)


def _cell(title: str, cell: Cell) -> str:
    """Return a cell: names as code, in bold where a tolerance is missed."""
    if title not in _NAMES:
        return prose(cell.text)
    return f"**{code(cell.text)}**" if cell.before == MISSED else code(cell.text)


REPORTER: Final = CheckReporter(name="markdown", render=render)
