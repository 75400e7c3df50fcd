"""
The page of ``check``: the verdict with its cause, caveats, the two models, and what was measured of
them, the worst first; with charts in HTML.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from policytool.numerics.check_results.metrics import NORMAL_EXPONENTS
from policytool.numerics.check_results.verdicts import Answer
from policytool.releases.dtypes import HALVES
from policytool.reports._words import failure_facts
from policytool.reports.checks import _devices, _gradients, _layers, _metric, _outputs
from policytool.reports.checks._caveats import caveats
from policytool.reports.checks._facts import run_facts, side_facts
from policytool.reports.checks._regressions import comparison_section
from policytool.reports.checks._verdict import advice, command, headline, place, verdict
from policytool.reports.figures import figure, share
from policytool.reports.page import (
    Bar,
    Bars,
    Block,
    Command,
    Curve,
    Curves,
    Fact,
    Facts,
    Notes,
    Page,
    Section,
    Sentence,
    Spread,
    Spreads,
    Tone,
    Verdict,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from policytool.numerics.check_results.checks import Check, CheckRun
    from policytool.numerics.check_results.metrics import CheckedOutput, LayerCall, Metrics
    from policytool.reports.checks._verdict import Checks
    from policytool.reports.layout import View
    from policytool.reports.page import Chart


_TONES: Final = {
    Answer.SAFE: Tone.GOOD,
    Answer.UNDECIDED: Tone.PLAIN,
    Answer.NOT_SAFE: Tone.BAD,
}


def page(checks: Checks, view: View) -> Page:
    """Return the page; an empty one if nothing could be run."""
    if checks.check is None:
        return Page(groups=(), failures=failure_facts(checks.failures))
    return Page(groups=(tuple(_blocks(checks, checks.check, view)),))


def _blocks(checks: Checks, check: Check, view: View) -> Iterator[Block]:
    everything = checks.everything
    several = len(check.runs) > 1
    yield from _verdict(check)
    if left_open := caveats(check):
        yield Section(title="caveats", blocks=(Notes(texts=tuple(left_open)),))
    if several:
        yield _facts(side_facts(check))
    else:
        yield _facts([*side_facts(check), *(fact for run in check.runs for fact in run_facts(run))])
    yield from comparison_section(check, everything=everything or view.is_searchable)
    for run in check.runs:
        parts: list[Block] = list(charts(run)) if view.is_searchable else []
        parts += sections(run, everything=everything or view.is_searchable)
        if several:
            yield Section(title=place(run), blocks=(_facts(run_facts(run)), *parts))
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


def _facts(labelled_texts: Iterable[tuple[str, str]]) -> Facts:
    return Facts(facts=tuple(Fact(label=label, text=text) for label, text in labelled_texts))


def sections(run: CheckRun, *, everything: bool) -> Iterator[Section]:
    """Yield the parts of one run, the most important first."""
    yield from _devices.kernels(run, everything=everything)
    yield from _metric.metric_section(run)
    yield from _outputs.output_section(run)
    yield from _layers.layer_section(run, everything=everything)
    if run.gradients is not None:
        yield from _gradients.gradient_sections(run.gradients)
    yield from _devices.timing(run)


def remarks(check: Check) -> Iterator[str]:
    """Yield what to do next, and what else is to be known, each once however many runs say it."""
    notes = [
        *(note.message for note in check.notes),
        *(note for run in check.runs for note in run.inputs.notes),
    ]
    yield from dict.fromkeys([*advice(check), *notes])


_MS: Final = 1000


def charts(run: CheckRun) -> Iterator[Chart]:
    """Yield the charts of the measurements."""
    calls = [call for call in run.calls if not call.is_model and call.outputs]
    curves = [
        Curve(label=label, values=tuple(_largest(call, side) for call in calls))
        for label, side in (
            ("isolated", lambda output: output.isolated),
            ("accumulated", lambda output: output.accumulated),
        )
    ]
    visible_curves = tuple(
        curve for curve in curves if any(value is not None for value in curve.values)
    )
    if visible_curves:
        yield Curves(
            title="Relative error of each layer, from the input to the output",
            places=tuple(call.place for call in calls),
            curves=visible_curves,
        )
    spreads = sorted(
        (_spread(call, output) for call in calls for output in call.outputs if output.exponents),
        key=lambda entry: entry[0],
        reverse=True,
    )
    if spreads:
        yield Spreads(
            title=(
                "Reference values by binary exponent, starting with the layers that have the "
                "most values outside the normal range of the candidate's dtype"
            ),
            spreads=tuple(spread for _, spread in spreads),
        )
    if run.timings:
        yield Bars(
            title="Median latency of one call",
            bars=tuple(
                Bar(label=side, value=timing.latency, text=f"{figure(timing.latency * _MS)} ms")
                for side, timing in run.timings.items()
            ),
        )


def _largest(call: LayerCall, side: Callable[[CheckedOutput], Metrics | None]) -> float | None:
    """Return the largest relative error of a call's outputs; infinite if one is not finite."""
    measured = [metrics for output in call.outputs if (metrics := side(output)) is not None]
    errors = [math.inf if metrics.overflow else metrics.relative for metrics in measured]
    return max((error for error in errors if error is not None), default=None)


def _spread(call: LayerCall, output: CheckedOutput) -> tuple[tuple[float, float], Spread]:
    """Return the shares above and below the range of the candidate's dtype, and the histogram."""
    dtype, counts = output.dtype_candidate, output.exponents or ()
    low, high = NORMAL_EXPONENTS.get(dtype, NORMAL_EXPONENTS["float32"])
    counted = sum(count for _, count in counts)
    total = output.accumulated.elements if output.accumulated is not None else counted
    above = sum(count for exponent, count in counts if exponent > high) / total
    below = sum(count for exponent, count in counts if exponent < low) / total
    words = [
        f"{share(portion)} {side} the normal range"
        for side, portion in (("above", above), ("below", below))
        if portion
    ]
    return (above, below), Spread(
        label=call.place,
        text=": ".join([dtype, ", ".join(words)] if words else [dtype]),
        counts=counts,
        normal=(low, high),
        tone=Tone.BAD if above else Tone.HALF if dtype in HALVES else Tone.PLAIN,
    )
