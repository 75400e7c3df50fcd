"""
Decides whether a candidate is safe: whether its predictions are those of the reference.

``docs/explanation/safe.md`` describes the rule and its reasons. A candidate is safe if at most a
small share of its predictions changes, according to the upper bound. It is not safe if a larger
share changes, according to the lower bound, and undecided otherwise.

Bounds are one-sided at 95 % confidence, and estimated from the samples of the run. A share of
samples has the bounds of Clopper and Pearson (Biometrika 26, 1934), which hold for any number of
samples. A mean of values has the bounds of the normal approximation. Its upper bound also allows
for samples that did not occur: samples like the worst one may occur three times in as many samples
(the rule of three: Hanley and Lippman-Hand, JAMA 249, 1983).
"""

from __future__ import annotations

import math
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field
from msgspec.structs import replace

from policytool.numerics.check_results.verdicts import (
    Answer,
    Bounds,
    KindAnswer,
    Open,
    OutputAnswer,
    OutputKind,
    severity,
    worst,
)
from policytool.numerics.verdicts.output_kinds import (
    OutputFacts,
    losses_by_output,
    possible_readings,
)
from policytool.support.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from policytool.numerics.check_results.metrics import (
        ChannelErrors,
        CheckedOutput,
        OutputChanges,
        OutputMetric,
        Shares,
        TaskMetric,
    )
    from policytool.numerics.verdicts.output_kinds import Reading


CONFIDENCE: Final = 0.95
_RISK: Final = 1 - CONFIDENCE
_Z: Final = 1.6448536269514722
"""The one-sided quantile of the normal distribution for this confidence."""

UNSEEN: Final = -math.log(_RISK)
"""About 3: the upper bound for the expected number of samples of a kind that did not occur."""

_MOST_TIMES: Final = 1e4
_NEAR: Final = 1.002
_STEPS: Final = 60
_TERMS: Final = 500
_PRECISION: Final = 1e-14


def share_bounds(changed: int, samples: int) -> Bounds:
    """Return the share of changed samples with the bounds of Clopper and Pearson."""
    if not samples:
        return Bounds(0.0, 0.0, 1.0)
    upper = 1.0 if changed == samples else _quantile(CONFIDENCE, changed + 1, samples - changed)
    lower = 0.0 if not changed else _quantile(_RISK, changed, samples - changed + 1)
    return Bounds(changed / samples, lower, upper)


def mean_share_bounds(shares: Shares, times: float = 1) -> Bounds:
    """
    Return the mean of shares with its bounds. The upper bound is at least the one for samples
    without any change.

    :param times: factor for the number of samples, assuming that more samples are like these
    """
    samples = round(shares.samples * times)
    if shares.is_counted or not samples:
        return share_bounds(round(shares.changed * times), samples)
    unseen = share_bounds(0, samples).upper
    bounds = mean_bounds(shares.total, shares.squares, shares.worst, shares.samples, times)
    return Bounds(bounds.value, bounds.lower, min(1.0, max(unseen, bounds.upper)))


def mean_bounds(
    total: float, squares: float, worst: float, samples: int, times: float = 1
) -> Bounds:
    """
    Return the mean of nonnegative values with its bounds.

    :param total: the sum of the values
    :param squares: the sum of the squared values
    :param worst: the largest value
    :param times: as for :func:`mean_share_bounds`
    """
    total, squares, samples = total * times, squares * times, round(samples * times)
    mean = total / samples
    variance = max(squares / samples - mean * mean, 0.0) * samples / max(samples - 1, 1)
    margin = _Z * math.sqrt(variance / samples)
    return Bounds(mean, max(0.0, mean - margin), mean + margin + UNSEEN * worst / samples)


def samples_needed(samples: int, upper: Callable[[float], float], most: float) -> int | None:
    """
    Return approximately how many samples are needed for an upper bound of at most ``most``,
    assuming that more samples are like these. Return None if ten thousand times as many are not
    enough.

    :param upper: returns the upper bound if the number of samples is multiplied by a factor
    """
    lower, upper_times = 1.0, _MOST_TIMES
    if upper(upper_times) > most:
        return None
    while upper_times > lower * _NEAR:
        middle = math.sqrt(lower * upper_times)
        lower, upper_times = (lower, middle) if upper(middle) <= most else (middle, upper_times)
    return math.ceil(samples * upper_times)


