"""
A check compared with an earlier one: which errors grew or shrank by more than noise.

Kernels of other devices and releases sum in another order, and other checkpoints have other values,
so that errors of the size of the expected rounding differ by some factor. An error counts as larger
only if it is more than twice what it was, and at least a quarter of its tolerance: as large as the
rounding that the dtypes explain.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from policytool.numerics.check_results.regressions import (
    Change,
    Comparison,
    Difference,
    Subject,
)
from policytool.numerics.check_results.verdicts import JudgementSubject, Ruling
from policytool.numerics.verdicts.earlier_reports import Finding, below, output_place
from policytool.numerics.verdicts.task_metric import is_worse
from policytool.support.errors import ModelFileError, short

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from policytool.numerics.check_results.checks import Check, CheckRun
    from policytool.numerics.check_results.inputs import CheckInputs
    from policytool.numerics.check_results.verdicts import Judgement
    from policytool.numerics.verdicts.earlier_reports import EarlierCheck, EarlierRun, Place

FACTOR: Final = 2.0
FLOOR: Final = 0.25
"""The share of its tolerance above which an error counts."""


def compare(check: Check, earlier: EarlierCheck) -> Comparison:
    """
    Return what changed since an earlier check.

    :raises ModelFileError: if the two have nothing in common.
    """
    several = [_run(run, one) for run in check.runs if (one := _paired(run, earlier)) is not None]
    paired = sum(one.paired for one in several)
    if not paired:
        raise ModelFileError(
            earlier.file,
            "not-comparable",
            "contains no output or layer call of this model; use the report of a check of this "
            "model, or of another checkpoint of it",
        )
    differences = [difference for one in several for difference in one.differences]
    notes = [*_policies(check, earlier), *(note for one in several for note in one.notes)]
    return Comparison(
        file=earlier.file,
        paired=paired,
        differences=tuple(sorted(differences, key=lambda one: not one.is_regression)),
        only_before=tuple(dict.fromkeys(name for one in several for name in one.only_before)),
        only_now=tuple(dict.fromkeys(name for one in several for name in one.only_now)),
        notes=tuple(dict.fromkeys(notes)),
    )


def _paired(run: CheckRun, earlier: EarlierCheck) -> EarlierRun | None:
    """Return the earlier run of the same signature, on the same device if there is one."""
    alike = [one for one in earlier.runs if one.signature == run.signature]
    same = [one for one in alike if one.device == run.device.name]
    return next(iter([*same, *alike]), None)


def _run(run: CheckRun, earlier: EarlierRun) -> Comparison:
    now, before = _findings(run), earlier.findings
    both = [place for place in now if place in before]
    changes = [(place, _change(before[place], now[place])) for place in both]
    differences = [
        Difference(
            device=run.device.name,
            signature=run.signature,
            about=place[0],
            path=now[place].name,
            before=before[place].error,
            now=now[place].error,
            allowed=now[place].tolerance,
            change=change,
        )
        for place, change in changes
        if change is not None
    ]
    metrics = list(_metric(run, earlier))
    return Comparison(
        file="",
        paired=len(both),
        differences=(*metrics, *differences),
        only_before=tuple(before[place].name for place in before if place not in now),
        only_now=tuple(now[place].name for place in now if place not in before),
        notes=tuple(_notes(run, earlier)),
    )


def _findings(run: CheckRun) -> Mapping[Place, Finding]:
    last = run.calls[-1] if run.calls else None
    root = last.path if last is not None and last.is_model else ""
    found: dict[Place, Finding] = {}
    for one in run.verdict.judgements:
        is_layer = one.about is JudgementSubject.LAYER
        place = (
            (Subject.LAYER, below(root, one.path))
            if is_layer
            else output_place(one.path, len(run.outputs))
        )
        found[place] = _finding(one)
    return found


def _finding(one: Judgement) -> Finding:
    error = math.inf if one.ruling is Ruling.NOT_FINITE else one.error
    return Finding(name=one.path, error=error, tolerance=one.tolerance, is_missed=one.is_missed)


def _change(before: Finding, now: Finding) -> Change | None:
    if now.is_missed and not before.is_missed:
        return Change.EXCEEDS
    if _is_larger(now, before):
        return Change.GREW
    if before.is_missed and not now.is_missed:
        return Change.WITHIN
    return Change.SHRANK if _is_larger(before, now) else None


def _is_larger(one: Finding, other: Finding) -> bool:
    """Return whether an error is larger than another by more than noise."""
    if one.error is None or other.error is None:
        return False
    return one.error > FACTOR * other.error and one.error > FLOOR * one.tolerance


def _metric(run: CheckRun, earlier: EarlierRun) -> Iterator[Difference]:
    """Yield the candidate's metric if it is another, by more than is allowed."""
    found, before = run.verdict.metric, earlier.metric
    if found is None or before is None or before.name != found.name:
        return
    now, allowed, higher = found.worst.candidate, found.worst.max_drop, found.higher_is_better
    change = None
    if not math.isnan(before.candidate) and is_worse(before.candidate, now, allowed, higher=higher):
        change = Change.WORSE
    elif not math.isnan(now) and is_worse(now, before.candidate, allowed, higher=higher):
        change = Change.BETTER
    if change is not None:
        yield Difference(
            device=run.device.name,
            signature=run.signature,
            about=Subject.METRIC,
            path=found.name,
            before=before.candidate,
            now=now,
            allowed=allowed,
            change=change,
        )


def _policies(check: Check, earlier: EarlierCheck) -> Iterator[str]:
    names = [short(one or "its own policies") for one in (earlier.policy, check.candidate.policy)]
    if names[0] != names[1]:
        yield f"the earlier candidate used {names[0]}, and this candidate uses {names[1]}"


def _notes(run: CheckRun, earlier: EarlierRun) -> Iterator[str]:
    if earlier.device != run.device.name:
        devices = short(earlier.device), run.device.name
        yield f"the earlier check ran on {devices[0]}, and this check ran on {devices[1]}"
    if earlier.inputs != _inputs(run.inputs):
        yield "the earlier check used different inputs, which also changes the errors"
    names = [one.name if one is not None else "" for one in (earlier.metric, run.verdict.metric)]
    if names[0] != names[1]:
        before, now = (f"the metric {short(name)}" if name else "no metric" for name in names)
        yield f"the earlier check used {before}, and this check uses {now}"


def _inputs(found: CheckInputs) -> tuple[str, float | None, float, float]:
    return found.kind.value, found.seed, found.batches, found.batch_size
