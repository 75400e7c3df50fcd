"""The page of ``explain``: for each entry the message, the cause, a check and a fix."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

from policytool.reports.page import (
    Block,
    Command,
    Fact,
    Facts,
    Page,
    Section,
    Sentence,
    Tone,
    Verdict,
)
from policytool.support import project

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.reports.layout import View
    from policytool.troubleshooting.entry import Step
    from policytool.troubleshooting.matching import Explanation, Match

PAGE: Final = "how-to/troubleshooting.md"
"""The page of the documentation with all entries."""

_SHOWN: Final = 300
"""Characters of the line that matched."""


def page(explanation: Explanation, _view: View) -> Page:
    """Return the page, a group for each entry; an empty one if no entry matches."""
    return Page(groups=tuple(tuple(_blocks(match)) for match in explanation.matches))


def headline(explanation: Explanation) -> str:
    """Return the best entry and how many others match, in one line."""
    if not explanation.matches:
        return "no known error message matches"
    best, *others = explanation.matches
    more = f"; {len(others)} more" if others else ""
    return f"{best.entry.id} ({percent(best)}): {best.entry.title}{more}"


def percent(match: Match) -> str:
    """Return the confidence of a match."""
    return f"{match.confidence:.0%}"


def link(match: Match) -> str:
    """Return the address of an entry in the documentation."""
    return f"{project.page(PAGE)}#{match.entry.id}"


def _blocks(match: Match) -> Iterator[Block]:
    entry = match.entry
    line = match.text if len(match.text) <= _SHOWN else f"{match.text[:_SHOWN]}…"
    yield Verdict.whole(entry.title, Tone.TITLE)
    yield Facts(
        facts=(
            Fact(label="confidence", text=percent(match)),
            Fact(label=f"line {match.line}", text=line, tone=Tone.DIM),
            Fact(label="printed by", text=entry.releases),
            Fact(label="cause", text=entry.cause),
        )
    )
    yield Section(title="check", blocks=tuple(_steps(entry.check)))
    yield Section(title="fix", blocks=tuple(_steps(*entry.fix)))
    yield Sentence(text=f"See {link(match)}", tone=Tone.DIM)


def _steps(*steps: Step) -> Iterator[Block]:
    for step in steps:
        yield from _step(step)


def _step(step: Step) -> Iterator[Block]:
    yield Sentence(text=step.text)
    if step.command:
        yield Command(label="run", words=tuple(shlex.split(step.command)))