def least_samples(share: float) -> int:
    """Return the number of samples without a change that show that at most this share changes."""
    return math.ceil(UNSEEN / -math.log1p(-share)) if 0 < share < 1 else 1


def _quantile(level: float, first: float, second: float) -> float:
    """Return the quantile of a beta distribution, by bisection."""
    low, high = 0.0, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        is_below = _beta(middle, first, second) < level
        low, high = (middle, high) if is_below else (low, middle)
    return (low + high) / 2


def _beta(x: float, first: float, second: float) -> float:
    """Return the regularised incomplete beta function (https://dlmf.nist.gov/8.17)."""
    if x in (0.0, 1.0):
        return x
    if x > (first + 1) / (first + second + 2):  # the fraction would converge slowly
        return 1 - _beta(1 - x, second, first)
    logarithm = first * math.log(x) + second * math.log1p(-x)
    logarithm += math.lgamma(first + second) - math.lgamma(first) - math.lgamma(second)
    return math.exp(logarithm) / (first * _fraction(x, first, second))


def _fraction(x: float, first: float, second: float) -> float:
    """
    Return the continued fraction ``1 + d1 / (1 + d2 / (1 + ...))`` of the incomplete beta function
    (https://dlmf.nist.gov/8.17.E22), by the modified method of Lentz (Thompson and Barnett, 1986).
    """
    value = above = 1.0
    below = 0.0
    for term in range(1, _TERMS):
        half = term // 2
        ends = (first + 2 * half) * (first + term - 1 if term % 2 == 0 else first + term)
        coefficient = (
            -(first + half) * (first + second + half) if term % 2 else half * (second - half)
        ) * (x / ends)
        below = 1 / (1 + coefficient * below)
        above = 1 + coefficient / above
        value *= above * below
        if abs(above * below - 1) < _PRECISION:
            break
    return value


MAX_CHANGE: Final = 0.01
"""
The share of predictions that may change. Numbers may change by half of it, relative to their
spread.
"""

_SHARES: Final = 2.0
"""A candidate is not safe only if at least this multiple of the allowed share changes."""

_NUMBERS: Final = 5.0
"""The multiple for kinds of outputs whose changes are not counted."""

_NEARLY_EXACT: Final = 0.5
"""
The factor for numbers. If they change by 0.5 % of their spread, the mean squared error of a model
grows by at most 1 %, unless its own error is below 5 % of the spread.
"""

_OTHER_VALUES: Final = 0.5
"""From this share of the spread on, an error makes the values of an output meaningless."""

_CLASS_ERROR: Final = 0.05
"""The largest mean change in the logarithm of a probability that is safe for a classifier."""

_NO_SPREAD: Final = 1e-6
"""A spread below this share of the mean comes from rounding only."""


_BY_LABELS: Final = frozenset(
    {OutputKind.REGRESSION, OutputKind.BINARY, OutputKind.PROBABILITY, OutputKind.MASK}
)
"""Kinds for which a metric with labels is more significant than the change of predictions."""

_COUNTED: Final = frozenset(
    {OutputKind.CLASSES, OutputKind.BINARY, OutputKind.EMBEDDING, OutputKind.VALUES}
)
"""Kinds whose changed predictions are counted."""

_SHARES_OF: Final[Mapping[OutputKind, Callable[[OutputChanges], Shares | None]]] = {
    OutputKind.CLASSES: attrgetter("class_changes"),
    OutputKind.BINARY: attrgetter("side_changes"),
    OutputKind.EMBEDDING: attrgetter("neighbor_changes"),
    OutputKind.VALUES: attrgetter("value_changes"),
    OutputKind.MASK: attrgetter("unmatched_masks"),
}
"""Kinds whose changes are shares of samples, with the measurement of these shares."""


class SafetyRule(Struct, frozen=True, kw_only=True):
    """The options that determine whether a candidate is safe."""

    max_change: float = MAX_CHANGE
    kinds: Mapping[str, OutputKind] = field(default_factory=dict)
    """The kinds that the user specified, by the name of the output."""

    loss: object = None
    """The losses that the file records."""


