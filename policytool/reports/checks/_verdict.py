"""
What a check comes to, in one sentence with its numbers, and what stands between the reader and
taking it for more than it is.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from policytool.numerics.check_results.inputs import InputKind
from policytool.numerics.check_results.verdicts import JudgementSubject, Ruling, excess
from policytool.reports.checks._figures import figure, many, share, upward
from policytool.reports.layout import clean
from policytool.support.shorten import join_first

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.numerics.check_results.checks import Check, CheckRun
    from policytool.numerics.check_results.layers import CheckedOutput
    from policytool.numerics.check_results.verdicts import CheckVerdict, Judgement


_OWN: Final = "its own policies"


def passes(run: CheckRun) -> bool:
    """Return whether a run was made and nothing in it fails the check."""
    return run.verdict.passed and not run.missing


def verdict(check: Check, run: CheckRun) -> str:
    """Return what one run comes to, in a sentence that can stand alone."""
    word, *said = outcome(run)
    return "; ".join([f"{word}: {_subject(check)}", *said, *reservations(check, run)])


def outcome(run: CheckRun) -> list[str]:
    """Return in a word what one run comes to, and then what shows it."""
    if run.missing:
        return ["not run", *_missing(run)]
    if run.verdict.passed:
        return ["passed", *_pass_sentences(run.verdict), *_unequal(run), *_agreement(run)]
    return ["failed", *_fail_sentences(run.verdict), *_unequal(run), *_agreement(run)]


def overall(check: Check) -> str:
    """Return what several runs come to together, with what all of them leave open."""
    if not check.runs:
        return f"not run: {_subject(check)}; there is nothing that could be compared"
    failed = sum(not passes(run) for run in check.runs)
    what = (
        f"{failed} of {many(len(check.runs), 'run')} did not pass"
        if failed
        else f"all {many(len(check.runs), 'run')} passed"
    )
    return "; ".join(
        [
            f"{'failed' if failed else 'passed'}: {_subject(check)}",
            what,
            *shared_reservations(check),
        ]
    )


def own(check: Check, run: CheckRun) -> str:
    """Return what one of several runs comes to, with what it alone leaves open."""
    word, *said = outcome(run)
    alone = (text for text in reservations(check, run) if text not in shared_reservations(check))
    return f"{word}: {'; '.join([*said, *alone])}"


def shared_reservations(check: Check) -> list[str]:
    """Return what every run leaves open."""
    found = [list(reservations(check, run)) for run in check.runs]
    return [text for text in found[0] if all(text in other for other in found)] if found else []


def place(run: CheckRun) -> str:
    """Return on which device a run was, and of which signature."""
    return (
        run.device.name
        if run.signature is None
        else f"{run.device.name}, signature {clean(run.signature)}"
    )


def _subject(check: Check) -> str:
    reference, candidate = check.reference, check.candidate
    policies = [clean(side.policy) if side.policy else None for side in (candidate, reference)]
    if any(run.rewrite is not None for run in check.runs):
        return (
            f"the graph of {clean(candidate.path)}, rewritten to {policies[0]}, against the graph "
            "as it is"
        )
    if reference.path == candidate.path:
        return f"{clean(candidate.path)} under {policies[0] or _OWN} against {policies[1] or _OWN}"
    sides = [
        f"{clean(side.path)}{f' under {policy}' if policy else ''}"
        for side, policy in zip((candidate, reference), policies, strict=True)
    ]
    return f"{sides[0]} against {sides[1]}"


def _missing(run: CheckRun) -> Iterator[str]:
    """Yield what has no kernel; the rest is listed below."""
    ops = list(
        dict.fromkeys(
            clean(one.type) + (f" in {one.dtype}" if one.dtype else "") for one in run.missing
        )
    )
    yield (
        f"{many(len(run.missing), 'op')} {'has' if len(run.missing) == 1 else 'have'} no kernel on "
        f"{run.device.name}: {join_first(ops)}"
    )


def _pass_sentences(found: CheckVerdict) -> Iterator[str]:
    outputs, layers = (
        [one for one in _about(found, about) if one.error is not None]
        for about in (JudgementSubject.OUTPUT, JudgementSubject.LAYER)
    )
    if outputs:
        worst = max(outputs, key=excess)
        several = f"the worst of {len(outputs)} outputs, {clean(worst.path)},"
        yield f"{_name(worst) if len(outputs) == 1 else several} {_error(worst)}"
    if layers:
        yield (
            f"all {many(len(layers), 'call')} of layers are within their tolerances"
            if len(layers) > 1
            else "its one layer is within its tolerance"
        )
    if not outputs and not layers:
        yield "there is no float that could be compared"


def _fail_sentences(found: CheckVerdict) -> Iterator[str]:
    for about, several in (
        (JudgementSubject.OUTPUT, "outputs"),
        (JudgementSubject.LAYER, "calls of layers"),
    ):
        missed = [one for one in found.missed if one.about is about]
        is_first = (
            about is JudgementSubject.LAYER
            and bool(missed)
            and missed[0].path == found.first_not_finite
        )  # which is told below
        if len(missed) > 1:
            worst = "" if is_first else f", the worst: {clean(missed[0].path)} {_error(missed[0])}"
            yield (
                f"{len(missed):,} of {len(_about(found, about)):,} {several} miss their "
                f"tolerance{worst}"
            )
        elif missed and not is_first:
            yield f"{_name(missed[0])} {_error(missed[0])}"
    if found.first_not_finite is not None:
        yield f"NaN or infinity appears first in layer {clean(found.first_not_finite)}"
    enough = found.would_pass
    if (
        enough is not None
        and math.isfinite(enough)
        and any(one.about is JudgementSubject.OUTPUT for one in found.missed)
    ):
        yield f"the outputs would pass with a tolerance of {upward(enough)}"


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
                f"{clean(output.name or '')} differ"
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
    return f"{judgement.about.value} {clean(judgement.path)}"


def _error(judgement: Judgement) -> str:
    if judgement.ruling is Ruling.NOT_FINITE:
        return "holds NaN or infinity where the reference does not"
    if judgement.ruling is Ruling.NOTHING:
        return "cannot be compared, because every value is NaN or infinite in the reference itself"
    if judgement.ruling is Ruling.DIFFERING:
        return "makes other values of the same integers, words or flags"
    by = " by --tolerance" if judgement.given else ""
    return (
        f"has a relative error of {figure(judgement.error)} where {figure(judgement.tolerance)} is "
        f"allowed{by}"
    )


def reservations(check: Check, run: CheckRun) -> Iterator[str]:
    """Yield what a run leaves open, so that nobody takes it for more than it is."""
    if run.rewrite is not None and run.rewrite.unchanged is not None:
        yield "the rewrite changed nothing, so this shows nothing of the policy"
    if run.random:
        yield (
            f"{join_first([clean(path) for path in run.random])} "
            f"{'draws' if len(run.random) == 1 else 'draw'} random numbers, of which each model "
            "has its own"
        )
    if check.is_alike:
        yield "both have the same policies in every layer, so this shows nothing of them"
    if not run.missing and run.inputs.kind is InputKind.SYNTHETIC:
        yield f"the inputs are synthetic (seed {run.inputs.seed}), and real ones may fare otherwise"
    lost = list(_nonfinite_sentences(run))
    if lost:
        yield (
            f"{join_first(lost)} are NaN or infinite in the reference itself, and compared with "
            "nothing"
        )
    if any(side.weights == "random" for side in (check.reference, check.candidate)):
        yield "the weights are random, for the file holds none"
    if not run.missing and run.device.kind == "cpu":
        yield "this is a CPU, and the kernels of GPUs accumulate differently"


def _nonfinite_sentences(run: CheckRun) -> Iterator[str]:
    """Yield for each output how many values are not finite in the reference."""
    for output in run.outputs:
        found = output.accumulated
        lost = (
            sum(counts[0] for counts in (found.nan, found.infinite) if counts is not None)
            if found is not None
            else 0
        )
        if found is not None and lost:
            yield f"{lost:,} of {found.elements:,} values of output {clean(output.name or '')}"
