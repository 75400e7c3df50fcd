"""
The result of a search in words: the objective, the distance of a trial from it, the verdict in one
sentence with its numbers, and the command that writes the model.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import Struct

from policytool.commands.destinations import default_name
from policytool.commands.migrate import Status
from policytool.formats.discovery import display_path
from policytool.numerics.check_results.checks import InputKind
from policytool.numerics.check_results.verdicts import Answer, Open
from policytool.numerics.tuning.results import GRADIENT_ERROR, Ending, Split
from policytool.reports import checks, layout
from policytool.reports.page import Sentence, Tone, Verdict
from policytool.reports.words import figure, many, share

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.commands.inspect import Failure
    from policytool.commands.migrate import Migration
    from policytool.numerics.tuning.results import CurvePoint, Objective, Promise, Trial, Tuning
    from policytool.numerics.verdicts.task_metric import MetricOptions
    from policytool.numerics.verdicts.tolerances import Tolerances


NOT_FINITE: Final = "NaN/Inf"


class _ReachedPart(NamedTuple):
    """A part of the objective, and the value that a trial reaches."""

    text: str
    is_met: bool


def goals(tuning: Tuning) -> Iterator[str]:
    """Yield the parts of the objective."""
    objective = tuning.objective
    if objective.tolerances is not None:
        yield _tolerance_words(objective.tolerances)
    else:
        yield "no additional NaN or infinity in the outputs"
    if objective.agreement is not None:
        yield f"the same top-1 class in at least {share(objective.agreement)} of the rows"
    if objective.metric is not None:
        yield _metric_goal(tuning, objective.metric)
    if objective.gradients:
        yield (
            f"finite gradients with a relative error of at most {figure(GRADIENT_ERROR)} at the "
            "best loss scale"
        )


def allowed_error(objective: Objective) -> float | None:
    """
    Return the common limit on the relative error of all outputs; None if there is no such limit.
    """
    tolerances = objective.tolerances.given if objective.tolerances is not None else ()
    return (
        tolerances[-1].value
        if tolerances and all(tolerance.pattern is None for tolerance in tolerances)
        else None
    )


def is_error_only(objective: Objective) -> bool:
    """Return whether the objective is only one relative error for all outputs."""
    others = (objective.agreement, objective.metric, objective.gradients or None)
    return allowed_error(objective) is not None and all(part is None for part in others)


def reached_parts(tuning: Tuning, trial: Trial) -> Iterator[str]:
    """Yield the result of a trial for each part of the objective."""
    if trial.failure is not None:
        yield f"the model fails to run: {trial.failure}"
        return
    parts = list(_parts(tuning, trial))
    yield from (part.text for part in parts)
    used = trial.largest_excess
    if used > 1 and all(part.is_met for part in parts):
        yield (
            "a part of the objective has no finite value"
            if math.isinf(used)
            else f"a row or channel of an output is at {percent(used)} of its limit"
        )


def percent(excess: float) -> str:
    """Return an excess in percent of the limit."""
    return f"{figure(100 * excess)}%" if excess >= 1 else share(excess)


def limit_words(excess: float, error: float | None, failure: str | None = None) -> str:
    """Return the excess of a trial in words, or the reason if it has none."""
    if failure is not None:
        return "fails to run"
    if math.isinf(excess):
        return NOT_FINITE if error is None else "not met"
    return percent(excess)


def _parts(tuning: Tuning, trial: Trial) -> Iterator[_ReachedPart]:
    objective = tuning.objective
    if trial.error is None:
        yield _ReachedPart("the outputs contain NaN or infinity", is_met=False)
    elif objective.tolerances is not None:
        yield _error_part(objective, trial, trial.error)
    if objective.agreement is not None and trial.agreement is not None:
        yield _ReachedPart(
            f"top-1 agreement {share(trial.agreement)}, at least {share(objective.agreement)} "
            "required",
            is_met=trial.agreement >= objective.agreement,
        )
    if objective.metric is not None and trial.metric is not None:
        yield _metric_part(tuning, objective.metric, trial.metric)
    if objective.gradients and trial.gradient_error is not None:
        yield _ReachedPart(
            f"gradient error {figure(trial.gradient_error)}, at most {figure(GRADIENT_ERROR)} "
            "allowed",
            is_met=trial.gradient_error <= GRADIENT_ERROR,
        )
    elif objective.gradients:
        yield _ReachedPart("gradients overflow at every loss scale", is_met=False)


def _error_part(objective: Objective, trial: Trial, error: float) -> _ReachedPart:
    allowed = allowed_error(objective)
    if allowed is not None:
        return _ReachedPart(
            f"largest error {figure(error)}, at most {figure(allowed)} allowed",
            is_met=error <= allowed,
        )
    used = trial.largest_excess
    others = (objective.agreement, objective.metric, objective.gradients or None)
    limit = f", {percent(used)} of the limit" if all(part is None for part in others) else ""
    return _ReachedPart(f"largest error {figure(error)}{limit}", is_met=not limit or used <= 1)


def _metric_part(tuning: Tuning, goal: MetricOptions, value: float) -> _ReachedPart:
    score = tuning.metric
    if score is None:
        return _ReachedPart(f"{goal.metric} {checks.metric_value(value)}", is_met=True)
    worst = score.worst
    return _ReachedPart(
        f"{score.name} {checks.metric_value(value)} ({checks.metric_value(worst.reference)} in "
        f"float32), at most {figure(worst.max_drop)} worse allowed",
        is_met=score.passed,
    )


def _metric_goal(tuning: Tuning, goal: MetricOptions) -> str:
    if tuning.metric is not None:
        return f"{tuning.metric.name} at most {figure(tuning.metric.worst.max_drop)} worse"
    drop = "than the default allows" if goal.max_drop is None else f"by {figure(goal.max_drop)}"
    return f"{goal.metric} no worse {drop}"


def _tolerance_words(tolerances: Tolerances) -> str:
    default_values = [
        tolerance.value for tolerance in tolerances.given if tolerance.pattern is None
    ]
    tolerances_of_outputs = [
        tolerance for tolerance in tolerances.given if tolerance.pattern is not None
    ]
    if not tolerances_of_outputs:
        allowed = (
            f"at most {figure(default_values[-1])}"
            if default_values
            else "within the default tolerance"
        )
        return f"relative error of each output {allowed}"
    parts = [
        f"{figure(tolerance.value)} for {tolerance.pattern}" for tolerance in tolerances_of_outputs
    ]
    others = figure(default_values[-1]) if default_values else "the default tolerance"
    return f"relative error at most {', '.join(parts)}, and {others} for the other outputs"


_EARLY: Final = {
    Ending.TRIALS: "the search reached its number of trials, so fewer layers may be enough",
    Ending.TIME: "the search reached its time limit, so fewer layers may be enough",
    Ending.INTERRUPTED: "the search was interrupted, so fewer layers may be enough",
}
"""The consequence of an early end for the best set."""


_TONES: Final = {
    Answer.SAFE: Tone.GOOD,
    Answer.UNDECIDED: Tone.CAUTION,
    Answer.NOT_SAFE: Tone.BAD,
}
_CONFIDENCE: Final = "(95%)"
_NOTHING: Final = {
    Open.CONSTANT: "the output of the reference is the same in all of them",
    Open.NOT_FINITE: "the output of the reference is not finite",
}


def verdict(tuning: Tuning) -> Verdict:
    """Return the first sentence of the page."""
    parts = [Sentence(text=_outcome(tuning), tone=_TONES[tuning.answer])]
    if (tuning.passed or not tuning.converted) and tuning.kept and tuning.ending in _EARLY:
        parts.append(Sentence(text=_EARLY[tuning.ending], tone=Tone.CAUTION))
    return Verdict(parts=tuple(parts), subject=tuning.reference.path)


def headline(tuning: Tuning) -> str:
    """Return the result of a search in one line, without the path of the model."""
    return verdict(tuning).text


def _outcome(tuning: Tuning) -> str:
    trials = many(len(tuning.trials), "trial")
    if tuning.best is not None:
        return _best_set_words(tuning, tuning.best)
    if tuning.ending is Ending.IMPOSSIBLE:
        missed_words = (
            "the outputs exceed the tolerance"
            if is_error_only(tuning.objective)
            else "the objective is not met"
        )
        return f"{missed_words} even with every layer in float32{_closest(tuning, ': ')}; {trials}"
    sentence = _no_set_words(tuning, trials)
    return sentence + _closest(tuning, "; the closest set: ")


def _best_set_words(tuning: Tuning, best: Trial) -> str:
    count, total = tuning.float32_count, tuning.layer_count
    verb = "stays" if count == 1 else "stay"
    if len(best.kept) == len(tuning.layers):
        return (
            f"{count:,} of {many(total, 'layer')} {verb} in float32, so there is nothing to convert"
        )
    promised = best.promise
    if not tuning.passed:
        reasons = [
            *(
                [promise_words(tuning, promised)]
                if promised is not None and promised.answer is Answer.NOT_SAFE
                else []
            ),
            *reached_parts(tuning, best),
        ]
        return (
            f"the set that was found, {count:,} of {many(total, 'layer')} in float32, fails on "
            f"rows that the search did not use: {'; '.join(reasons)}"
        )
    kept = f"{count:,} of {many(total, 'layer')} {verb} in float32"
    if not count:
        kept = "no layer stays in float32"
    if promised is not None and tuning.answer is Answer.SAFE:
        return f"{kept}; {promise_words(tuning, promised)}"
    if promised is not None and tuning.inputs.kind is InputKind.GIVEN:
        return f"Undecided: {promise_words(tuning, promised)}; {kept}"
    reason = "no other rows" if tuning.inputs.kind is InputKind.GIVEN else "not tested on your data"
    return f"Undecided: {reason}; {kept}: {'; '.join(reached_parts(tuning, best))}"


def promise_words(tuning: Tuning, promised: Promise) -> str:
    """Return the largest change of predictions in the rows that validate the set."""
    noun = "row" if tuning.split is Split.SHARED else "other row"
    rows = f"on {many(promised.rows, noun)}"
    if promised.spoiled:
        return f"{rows} {promised.spoiled:,} become NaN or infinity"
    if promised.why in _NOTHING:
        return f"{rows} {_NOTHING[promised.why]}"
    if promised.most is None:
        return f"{rows} nothing can be compared"
    if promised.metric is not None:
        return f"{rows} {promised.metric} gets at most {figure(promised.most)} worse {_CONFIDENCE}"
    assert promised.kind is not None  # noqa: S101  # a bound without a metric is that of a kind
    text = f"{rows} {checks.bound_words(promised.kind, promised.most)} {_CONFIDENCE}"
    if promised.needed is None:
        return text
    return f"{text}; use {checks.rounded_rows(promised.needed)} rows or more"


def _no_set_words(tuning: Tuning, trials: str) -> str:
    match tuning.ending:
        case Ending.TIME:
            return f"no set of layers was found within {figure(tuning.seconds)} s ({trials})"
        case Ending.INTERRUPTED:
            return f"the search was interrupted after {trials}, before a set of layers was found"
    return f"no set of layers was found within {trials}"


def _closest(tuning: Tuning, before: str) -> str:
    """Return the result of the closest set, as the end of a sentence."""
    if tuning.closest is None:
        return ""
    return before + "; ".join(reached_parts(tuning, tuning.closest))


class Tunings(Struct, frozen=True, kw_only=True):
    """A search, and the outcome for the model."""

    tuning: Tuning | None = None
    """None if nothing could run; the failures have the reason."""

    migration: Migration | None = None
    """The result or preview of ``migrate``; None if there is nothing to write."""

    failures: tuple[Failure, ...] = ()
    everything: bool = False
    """Whether to list all converted layers instead of those with the smallest margin."""

    arguments: tuple[str, ...] = ()
    """The command line; empty for a call from Python."""


_REPORT: Final = "--format"
_JSON: Final = "json="
_DONE: Final = frozenset({Status.WRITTEN, Status.UNCHANGED, Status.BLOCKED})
"""The outcomes after which the command would change nothing or fail."""


def command(tunings: Tunings) -> tuple[str, ...]:
    """
    Return the command that applies the result; empty if the model is already written, or if no set
    was found.
    """
    tuning, migration = tunings.tuning, tunings.migration
    if tuning is None or not tuning.passed or tuning.options is None:
        return ()
    if migration is not None and migration.status in _DONE:
        return ()
    output = _output(migration)
    plan = _plan(tunings.arguments)
    if plan is not None and migration is not None:
        return ("policytool", "migrate", "--plan", plan, *output)
    return (*checks.migrate_command(tuning.reference.path, tuning.options), *output)


def point_command(tuning: Tuning, point: CurvePoint) -> tuple[str, ...]:
    """Return the command that writes the model with another set; empty if it is not known."""
    options = tuning.options_by_count.get(point.converted)
    return () if options is None else checks.migrate_command(tuning.reference.path, options)


def _output(migration: Migration | None) -> tuple[str, ...]:
    """Return the option for an output that does not have the default name."""
    if migration is None or migration.target is None:
        return ()
    default = migration.source.with_name(default_name(migration.source, migration.plan.suffix))
    target = display_path(migration.target)
    return () if target == display_path(default) else ("-o", layout.file(target))


def _plan(arguments: tuple[str, ...]) -> str | None:
    """Return the file that the JSON report is written to, which ``--plan`` reads."""
    values = [
        word.removeprefix(f"{_REPORT}=") if word.startswith(f"{_REPORT}=") else after
        for word, after in itertools.pairwise((*arguments, ""))
        if word == _REPORT or word.startswith(f"{_REPORT}=")
    ]
    files = [value.removeprefix(_JSON) for value in values if value.startswith(_JSON)]
    return files[0] if files else None