def share_of(percent: float) -> float:
    """
    Return the percentage of ``--max-change`` as a share.

    :raises UsageError: if it is not above 0 and at most 100.
    """
    if not 0 < percent <= 100:  # noqa: PLR2004  # percent
        raise UsageError(f"--max-change {percent:g} must be above 0 and at most 100")
    return percent / 100


def answer_outputs(
    outputs: Sequence[CheckedOutput], rule: SafetyRule, metric: TaskMetric | None
) -> tuple[OutputAnswer, ...]:
    """Return the answer of each output of a run: whether the candidate is safe."""
    names = [output.name or "" for output in outputs]
    losses = losses_by_output(rule.loss, names)
    labelled = {
        name: output_metric
        for output_metric in (metric.outputs if metric is not None else ())
        for name in (
            output_metric.names
            or ([output_metric.output] if output_metric.output is not None else names)
        )
    }
    answers = []
    for name, output in zip(names, outputs, strict=True):
        if output.changes is None:
            continue
        facts = OutputFacts(shape=output.shape, activation=output.activation, loss=losses.get(name))
        readings = (
            (frozenset({rule.kinds[name]}),)
            if name in rule.kinds
            else possible_readings(facts, output.changes)
        )
        answered = answer_output(name, output.changes, readings, rule.max_change)
        answers.append(
            _with_metric_answer(answered, labelled[name]) if name in labelled else answered
        )
    return tuple(answers)


def _with_metric_answer(output_answer: OutputAnswer, metric: OutputMetric) -> OutputAnswer:
    """
    Return the answer of an output with labels.

    If equally many predictions become right and wrong, the metric does not change. Therefore, the
    counted predictions must be safe too.
    """
    is_known = metric.bounds is not None or metric.drop is None
    if output_answer.spoiled or not metric.rows or not is_known:
        return output_answer
    metric_answer = _metric_answer(metric)
    kind = output_answer.deciding.kind if output_answer.deciding is not None else None
    decides = kind in _BY_LABELS or output_answer.why is Open.UNFIT
    if not decides and worst([metric_answer, output_answer.answer]) is output_answer.answer:
        return output_answer
    counted = {
        kind_answer.kind
        for kind_answer in output_answer.kinds
        if kind_answer.kind in _COUNTED and kind_answer.answer is not Answer.SAFE
    }
    if metric_answer is Answer.SAFE and counted:
        return _as_undecided(output_answer) if counted == {OutputKind.BINARY} else output_answer
    is_few = (
        metric_answer is Answer.UNDECIDED
        and metric.drop is not None
        and metric.drop <= metric.max_drop
    )
    open_reason = (
        Open.FEW if is_few else Open.BETWEEN if metric_answer is Answer.UNDECIDED else None
    )
    return replace(output_answer, answer=metric_answer, why=open_reason, labels=metric)


def _metric_answer(metric: OutputMetric) -> Answer:
    """Return whether the candidate is safe, according to a metric; undecided for NaN."""
    lower, upper = metric.bounds or (-math.inf, math.inf)
    if upper <= metric.max_drop:
        return Answer.SAFE
    return Answer.NOT_SAFE if lower > metric.max_drop else Answer.UNDECIDED


def _as_undecided(output_answer: OutputAnswer) -> OutputAnswer:
    """Return the answer as undecided because of its yes/no predictions, which then come first."""
    kinds = sorted(
        output_answer.kinds, key=lambda kind_answer: kind_answer.kind is not OutputKind.BINARY
    )
    return replace(
        output_answer, answer=Answer.UNDECIDED, kinds=tuple(kinds), why=kinds[0].why or Open.BETWEEN
    )


