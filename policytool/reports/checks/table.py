"""
The report of a check for people: the verdict in one sentence, then what ran, and what was measured,
the worst first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.reports.checks._base import CheckReporter
from policytool.reports.checks._content import remarks, sections
from policytool.reports.checks._facts import around, sides
from policytool.reports.checks._verdict import overall, own, passes, place, verdict
from policytool.reports.layout import table, width_of, wrap

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from policytool.numerics.check_results.checks import Check
    from policytool.reports.checks._base import Checks
    from policytool.reports.checks._section import CheckSection
    from policytool.reports.layout import View

_LABEL: Final = 11
_HEAD: Final = 2
"""Lines of a table above its rows."""


def render(found: Checks, view: View) -> str:
    """
    Return the report as text for a terminal of the view's width; nothing where nothing could be
    run.
    """
    check = found.check
    if check is None:
        return ""
    lines = [*_verdict(check, view), *_facts(sides(check, view), view)]
    for run in check.runs:
        if len(check.runs) > 1:
            lines += ["", *_wrap("", place(run), view, "title", indent=0)]
        lines += _facts(around(run, view), view)
        for section in sections(run, view, everything=found.everything):
            lines += ["", *_section(section, view)]
    told = [line for text in remarks(check) for line in _wrap("! ", text, view, "dim")]
    return "\n".join([*lines, *(["", *told] if told else [])]) + "\n"


def _verdict(check: Check, view: View) -> Iterator[str]:
    if len(check.runs) == 1:
        yield from _wrap("", verdict(check, check.runs[0]), view, _style(check.passed), indent=0)
        return
    yield from _wrap("", overall(check), view, _style(check.passed and bool(check.runs)), indent=0)
    for run in check.runs:
        yield from _wrap("", f"{place(run)}: {own(check, run)}", view, _style(passes(run)))


def _style(passed: bool) -> str:  # a property of what is shown  # noqa: FBT001
    return "good" if passed else "bad"


def _facts(found: Iterable[tuple[str, str]], view: View) -> Iterator[str]:
    for label, text in found:
        yield from _wrap(f"{label:{_LABEL}}", text, view)


def _section(section: CheckSection, view: View) -> Iterator[str]:
    yield view.paint(section.title, "title")
    if section.rows:
        lines = table(section.columns, section.rows, view)
        yield from lines[:_HEAD]
        for number, line in enumerate(lines[_HEAD:]):
            yield line
            if number in section.beneath:
                yield from _wrap("      ", section.beneath[number], view, "dim")
    for sentence in section.sentences:
        yield from _wrap("- " if len(section.sentences) > 1 else "", sentence, view)


def _wrap(label: str, text: str, view: View, style: str = "", indent: int = 2) -> list[str]:
    """
    Return text that is wrapped, words that are longer than a line in pieces: a layer's path is told
    whole.
    """
    room = max(1, view.width - indent - len(label))
    return wrap(
        label,
        " ".join(piece for word in text.split(" ") for piece in _pieces(word, room)),
        view,
        style,
        indent,
    )


def _pieces(word: str, room: int) -> list[str]:
    """
    Return a word in pieces that fill a line each, but for the last; each then stands on a line of
    its own.
    """
    found = [""]
    for character in word:
        if width_of(found[-1] + character) > room:
            found.append("")
        found[-1] += character
    return found


REPORTER: Final = CheckReporter(name="table", render=render)
