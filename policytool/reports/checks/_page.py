"""
The page of ``check``: the verdict with its cause, caveats, the two models, and what was measured of
them, the worst first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.numerics.check_results.answers import Answer
from policytool.reports._words import failure_facts
from policytool.reports.checks._advice import command
from policytool.reports.checks._caveats import caveats
from policytool.reports.checks._charts import charts
from policytool.reports.checks._content import remarks, sections
from policytool.reports.checks._facts import around, sides
from policytool.reports.checks._regressions import comparison
from policytool.reports.checks._verdict import headline, place, verdict
from policytool.reports.page import (
    Block,
    Command,
    Fact,
    Facts,
    Notes,
    Page,
    Section,
    Sentence,
    Tone,
    Verdict,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from policytool.numerics.check_results.checks import Check, CheckRun
    from policytool.reports.checks._base import Checks
    from policytool.reports.layout import View


_TONES: Final = {
    Answer.SAFE: Tone.GOOD,
    Answer.UNDECIDED: Tone.PLAIN,
    Answer.NOT_SAFE: Tone.BAD,
}


def page(found: Checks, view: View) -> Page:
    """Return the page; an empty one if nothing could be run."""
    if found.check is None:
        return Page(groups=(), failures=failure_facts(found.failures))
    return Page(groups=(tuple(_blocks(found, found.check, view)),))


def _blocks(found: Checks, check: Check, view: View) -> Iterator[Block]:
    everything = found.everything
    several = len(check.runs) > 1
    yield from _verdict(check)
    if left_open := caveats(check):
        yield Section(title="caveats", blocks=(Notes(texts=tuple(left_open)),))
    if several:
        yield _facts(sides(check))
    else:
        yield _facts([*sides(check), *(one for run in check.runs for one in around(run))])
    yield from comparison(check, everything=everything or view.is_searchable)
    for run in check.runs:
        parts: list[Block] = list(charts(run)) if view.is_searchable else []
        parts += sections(run, everything=everything or view.is_searchable)
        if several:
            yield Section(title=place(run), blocks=(_facts(around(run)), *parts))
        else:
            yield from parts
    if advice := tuple(remarks(check)):
        yield Section(title="notes", blocks=(Notes(texts=advice),))


def _verdict(check: Check) -> Iterator[Block]:
    answer = Answer.NOT_SAFE if check.is_regressed else check.answer
    yield Verdict.whole(text=headline(check), tone=_TONES[answer])
    if words := command(check):
        yield Command(label="to apply", words=words)
    if len(check.runs) > 1:
        yield from (_run_verdict(check, run) for run in check.runs)


def _run_verdict(check: Check, run: CheckRun) -> Block:
    return Sentence(text=f"{place(run)}: {verdict(check, run)}", tone=_TONES[run.answer])


def _facts(found: Iterable[tuple[str, str]]) -> Facts:
    return Facts(facts=tuple(Fact(label=label, text=text) for label, text in found))
