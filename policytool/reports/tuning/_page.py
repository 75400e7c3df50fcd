"""
The page of ``tune``: which layers stay in float32, what was written, why each of them is kept, and
the margin of the others.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from policytool.numerics.tuning.results import Ending, Split
from policytool.reports import checks
from policytool.reports._words import failure_facts
from policytool.reports.figures import many, upward
from policytool.reports.page import Block, Command, Facts, Notes, Page, Section
from policytool.reports.tuning._facts import facts, written
from policytool.reports.tuning._layers import (
    converted_section,
    curve_chart,
    curve_section,
    fixed_section,
    kept_section,
)
from policytool.reports.tuning._verdict import (
    allowed_error,
    command,
    is_error_only,
    largest_excess,
    verdict,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.numerics.tuning.results import Trial, Tuning
    from policytool.reports.layout import View
    from policytool.reports.tuning._verdict import Tunings

_SAME: Final = frozenset({Split.NONE, Split.USED})
_ROUNDING: Final = 1e-9
_INCOMPLETE: Final = {
    Ending.TRIALS: "--max-trials",
    Ending.TIME: "--time",
    Ending.INTERRUPTED: "",
}
"""Endings that leave something to try, with the option that allows it."""


def page(tunings: Tunings, view: View) -> Page:
    """Return the page; an empty one if nothing could run."""
    failures = failure_facts(tunings.failures)
    if tunings.tuning is None:
        return Page(groups=(), failures=failures)
    return Page(groups=(tuple(_blocks(tunings, tunings.tuning, view)),), failures=failures)


def caveats(tuning: Tuning) -> Iterator[str]:
    """Yield what the result leaves open."""
    yield from checks.input_caveats(tuning.inputs)
    if tuning.split in _SAME and tuning.best is not None:
        yield "the set was not validated on other inputs, which may need more layers in float32"
    yield from checks.side_caveats(tuning.reference)
    yield from checks.device_caveats(tuning.device)


def advice(tunings: Tunings, tuning: Tuning) -> Iterator[str]:
    """Yield how to continue an incomplete search, and what to do if no set of layers was found."""
    if tuning.ending in _INCOMPLETE and (tuning.kept or not tuning.passed):
        yield _continuation(tuning.ending, is_recorded=_is_recorded(tunings.arguments))
    if not tuning.passed and is_error_only(tuning.objective):
        yield from _tolerance_advice(tuning, tuning.best or tuning.closest)


def _tolerance_advice(tuning: Tuning, trial: Trial | None) -> Iterator[str]:
    """Yield which tolerance a set would meet, if only the errors of whole outputs are too large."""
    allowed = allowed_error(tuning.objective)
    if trial is None or trial.error is None or allowed is None:
        return
    if math.isclose(largest_excess(trial) * allowed, trial.error, rel_tol=_ROUNDING):
        yield (
            f"the closest set, with {many(len(trial.kept), 'layer')} in float32, would meet "
            f"--tolerance {upward(trial.error)}"
        )


def _continuation(ending: Ending, *, is_recorded: bool) -> str:
    option = _INCOMPLETE[ending]
    larger = f" with a larger {option}" if option else ""
    if is_recorded:
        return f"the same command{larger} continues the search"
    return (
        f"add --resume FILE to record the trials, so that the same command{larger} can continue "
        "the search later"
    )


def _is_recorded(arguments: tuple[str, ...]) -> bool:
    return any(word.partition("=")[0] == "--resume" for word in arguments)


def _blocks(tunings: Tunings, tuning: Tuning, view: View) -> Iterator[Block]:
    everything = tunings.everything or view.is_searchable
    yield verdict(tuning)
    if words := command(tunings):
        yield Command(label="to apply", words=words)
    output = written(tunings.migration) if tunings.migration is not None else ()
    yield Facts(facts=(*output, *facts(tuning)))
    if left_open := tuple(caveats(tuning)):
        yield Section(title="caveats", blocks=(Notes(texts=left_open),))
    if tuning.ending is not Ending.IMPOSSIBLE:
        yield from kept_section(tuning, everything=everything)
        yield from converted_section(tuning, everything=everything)
    if view.is_searchable:
        yield from curve_chart(tuning)
    yield from curve_section(tuning, everything=everything)
    yield from fixed_section(tuning, everything=everything)
    notes = [
        *advice(tunings, tuning),
        *(note.message for note in tuning.notes),
        *tuning.inputs.notes,
    ]
    if notes:
        yield Section(title="notes", blocks=(Notes(texts=tuple(dict.fromkeys(notes))),))
