"""
Compares a check with the JSON report of an earlier one, and reports the errors that changed by more
than noise.

Other devices and releases add up values in a different order, and other checkpoints have different
values. Therefore, errors of the size of the expected rounding vary. An error counts as larger only
if it is more than twice the earlier error, and above a quarter of its tolerance, which is the
rounding that the dtypes explain.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from policytool.numerics.check_results.verdicts import (
    Change,
    Comparison,
    Difference,
    JudgementSubject,
    Ruling,
    Subject,
)
from policytool.numerics.verdicts.task_metric import is_worse
from policytool.support.errors import ModelFileError, short
from policytool.support.text import jsontext

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from policytool.numerics.check_results.checks import Check, CheckRun
    from policytool.support.text.jsontext import Json


VERSION: Final = 1
_CODE: Final = "not-a-check"
_EXPECTED: Final = "expected the output of `policytool check --format json`"
_WORDS: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}

Place = tuple[Subject, str]
"""The name of an output, or the path of a layer call without the name of the model."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """An error with its tolerance."""

    name: str
    """The place of a call, including the name of the model, or the name of an output."""

    error: float | None
    """Infinite if only the candidate is not finite; None if the error is unknown."""

    tolerance: float
    is_missed: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class EarlierMetric:
    """The candidate's metric of the task in an earlier check."""

    name: str
    candidate: float


@dataclass(frozen=True, kw_only=True, slots=True)
class EarlierRun:
    """A run of an earlier check."""

    device: str
    signature: str | None
    inputs: tuple[str, float | None, float, float]
    """The kind, the seed, the number of batches and their size."""

    findings: Mapping[Place, Finding]
    metric: EarlierMetric | None


@dataclass(frozen=True, kw_only=True, slots=True)
class EarlierCheck:
    """An earlier check, from its JSON report."""

    file: str
    policy: str | None
    runs: tuple[EarlierRun, ...]

    @property
    def has_layers(self) -> bool:
        """Whether the check measured isolated errors of layers, which can be compared."""
        return any(place[0] is Subject.LAYER for run in self.runs for place in run.findings)


class _UnsupportedReport(Exception):  # noqa: N818  # this module converts it to ModelFileError
    """The reason why a file is not a supported report."""


def earlier_check(file: str, text: bytes) -> EarlierCheck:
    """
    Return the check in a report.

    :raises ModelFileError: if the text is not a JSON report of a check.
    """
    try:
        value, _ = jsontext.parse(text)
        return _check(file, value)
    except jsontext.JsonError as error:
        raise ModelFileError(file, error.code, f"{error}; {_EXPECTED}") from error
    except _UnsupportedReport as error:
        raise ModelFileError(
            file, _CODE, f"is not a JSON report of check ({error}); {_EXPECTED}"
        ) from error


def _check(file: str, value: Json) -> EarlierCheck:
    """Return the check in the JSON of a report."""
    report = _object(value, "the report")
    if report.get("version") != VERSION or "check" not in report:
        raise _UnsupportedReport(f"it contains no check of version {VERSION}")
    if report["check"] is None:
        raise _UnsupportedReport("it contains a check that could not run")
    check = _object(report["check"], "check")
    candidate = _object(check.get("candidate"), "candidate")
    return EarlierCheck(
        file=file,
        policy=_text_or_none(candidate, "policy"),
        runs=tuple(_earlier_run(_object(run, "a run")) for run in _list(check, "runs")),
    )


def _earlier_run(run: Mapping[str, Json]) -> EarlierRun:
    """Return the parts of a run in an earlier report that are compared."""
    inputs = _object(run.get("inputs"), "inputs")
    seed = inputs.get("seed")
    metric = None if run.get("metric") is None else _object(run["metric"], "metric")
    return EarlierRun(
        device=_text(_object(run.get("device"), "device"), "name"),
        signature=_text_or_none(run, "signature"),
        inputs=(
            _text(inputs, "kind"),
            None if seed is None else _number(inputs, "seed"),
            _number(inputs, "batches"),
            _number(inputs, "batch_size"),
        ),
        findings=dict([*_outputs(run), *_calls(run)]),
        metric=None
        if metric is None
        else EarlierMetric(name=_text(metric, "name"), candidate=_number(metric, "candidate")),
    )