def answer_output(
    name: str,
    changes: OutputChanges,
    readings: Sequence[Reading],
    max_change: float = MAX_CHANGE,
) -> OutputAnswer:
    """Return the answer of one output, from the changes of its values."""
    open_reason = None if changes.spoiled else _undecidable_reason(changes)
    answers_by_reading = [
        sorted(
            (
                answer
                for kind in OutputKind
                if kind in reading
                for answer in _kind_answers(kind, changes, max_change)
            ),
            key=_rank,
        )
        for reading in (readings if open_reason is None and not changes.spoiled else ())
    ]
    answers_by_reading = [ranked for ranked in answers_by_reading if ranked]
    answers = {ranked[0].answer for ranked in answers_by_reading}
    kind_answers = sorted((answer for ranked in answers_by_reading for answer in ranked), key=_rank)
    if not kind_answers:
        return OutputAnswer(
            name=name,
            answer=Answer.NOT_SAFE if changes.spoiled else Answer.UNDECIDED,
            kinds=(),
            samples=changes.samples,
            spoiled=changes.spoiled,
            why=None if changes.spoiled else open_reason or Open.UNFIT,
        )
    is_split = len(answers) > 1 and Answer.NOT_SAFE in answers and not _is_unrelated(kind_answers)
    return OutputAnswer(
        name=name,
        answer=Answer.UNDECIDED if is_split else kind_answers[0].answer,
        kinds=tuple(kind_answers),
        samples=kind_answers[0].samples,
        why=Open.KINDS if is_split else kind_answers[0].why,
    )


def _is_unrelated(kind_answers: Sequence[KindAnswer]) -> bool:
    """
    Return whether the values differ so much that the answer is the same for every kind of output.
    """
    return any(
        kind_answer.kind is OutputKind.REGRESSION and kind_answer.change.lower > _OTHER_VALUES
        for kind_answer in kind_answers
    )


def _rank(kind_answer: KindAnswer) -> tuple[int, int]:
    """
    Return the sort key of an answer: the worst first, and counted predictions first among equals.
    """
    return -severity(kind_answer.answer), list(OutputKind).index(kind_answer.kind)


def _undecidable_reason(changes: OutputChanges) -> Open | None:
    """Return why an output cannot decide whether the candidate is safe; None if it can."""
    if changes.value_changes is None and changes.range is None:
        return Open.NOT_FINITE
    is_rounding = bool(changes.channels) and not any(map(_has_spread, changes.channels))
    return Open.CONSTANT if is_rounding or not changes.varies else None


def _kind_answers(kind: OutputKind, changes: OutputChanges, most: float) -> list[KindAnswer]:
    """Return the answers for one kind of output; none if its numbers were not measured."""
    if kind is OutputKind.PROBABILITY:
        return _probability_answers(changes, most)
    shares = _SHARES_OF[kind](changes) if kind in _SHARES_OF else None
    kind_answers = _share_answers(kind, shares, most)
    if kind in {OutputKind.CLASSES, OutputKind.VALUES}:
        kind_answers = [
            replace(kind_answer, predictions=changes.rows) for kind_answer in kind_answers
        ]
    if kind is OutputKind.CLASSES:
        return [_with_confidence(kind_answer, changes) for kind_answer in kind_answers]
    is_number = kind in {OutputKind.EMBEDDING, OutputKind.REGRESSION}
    return kind_answers or (_number_answers(changes, most) if is_number else [])


def _share_answers(kind: OutputKind, shares: Shares | None, most: float) -> list[KindAnswer]:
    if shares is None or not shares.samples:
        return []
    if kind is OutputKind.BINARY and not shares.is_counted:
        # of several labels, a sample has changed if any of them has
        shares = replace(shares, total=shares.changed, squares=shares.changed, worst=1.0)
    return [_answer_change(kind, partial(mean_share_bounds, shares), shares.samples, most)]


def largest_safe_change(kind: OutputKind, max_change: float) -> float:
    """Return the largest change of one kind of output that is safe."""
    return max_change * (_NEARLY_EXACT if kind is OutputKind.REGRESSION else 1)


