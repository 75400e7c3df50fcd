"""
The page of ``tune``: which layers stay in float32, what was written, why each of them is kept, and
the margin of the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.numerics.tuning.results import Ending, Split
from policytool.reports import checks
from policytool.reports._words import failure_facts
from policytool.reports.figures import many, upward
from policytool.reports.page import Block, Command, Facts, Notes, Page, Section
from policytool.reports.tuning._command import command
from policytool.reports.tuning._curve import curve_chart, curve_section
from policytool.reports.tuning._facts import facts, written
from policytool.reports.tuning._layers import converted_section, fixed_section, kept_section
from policytool.reports.tuning._objective import allowed_error, is_error_only
from policytool.reports.tuning._verdict import verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.numerics.tuning.results import Tuning
    from policytool.reports.layout import View
    from policytool.reports.tuning._base import Tunings

_SAME: Final = frozenset({Split.NONE, Split.USED})
_ROUNDING: Final = 1e-9


def page(found: Tunings, view: View) -> Page:
    """Return the page; an empty one if nothing could run."""
    failures = failure_facts(found.failures)
    if found.tuning is None:
        return Page(groups=(), failures=failures)
    return Page(groups=(tuple(_blocks(found, found.tuning, view)),), failures=failures)


def caveats(tuning: Tuning) -> Iterator[str]:
    """Yield what the result leaves open."""
    yield from checks.input_caveats(tuning.inputs)
    if tuning.split in _SAME and tuning.best is not None:
        yield "the set was validated on the inputs of the search; other inputs may need more layers"
    yield from checks.side_caveats(tuning.reference)
    yield from checks.device_caveats(tuning.device)


def advice(tuning: Tuning) -> Iterator[str]:
    """Yield what to do if no set of layers was found."""
    if tuning.passed:
        return
    if tuning.ending in {Ending.TRIALS, Ending.TIME}:
        option = "--max-trials" if tuning.ending is Ending.TRIALS else "--time"
        yield f"a larger {option} allows the search to continue"
    allowed, closest = allowed_error(tuning.objective), tuning.closest
    if allowed is None or not is_error_only(tuning.objective) or closest is None:
        return
    if closest.error is not None and abs(closest.excess * allowed - closest.error) <= (
        _ROUNDING * closest.error
    ):
        yield (
            f"the closest set keeps {many(len(closest.kept), 'layer')} in float32 and would meet "
            f"--tolerance {upward(closest.error)}"
        )


def _blocks(found: Tunings, tuning: Tuning, view: View) -> Iterator[Block]:
    everything = found.everything or view.is_searchable
    yield verdict(tuning)
    if words := command(found):
        yield Command(label="to apply", words=words)
    output = written(found.migration) if found.migration is not None else ()
    yield Facts(facts=(*output, *facts(tuning)))
    if left_open := tuple(caveats(tuning)):
        yield Section(title="caveats", blocks=(Notes(texts=left_open),))
    yield from kept_section(tuning)
    yield from converted_section(tuning, everything=everything)
    if view.is_searchable:
        yield from curve_chart(tuning)
    yield from curve_section(tuning, everything=everything)
    yield from fixed_section(tuning, everything=everything)
    notes = [*advice(tuning), *(one.message for one in tuning.notes), *tuning.inputs.notes]
    if notes:
        yield Section(title="notes", blocks=(Notes(texts=tuple(dict.fromkeys(notes))),))
