"""The check that reports show, and its result in one sentence with its numbers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from policytool.numerics.check_results.verdicts import (
    JudgementSubject,
    Ruling,
)
from policytool.reports.checks._advice import unfit_sentence
from policytool.reports.checks._answer import WORDS, first_line
from policytool.reports.checks._regressions import comparison_sentence
from policytool.reports.checks._shown import measurements, overflow_reasons
from policytool.reports.figures import HEADROOM, figure, many, share
from policytool.support.shorten import join_first

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from policytool.commands.inspect import Failure
    from policytool.numerics.check_results.checks import Check, CheckRun
    from policytool.numerics.check_results.verdicts import CheckVerdict, Judgement, Origin


_OWN: Final = "its own policies"
_MANY_FLUSHED: Final = 0.1
"""The share of values that become zero from which on the verdict says so."""


def verdict(check: Check, run: CheckRun) -> str:
    """Return what one run comes to, in a sentence that can stand alone."""
    if run.missing:
        return f"Undecided: {next(_missing(run))}"
    if run.is_on_data:
        findings = list(_causes(run)) if run.is_troubled else []
    else:
        findings = list(_fail_sentences(run)) if not run.verdict.passed else []
    return first_line(check, run, findings, [*_probe(run), *_margins(run)])


def overall(check: Check) -> str:
    """Return the answer of several runs together."""
    if not check.runs:
        return "Undecided: there is nothing to compare"
    if check.is_equal:
        return f"Equal within float32 rounding in {many(len(check.runs), 'run')}"
    counts = Counter(run.answer for run in check.runs)
    answer_counts = ", ".join(
        f"{counts[answer]} of {many(len(check.runs), 'run')} {word.lower()}"
        for answer, word in WORDS.items()
        if counts[answer]
    )
    return f"{WORDS[check.answer]}: {answer_counts}"


def headline(check: Check) -> str:
    """Return the answer of a check: that of its only run, or of all runs together."""
    sentences = [verdict(check, check.runs[0]) if len(check.runs) == 1 else overall(check)]
    if unfit := unfit_sentence(check):
        sentences.append(unfit)
    if check.comparison is not None:
        sentences.append(comparison_sentence(check.comparison))
    return "; ".join(sentences)


def place(run: CheckRun) -> str:
    """Return on which device a run was, and of which signature."""
    return (
        run.device.name
        if run.signature is None
        else f"{run.device.name}, signature {run.signature}"
    )


def _missing(run: CheckRun) -> Iterator[str]:
    """Yield the ops that have no kernel; the details are in a table."""
    ops = list(
        dict.fromkeys(
            kernel.type + (f" in {kernel.dtype}" if kernel.dtype else "") for kernel in run.missing
        )
    )
    yield (
        f"{many(len(run.missing), 'op')} {'has' if len(run.missing) == 1 else 'have'} no kernel on "
        f"{run.device.name}: {join_first(ops)}"
    )


def _fail_sentences(run: CheckRun) -> Iterator[str]:
    verdict = run.verdict
    outputs, layers = (
        [
            judgement
            for judgement in verdict.missed
            if judgement.about is about and judgement.not_comparable is None
        ]
        for about in (JudgementSubject.OUTPUT, JudgementSubject.LAYER)
    )
    if outputs:
        yield _missed(outputs, len(_about(verdict, JudgementSubject.OUTPUT)), "outputs")
    yield from _causes(run)
    named_paths = {verdict.first_not_finite, run.origin.path if run.origin is not None else None}
    is_told = bool(layers) and layers[0].path in named_paths
    if layers and not (is_told and len(layers) == 1):
        total = len(_about(verdict, JudgementSubject.LAYER))
        yield _missed(layers, total, "layer calls", is_told=is_told)


def _causes(run: CheckRun) -> Iterator[str]:
    """Yield the layer that causes an error, if it is known."""
    if run.origin is not None:
        yield origin(run, run.origin)
    elif run.verdict.first_not_finite is not None:
        reasons = "; ".join(_overflow_reasons(run, run.verdict.first_not_finite))
        where = f"NaN or infinity first appears in layer {run.verdict.first_not_finite}"
        yield f"{where} ({reasons})" if reasons else where


def _missed(missed: Sequence[Judgement], total: int, noun: str, *, is_told: bool = False) -> str:
    """Return what rounding does not explain; the worst one with its error unless it was named."""
    if len(missed) == 1:
        return f"{_name(missed[0])} {_error(missed[0])}"
    worst = "" if is_told else f"; the worst one, {missed[0].path}, {_error(missed[0])}"
    return f"{len(missed):,} of {total:,} {noun} have larger errors than rounding explains{worst}"


def origin(run: CheckRun, cause: Origin) -> str:
    """Return what causes the error of a run that failed."""
    layer = f"{cause.path} ({cause.class_name})"
    if cause.in_reference:
        return f"NaN or infinity originates in layer {layer} of the reference"
    if cause.nonfinite:
        known = "; ".join([cause.class_name, *_overflow_reasons(run, cause.path)])
        where = "in the code of" if cause.in_code else "in layer"
        return f"NaN or infinity originates {where} {cause.path} ({known})"
    if cause.seen_in is not None:
        return (
            f"the error originates in the rounding of the output of layer {layer}, which layer "
            f"{cause.seen_in} amplifies"
        )
    return f"the error originates in {'the code of' if cause.in_code else 'layer'} {layer}"


def _overflow_reasons(run: CheckRun, path: str) -> Iterator[str]:
    """Yield why a call of a layer overflowed, if its values in the reference explain it."""
    call = next((call for call in run.calls if call.place == path), None)
    for output in call.outputs if call is not None else ():
        largest_values = [metrics.largest_reference for metrics in measurements(output)]
        yield from overflow_reasons(largest_values, output.dtype_candidate)


def _margins(run: CheckRun) -> Iterator[str]:
    """Yield the layer with the least headroom, and the layer in which most values become zero."""
    measured = [
        (metrics, output.dtype_candidate, call.place)
        for call in run.calls
        for output in call.outputs
        for metrics in measurements(output)
    ]
    lows = [
        (metrics.headroom, dtype, path)
        for metrics, dtype, path in measured
        if metrics.headroom is not None and metrics.headroom < HEADROOM
    ]
    losses = [
        (metrics.flushed, path)
        for metrics, _, path in measured
        if metrics.flushed is not None and metrics.flushed >= _MANY_FLUSHED and not metrics.overflow
    ]
    if lows:
        headroom, dtype, path = min(lows)
        used = f"{figure(100 / headroom)}% of" if headroom >= 1 else f"{figure(1 / headroom)} times"
        yield f"largest value {used} {dtype}'s limit, in {path}"
    if losses:
        flushed, path = max(losses)
        yield f"{share(flushed)} of the values of layer {path} become zero"


def _probe(run: CheckRun) -> Iterator[str]:
    """Yield which layer overflows if the inputs are larger."""
    probe = run.overflow_probe
    if probe is not None and probe.factor is not None:
        yield (
            f"float16 overflows in {probe.path} ({probe.class_name}) at inputs "
            f"{figure(probe.factor)} times larger than these"
        )


def _about(verdict: CheckVerdict, about: JudgementSubject) -> list[Judgement]:
    return [judgement for judgement in verdict.judgements if judgement.about is about]


def _name(judgement: Judgement) -> str:
    return f"{judgement.about.value} {judgement.path}"


def _error(judgement: Judgement) -> str:
    if judgement.ruling is Ruling.NOT_FINITE:
        return "contains NaN or infinity, but the reference does not"
    if judgement.ruling is Ruling.DIFFERING:
        return "computes different values from the same integers, strings or booleans"
    return (
        f"has a relative error of {figure(judgement.error)} (rounding explains "
        f"{figure(judgement.tolerance)})"
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Checks:
    """A check, and how much of it to show."""

    check: Check | None = None
    """None where there is none, for which the failures say why."""

    failures: tuple[Failure, ...] = ()
    everything: bool = False
    """Whether to show every call of a layer, not those alone that matter."""