def _answer_change(
    kind: OutputKind, change_of: Callable[[float], Bounds], samples: int, max_change: float
) -> KindAnswer:
    """
    Return the answer for the change of one kind of output: safe if its upper bound is allowed, not
    safe if its lower bound and a multiple of the limit are exceeded, else undecided.

    :param change_of: returns the change if the number of samples is multiplied by a factor,
        assuming that more samples are like these
    """
    change, min_samples = change_of(1), least_samples(max_change)
    factor = _SHARES if kind in _COUNTED else _NUMBERS
    is_unsafe = change.lower > max_change and change.value > factor * max_change
    max_change = largest_safe_change(kind, max_change)
    is_safe = change.upper <= max_change and samples >= min_samples
    if is_safe or is_unsafe:
        answer = Answer.SAFE if is_safe else Answer.NOT_SAFE
        return KindAnswer(
            kind=kind, answer=answer, change=change, samples=samples, predictions=samples
        )
    needed = (
        samples_needed(samples, lambda times: change_of(times).upper, max_change)
        if change.value <= max_change
        else None
    )
    if needed is None and samples < min_samples and change.lower <= max_change:
        needed = min_samples  # more samples may have fewer changes
    return KindAnswer(
        kind=kind,
        answer=Answer.UNDECIDED,
        change=change,
        samples=samples,
        predictions=samples,
        why=Open.FEW if needed is not None else Open.BETWEEN,
        needed=max(needed, min_samples) if needed is not None else None,
        limit=max_change if needed is None else None,
    )


def _with_confidence(kind_answer: KindAnswer, changes: OutputChanges) -> KindAnswer:
    """
    Return the answer for a classifier's classes; undecided if its probabilities change too much.
    """
    if (
        kind_answer.answer is not Answer.SAFE
        or changes.class_error is None
        or not changes.is_probability
        or changes.class_error / changes.rows <= _CLASS_ERROR
    ):
        return kind_answer
    return KindAnswer(
        kind=OutputKind.PROBABILITY,
        answer=Answer.UNDECIDED,
        change=Bounds(changes.class_error / changes.rows, 0.0, math.inf),
        samples=kind_answer.samples,
        predictions=kind_answer.predictions,
        why=Open.BETWEEN,
    )


def _probability_answers(changes: OutputChanges, most: float) -> list[KindAnswer]:
    """
    Return the answer for the error of probabilities relative to their mean; none if it was not
    measured.
    """
    probability = changes.probability
    if probability is None or not probability.sum or not changes.compared:
        return []
    mean = probability.sum / changes.compared

    def change_of(times: float) -> Bounds:
        error = mean_bounds(
            probability.error, probability.squares, probability.worst, changes.compared, times
        )
        return Bounds(*(bound / mean for bound in (error.value, error.lower, error.upper)))

    return [_answer_change(OutputKind.PROBABILITY, change_of, changes.compared, most)]


def _number_answers(changes: OutputChanges, most: float) -> list[KindAnswer]:
    """
    Return the answer for the channel with the largest error relative to its spread; none if no
    channel has a spread.
    """
    spreading = [channel.spread for channel in changes.channels if _has_spread(channel)]
    if not spreading:
        return []
    mean_spread = sum(spreading) / len(spreading)  # for channels that are constant in the reference
    channels = {
        place: channel if _has_spread(channel) else replace(channel, spread=mean_spread)
        for place, channel in enumerate(changes.channels)
    }

    errors = {
        place: _relative_error(channel, changes.compared) for place, channel in channels.items()
    }
    place = max(errors, key=lambda index: errors[index].value)

    def change_of(times: float) -> Bounds:
        scaled_errors = {
            at: _relative_error(channel, changes.compared, times)
            for at, channel in channels.items()
        }
        return replace(
            scaled_errors[place], upper=max(error.upper for error in scaled_errors.values())
        )

    kind_answer = _answer_change(OutputKind.REGRESSION, change_of, changes.compared, most)
    return [kind_answer if len(changes.channels) == 1 else replace(kind_answer, channel=place)]


def _has_spread(channel: ChannelErrors) -> bool:
    return (
        channel.values > 0
        and math.sqrt(channel.spread / channel.values) > _NO_SPREAD * channel.mean
    )


def _relative_error(channel: ChannelErrors, samples: int, times: float = 1) -> Bounds:
    """
    Return the relative error of a channel with its bounds: the root of the squared error divided by
    the squared spread.

    :param times: as for :func:`mean_share_bounds`
    """
    error = mean_bounds(channel.error, channel.squares, channel.worst, samples, times)
    scale = samples / channel.spread
    return Bounds(*(math.sqrt(bound * scale) for bound in (error.value, error.lower, error.upper)))