def _outputs(run: Mapping[str, Json]) -> Iterator[tuple[Place, Finding]]:
    outputs = [_object(item, "an output") for item in _list(run, "outputs")]
    for output in outputs:
        if output.get("verdict") is not None:
            name = _text(output, "name")
            yield output_place(name, len(outputs)), _earlier_finding(name, output)


def _calls(run: Mapping[str, Json]) -> Iterator[tuple[Place, Finding]]:
    calls = [_object(item, "a call") for item in _list(run, "calls")]
    root = _text(calls[-1], "path") if calls and calls[-1].get("is_model") is True else ""
    for call in calls:
        path, number = _text(call, "path"), _number(call, "number")
        if call.get("verdict") is not None:
            place = path if not number else f"{path} (call {number + 1:.0f})"
            yield (Subject.LAYER, below(root, place)), _earlier_finding(place, call)


def output_place(name: str, count: int) -> Place:
    """
    Return the place of an output. The only output of a model has the same place under any name.

    :param count: the number of outputs of the model
    """
    return Subject.OUTPUT, name if count > 1 else ""


def below(root: str, place: str) -> str:
    """
    Return the place of a call without the name of the model, which Keras numbers differently in
    each process if the user did not set it.
    """
    is_below = root and (place == root or place.startswith((f"{root}/", f"{root} (call ")))
    return place.removeprefix(root) if is_below else place


def _earlier_finding(name: str, holder: Mapping[str, Json]) -> Finding:
    """Return the error and the tolerance of a layer or output in an earlier report."""
    verdict = _object(holder.get("verdict"), "verdict")
    outcome = _text(verdict, "outcome")
    error = None if verdict.get("error") is None else _number(verdict, "error")
    if outcome == Ruling.NOT_FINITE or (error is not None and math.isnan(error)):
        error = math.inf
    return Finding(
        name=name,
        error=error,
        tolerance=_number(verdict, "tolerance"),
        is_missed=outcome != Ruling.PASSED,
    )


def _object(value: Json, subject: str) -> Mapping[str, Json]:
    if not isinstance(value, dict):
        raise _UnsupportedReport(f"{subject} is not an object")
    return value


def _list(holder: Mapping[str, Json], key: str) -> list[Json]:
    entries = holder.get(key)
    if not isinstance(entries, list):
        raise _UnsupportedReport(f"{key} is not a list")
    return entries


def _text(holder: Mapping[str, Json], key: str) -> str:
    text = jsontext.text_at(holder, key)
    if text is None:
        raise _UnsupportedReport(f"{key} is not a string")
    return text


def _text_or_none(holder: Mapping[str, Json], key: str) -> str | None:
    return None if holder.get(key) is None else _text(holder, key)


def _number(holder: Mapping[str, Json], key: str) -> float:
    value = holder.get(key)
    number = _WORDS.get(value) if isinstance(value, str) else jsontext.number(value)
    if number is None:
        raise _UnsupportedReport(f"{key} is not a number")
    return number


FACTOR: Final = 2.0
FLOOR: Final = 0.25
"""The share of its tolerance above which an error counts."""


def compare(check: Check, earlier: EarlierCheck) -> Comparison:
    """
    Return what changed since an earlier check.

    :raises ModelFileError: if the two checks share no output and no layer call.
    """
    comparisons = [
        _compare_run(run, earlier_run)
        for run in check.runs
        if (earlier_run := _matching_run(run, earlier)) is not None
    ]
    paired = sum(comparison.paired for comparison in comparisons)
    if not paired:
        raise ModelFileError(
            earlier.file,
            "not-comparable",
            "contains no output or layer call of this model; use the report of a check of this "
            "model, or of another checkpoint of it",
        )
    differences = [
        difference for comparison in comparisons for difference in comparison.differences
    ]
    notes = [
        *_policies(check, earlier),
        *(note for comparison in comparisons for note in comparison.notes),
    ]
    return Comparison(
        file=earlier.file,
        paired=paired,
        differences=tuple(sorted(differences, key=lambda difference: not difference.is_regression)),
        only_before=tuple(
            dict.fromkeys(name for comparison in comparisons for name in comparison.only_before)
        ),
        only_now=tuple(
            dict.fromkeys(name for comparison in comparisons for name in comparison.only_now)
        ),
        notes=tuple(dict.fromkeys(notes)),
    )


def _matching_run(run: CheckRun, earlier: EarlierCheck) -> EarlierRun | None:
    """Return the earlier run of the same signature, on the same device if there is one."""
    same_signature = (
        earlier_run for earlier_run in earlier.runs if earlier_run.signature == run.signature
    )
    return min(
        same_signature,
        key=lambda earlier_run: earlier_run.device != run.device.name,
        default=None,
    )


