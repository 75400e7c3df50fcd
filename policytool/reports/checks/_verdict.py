"""What a check comes to, in one sentence with its numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from policytool.numerics.check_results.verdicts import (
    JudgementSubject,
    NotComparable,
    Ruling,
    excess,
)
from policytool.reports.checks._metric import sentence as metric_sentence
from policytool.reports.checks._regressions import sentence as comparison_sentence
from policytool.reports.figures import HEADROOM, beyond, figure, many, share, upward
from policytool.support.shorten import join_first

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from policytool.numerics.check_results.checks import Check, CheckRun
    from policytool.numerics.check_results.layers import CheckedOutput
    from policytool.numerics.check_results.verdicts import CheckVerdict, Judgement, Origin


_OWN: Final = "its own policies"
_BLIND: Final = {
    NotComparable.NOT_FINITE: "NaN or infinite",
    NotComparable.ZERO: "zero",
    NotComparable.CONSTANT: "the same",
}
_MANY_FLUSHED: Final = 0.1
"""The share of values that become zero from which on the verdict says so."""


def passes(run: CheckRun) -> bool:
    """Return whether a run was made and nothing in it fails the check."""
    return run.verdict.passed and not run.missing


def verdict(check: Check, run: CheckRun) -> str:
    """Return what one run comes to, in a sentence that can stand alone."""
    word, *said = outcome(run)
    return "; ".join([f"{word}: {_subject(check)}", *said])


def outcome(run: CheckRun) -> list[str]:
    """Return in a word what one run comes to, and then what shows it."""
    if run.missing:
        return ["not run", *_missing(run)]
    measured = [*_margins(run), *_unequal(run), *_agreement(run)]
    metric = [metric_sentence(run.verdict.metric)] if run.verdict.metric is not None else []
    if run.verdict.passed:
        word = "inconclusive" if run.verdict.is_inconclusive and not metric else "passed"
        return [word, *metric, *_pass_sentences(run.verdict), *measured]
    if run.verdict.deciding:
        return ["failed", *metric, *_fail_sentences(run), *measured]
    cause = [origin(run, run.origin)] if run.origin is not None else []
    return ["failed", *metric, *_pass_sentences(run.verdict), *cause, *measured]


def overall(check: Check) -> list[str]:
    """Return in a word what several runs come to together, and then what shows it."""
    if not check.runs:
        return ["not run", "there is nothing to compare"]
    failed = sum(not passes(run) for run in check.runs)
    what = (
        f"{failed} of {many(len(check.runs), 'run')} did not pass"
        if failed
        else f"{_every(len(check.runs), 'run')} passed"
    )
    return ["failed" if failed else "passed", what]


def _every(count: int, noun: str) -> str:
    """Return all of several things in words."""
    return f"both {noun}s" if count == 2 else f"all {many(count, noun)}"  # noqa: PLR2004


def headline(check: Check) -> str:
    """Return what a check comes to: the verdict of its only run, or of all runs together."""
    word, *said = outcome(check.runs[0]) if len(check.runs) == 1 else overall(check)
    found = check.comparison
    if found is not None:
        said = [comparison_sentence(found), *said]
        word = "failed" if word == "passed" and not found.passed else word
    return "; ".join([f"{word}: {_subject(check)}", *said])


def own(run: CheckRun) -> str:
    """Return what one of several runs comes to."""
    word, *said = outcome(run)
    return f"{word}: {'; '.join(said)}"


def place(run: CheckRun) -> str:
    """Return on which device a run was, and of which signature."""
    return (
        run.device.name
        if run.signature is None
        else f"{run.device.name}, signature {run.signature}"
    )


def _subject(check: Check) -> str:
    reference, candidate = check.reference, check.candidate
    policies = [side.policy or None for side in (candidate, reference)]
    if any(run.rewrite is not None for run in check.runs):
        return (
            f"the graph of {candidate.path}, rewritten to {policies[0]}, compared with the "
            "original graph"
        )
    if reference.path == candidate.path:
        return f"{candidate.path} under {policies[0] or _OWN} compared with {policies[1] or _OWN}"
    sides = [
        f"{side.path}{f' under {policy}' if policy else ''}"
        for side, policy in zip((candidate, reference), policies, strict=True)
    ]
    return f"{sides[0]} compared with {sides[1]}"


def _missing(run: CheckRun) -> Iterator[str]:
    """Yield what has no kernel; the rest is listed below."""
    ops = list(
        dict.fromkeys(one.type + (f" in {one.dtype}" if one.dtype else "") for one in run.missing)
    )
    yield (
        f"{many(len(run.missing), 'op')} {'has' if len(run.missing) == 1 else 'have'} no kernel on "
        f"{run.device.name}: {join_first(ops)}"
    )


def _pass_sentences(found: CheckVerdict) -> Iterator[str]:
    yield from _not_comparable(found)
    outputs, layers = (
        [
            one
            for one in _about(found, about)
            if one.error is not None and one.not_comparable is None
        ]
        for about in (JudgementSubject.OUTPUT, JudgementSubject.LAYER)
    )
    if outputs:
        worst = max(outputs, key=excess)
        several = f"the worst of {len(outputs)} outputs, {worst.path},"
        yield f"{_name(worst) if len(outputs) == 1 else several} {_error(worst)}"
    missed = [one for one in layers if one.is_missed]
    if missed:
        yield (
            f"{len(missed):,} of {many(len(layers), 'layer call')} exceed their tolerance, which "
            f"--require outputs allows; the worst one, {missed[0].path}, {_error(missed[0])}"
        )
    elif layers:
        yield (
            f"{_every(len(layers), 'layer call')} are within their tolerances"
            if len(layers) > 1
            else "the only layer is within its tolerance"
        )
    if not outputs and not layers:
        yield "no floating-point values to compare"


def _fail_sentences(run: CheckRun) -> Iterator[str]:
    found = run.verdict
    yield from _not_comparable(found)
    outputs, layers = (
        [one for one in found.missed if one.about is about and one.not_comparable is None]
        for about in (JudgementSubject.OUTPUT, JudgementSubject.LAYER)
    )
    if outputs:
        yield _missed(outputs, len(_about(found, JudgementSubject.OUTPUT)), "outputs")
    if run.origin is not None:
        yield origin(run, run.origin)
    elif found.first_not_finite is not None:
        reasons = "; ".join(_overflow_reasons(run, found.first_not_finite))
        where = f"NaN or infinity first appears in layer {found.first_not_finite}"
        yield f"{where} ({reasons})" if reasons else where
    told = {found.first_not_finite, run.origin.path if run.origin is not None else None}
    is_told = bool(layers) and layers[0].path in told
    if layers and not (is_told and len(layers) == 1):
        total = len(_about(found, JudgementSubject.LAYER))
        yield _missed(layers, total, "layer calls", is_told=is_told)
    enough = found.would_pass
    if enough is not None and math.isfinite(enough) and outputs:
        yield f"the outputs would pass with a tolerance of {upward(enough)}"


def _missed(missed: Sequence[Judgement], total: int, noun: str, *, is_told: bool = False) -> str:
    """Return what is outside its tolerance; the worst one with its error unless it was named."""
    if len(missed) == 1:
        return f"{_name(missed[0])} {_error(missed[0])}"
    worst = "" if is_told else f"; the worst one, {missed[0].path}, {_error(missed[0])}"
    return f"{len(missed):,} of {total:,} {noun} exceed their tolerance{worst}"


def origin(run: CheckRun, found: Origin) -> str:
    """Return what causes the error of a run that failed."""
    layer = f"{found.path} ({found.class_name})"
    if found.in_reference:
        return f"NaN or infinity originates in layer {layer} of the reference"
    if found.nonfinite:
        known = "; ".join([found.class_name, *_overflow_reasons(run, found.path)])
        where = "in the code of" if found.in_code else "in layer"
        return f"NaN or infinity originates {where} {found.path} ({known})"
    if found.seen_in is not None:
        return (
            f"the error originates in the rounding of the output of layer {layer}, which layer "
            f"{found.seen_in} amplifies"
        )
    return f"the error originates in {'the code of' if found.in_code else 'layer'} {layer}"


def _not_comparable(found: CheckVerdict) -> Iterator[str]:
    """Yield the outputs that show nothing, with what makes NaN in the reference."""
    for kind, what in _BLIND.items():
        names = [one.path for one in found.judgements if one.not_comparable is kind]
        if not names:
            continue
        yield (
            f"{'output' if len(names) == 1 else 'outputs'} {join_first(names)} cannot be compared, "
            f"because every value is {what} in the reference"
        )


def _overflow_reasons(run: CheckRun, path: str) -> Iterator[str]:
    """Yield why a call of a layer overflowed, if its values in the reference show it."""
    for call in run.calls:
        if call.place == path:
            for output in call.outputs:
                found = [one for one in (output.isolated, output.accumulated) if one is not None]
                yield from beyond([one.largest_reference for one in found], output.dtype_candidate)
            return


def _margins(run: CheckRun) -> Iterator[str]:
    """Yield where values come near the end of their dtype, and where many become zero."""
    lows: list[tuple[float, str]] = []
    losses: list[tuple[float, str]] = []
    for call in run.calls:
        for output in call.outputs:
            found = [one for one in (output.isolated, output.accumulated) if one is not None]
            if any(one.overflow for one in found):
                continue
            lows += [
                (one.headroom, call.place)
                for one in found
                if one.headroom is not None and one.headroom < HEADROOM
            ]
            losses += [
                (one.flushed, call.place)
                for one in found
                if one.flushed is not None and one.flushed >= _MANY_FLUSHED
            ]
    if lows:
        headroom, path = min(lows)
        yield f"the smallest headroom before overflow is {figure(headroom)}x, in layer {path}"
    if losses:
        flushed, path = max(losses)
        yield f"{share(flushed)} of the values of layer {path} become zero"


def _unequal(run: CheckRun) -> Iterator[str]:
    """
    Yield how many values of the outputs that are no floats differ: no tolerance is held against
    them where none was given.
    """
    for output in run.outputs:
        found = output.accumulated
        if found is not None and found.differing:
            yield (
                f"{found.differing:,} of {found.elements:,} values of output "
                f"{(output.name or '')} differ"
            )


def _agreement(run: CheckRun) -> Iterator[str]:
    """
    Yield how often both models give a sample the same class, by the output in which they do it
    least.
    """
    found = [output for output in run.outputs if output.top_1 is not None]
    if found:
        least = min(found, key=lambda output: output.top_1 or 0.0)
        yield f"the top-1 class is the same in {share(least.top_1)} of {_rows(least)}"


def _rows(output: CheckedOutput) -> str:
    """Return how many rows an output was compared in: its last axis has a value for each class."""
    classes = output.shape[-1] if output.shape else None
    return (
        many(output.accumulated.elements // classes, "row")
        if output.accumulated is not None and classes
        else "the rows"
    )


def _about(found: CheckVerdict, about: JudgementSubject) -> list[Judgement]:
    return [one for one in found.judgements if one.about is about]


def _name(judgement: Judgement) -> str:
    return f"{judgement.about.value} {judgement.path}"


def _error(judgement: Judgement) -> str:
    if judgement.ruling is Ruling.NOT_FINITE:
        return "contains NaN or infinity, but the reference does not"
    if judgement.ruling is Ruling.NOTHING:
        return "cannot be compared because every value is NaN or infinite in the reference"
    if judgement.ruling is Ruling.DIFFERING:
        return "computes different values from the same integers, strings or booleans"
    by = ", set by --tolerance" if judgement.given else ""
    if judgement.part is not None:
        part = judgement.part
        return (
            f"has a relative error of {figure(part.error)} in {part.kind} {part.index} (tolerance "
            f"{figure(part.tolerance)})"
        )
    return (
        f"has a relative error of {figure(judgement.error)} (tolerance "
        f"{figure(judgement.tolerance)}{by})"
    )
