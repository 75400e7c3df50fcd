"""The parts of an earlier JSON report of ``check`` that a later check is compared with."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from policytool.numerics.check_results.verdicts import Ruling, Subject
from policytool.support.errors import ModelFileError
from policytool.support.text import jsontext

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from policytool.support.text.jsontext import Json

VERSION: Final = 1
_CODE: Final = "not-a-check"
_EXPECTED: Final = "expected the output of `policytool check --format json`"
_WORDS: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}

Place = tuple[Subject, str]
"""An output by its name, or a call of a layer by its path below the model."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One error, as it was judged."""

    name: str
    """The place of the call with the name of the model, or the output's name."""

    error: float | None
    """Infinite for what is not finite in the candidate only; None if no error is known."""

    tolerance: float
    is_missed: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class EarlierMetric:
    """The task's own metric of the candidate."""

    name: str
    candidate: float


@dataclass(frozen=True, kw_only=True, slots=True)
class EarlierRun:
    """What one run of the earlier check found."""

    device: str
    signature: str | None
    inputs: tuple[str, float | None, float, float]
    """The kind, the seed, the number of batches and their size."""

    findings: Mapping[Place, Finding]
    metric: EarlierMetric | None


@dataclass(frozen=True, kw_only=True, slots=True)
class EarlierCheck:
    """An earlier check."""

    file: str
    policy: str | None
    runs: tuple[EarlierRun, ...]

    @property
    def has_layers(self) -> bool:
        """Whether errors of layers can be compared, which ran alone."""
        return any(place[0] is Subject.LAYER for run in self.runs for place in run.findings)


class _Foreign(Exception):  # noqa: N818  # never leaves this module: it becomes one sentence
    """The reason why a file is not a supported report."""


def earlier_check(file: str, text: bytes) -> EarlierCheck:
    """
    Return the check in a report.

    :raises ModelFileError: for anything else.
    """
    try:
        value, _ = jsontext.parse(text)
        return _check(file, value)
    except jsontext.JsonError as error:
        raise ModelFileError(file, error.code, f"{error}; {_EXPECTED}") from error
    except _Foreign as error:
        raise ModelFileError(
            file, _CODE, f"is not a JSON report of check ({error}); {_EXPECTED}"
        ) from error


def _check(file: str, value: Json) -> EarlierCheck:
    report = _object(value, "the report")
    if report.get("version") != VERSION or "check" not in report:
        raise _Foreign(f"it contains no check of version {VERSION}")
    if report["check"] is None:
        raise _Foreign("it contains a check that could not run")
    check = _object(report["check"], "check")
    candidate = _object(check.get("candidate"), "candidate")
    return EarlierCheck(
        file=file,
        policy=_text_or_none(candidate, "policy"),
        runs=tuple(_earlier_run(_object(run, "a run")) for run in _list(check, "runs")),
    )


def _earlier_run(run: Mapping[str, Json]) -> EarlierRun:
    inputs = _object(run.get("inputs"), "inputs")
    seed = inputs.get("seed")
    found = run.get("metric")
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
        metric=None if found is None else _earlier_metric(_object(found, "metric")),
    )


def _earlier_metric(found: Mapping[str, Json]) -> EarlierMetric:
    return EarlierMetric(name=_text(found, "name"), candidate=_number(found, "candidate"))


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
    """Return the place of an output; the only one is the same whatever its name."""
    return Subject.OUTPUT, name if count > 1 else ""


def below(root: str, place: str) -> str:
    """
    Return the place of a call without the name of the model, which Keras numbers differently in
    each process if the user did not set it.
    """
    is_below = root and (place == root or place.startswith((f"{root}/", f"{root} (call ")))
    return place.removeprefix(root) if is_below else place


def _earlier_finding(name: str, holder: Mapping[str, Json]) -> Finding:
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


def _object(value: Json, what: str) -> Mapping[str, Json]:
    if not isinstance(value, dict):
        raise _Foreign(f"{what} is not an object")
    return value


def _list(holder: Mapping[str, Json], key: str) -> list[Json]:
    entries = holder.get(key)
    if not isinstance(entries, list):
        raise _Foreign(f"{key} is not a list")
    return entries


def _text(holder: Mapping[str, Json], key: str) -> str:
    text = jsontext.text_at(holder, key)
    if text is None:
        raise _Foreign(f"{key} is not a string")
    return text


def _text_or_none(holder: Mapping[str, Json], key: str) -> str | None:
    return None if holder.get(key) is None else _text(holder, key)


def _number(holder: Mapping[str, Json], key: str) -> float:
    value = holder.get(key)
    number = _WORDS.get(value) if isinstance(value, str) else jsontext.number(value)
    if number is None:
        raise _Foreign(f"{key} is not a number")
    return number