def _compare_run(run: CheckRun, earlier: EarlierRun) -> Comparison:
    """Return the comparison of a run with an earlier run, by the places that both have."""
    findings, earlier_findings = _findings(run), earlier.findings
    both = [place for place in findings if place in earlier_findings]
    changes = [(place, _change(earlier_findings[place], findings[place])) for place in both]
    differences = [
        Difference(
            device=run.device.name,
            signature=run.signature,
            about=place[0],
            path=findings[place].name,
            before=earlier_findings[place].error,
            now=findings[place].error,
            allowed=findings[place].tolerance,
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
        only_before=tuple(
            earlier_findings[place].name for place in earlier_findings if place not in findings
        ),
        only_now=tuple(findings[place].name for place in findings if place not in earlier_findings),
        notes=tuple(_notes(run, earlier)),
    )


def _findings(run: CheckRun) -> Mapping[Place, Finding]:
    """Return the judgements of a run by place."""
    last = run.calls[-1] if run.calls else None
    root = last.path if last is not None and last.is_model else ""
    return {
        (Subject.LAYER, below(root, judgement.path))
        if judgement.about is JudgementSubject.LAYER
        else output_place(judgement.path, len(run.outputs)): Finding(
            name=judgement.path,
            error=math.inf if judgement.ruling is Ruling.NOT_FINITE else judgement.error,
            tolerance=judgement.tolerance,
            is_missed=judgement.is_missed,
        )
        for judgement in run.verdict.judgements
    }


def _change(earlier_finding: Finding, finding: Finding) -> Change | None:
    """Return how the error of a layer or output changed since the earlier check."""
    if finding.is_missed and not earlier_finding.is_missed:
        return Change.EXCEEDS
    if _is_larger(finding, earlier_finding):
        return Change.GREW
    if earlier_finding.is_missed and not finding.is_missed:
        return Change.WITHIN
    return Change.SHRANK if _is_larger(earlier_finding, finding) else None


def _is_larger(finding: Finding, other: Finding) -> bool:
    """Return whether an error exceeds another one by more than noise."""
    if finding.error is None or other.error is None:
        return False
    return finding.error > FACTOR * other.error and finding.error > FLOOR * finding.tolerance


def _metric(run: CheckRun, earlier: EarlierRun) -> Iterator[Difference]:
    """Yield the difference between the metrics of the candidates if it exceeds the allowed drop."""
    metric, before = run.verdict.metric, earlier.metric
    if metric is None or before is None or before.name != metric.name:
        return
    value, allowed, higher = metric.worst.candidate, metric.worst.max_drop, metric.higher_is_better
    change = None
    if not math.isnan(before.candidate) and is_worse(
        before.candidate, value, allowed, higher=higher
    ):
        change = Change.WORSE
    elif not math.isnan(value) and is_worse(value, before.candidate, allowed, higher=higher):
        change = Change.BETTER
    if change is not None:
        yield Difference(
            device=run.device.name,
            signature=run.signature,
            about=Subject.METRIC,
            path=metric.name,
            before=before.candidate,
            now=value,
            allowed=allowed,
            change=change,
        )


def _policies(check: Check, earlier: EarlierCheck) -> Iterator[str]:
    names = [
        short(policy or "its own policies") for policy in (earlier.policy, check.candidate.policy)
    ]
    if names[0] != names[1]:
        yield f"the earlier candidate used {names[0]}, and this candidate uses {names[1]}"


def _notes(run: CheckRun, earlier: EarlierRun) -> Iterator[str]:
    """Yield the differences between the conditions of both runs."""
    if earlier.device != run.device.name:
        devices = short(earlier.device), run.device.name
        yield f"the earlier check ran on {devices[0]}, and this check ran on {devices[1]}"
    inputs = run.inputs
    if earlier.inputs != (inputs.kind.value, inputs.seed, inputs.batches, inputs.batch_size):
        yield "the earlier check used different inputs, which also changes the errors"
    names = [
        metric.name if metric is not None else "" for metric in (earlier.metric, run.verdict.metric)
    ]
    if names[0] != names[1]:
        before, now = (f"the metric {short(name)}" if name else "no metric" for name in names)
        yield f"the earlier check used {before}, and this check uses {now}"
