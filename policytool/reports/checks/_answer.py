"""The first line of a check: whether the candidate is safe, and what shows it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from policytool.numerics.check_results.verdicts import Answer, Open, OutputKind, severity
from policytool.reports.checks._metric import change_words
from policytool.reports.figures import figure, many

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from policytool.numerics.check_results.checks import Check, CheckRun
    from policytool.numerics.check_results.metrics import OutputMetric
    from policytool.numerics.check_results.verdicts import KindAnswer, OutputAnswer

WORDS: Final = {Answer.SAFE: "Safe", Answer.NOT_SAFE: "Not safe", Answer.UNDECIDED: "Undecided"}
_COUNTED: Final = {
    OutputKind.CLASSES: ("class changes", "predictions change class"),
    OutputKind.BINARY: ("yes/no prediction changes", "yes/no predictions change"),
    OutputKind.EMBEDDING: ("nearest neighbor changes", "nearest neighbors change"),
    OutputKind.VALUES: ("prediction changes", "predictions change"),
}
_SIZED: Final = {
    OutputKind.PROBABILITY: "probabilities change by {} their mean",
    OutputKind.REGRESSION: "values change by {} their spread",
    OutputKind.MASK: "masks change by {} their area",
}
_NOTHING: Final = {
    Open.CONSTANT: "output {} of the reference is the same in all rows",
    Open.NOT_FINITE: "output {} of the reference is not finite",
    Open.UNFIT: "output {} has no values of the kind in --output-kind",
}
_DIGITS: Final = 2
_TIMES: Final = 2.0
"""Changes from this many times on are no percentages."""

CONFIDENCE: Final = "95% confidence"


def first_line(check: Check, run: CheckRun, findings: Sequence[str], limits: Sequence[str]) -> str:
    """
    Return the answer of a run.

    :param findings: the causes of an error, and on synthetic inputs the evidence for it
    :param limits: values close to the limit of a dtype, now or with larger inputs
    """
    answer = run.answer
    where = f" in {check.candidate.policy}" if check.candidate.policy else ""
    if check.is_equal:
        count = max((output_answer.samples for output_answer in run.answers), default=0)
        on = f"these {many(count, 'row')}" if run.is_on_data else "synthetic inputs"
        return f"Equal within float32 rounding on {on}"
    if not run.is_on_data:
        seen = [*_blind(run), *findings] or [_only_rounding(run)]
        return f"{WORDS[answer]}{where}: not tested on your data; {'; '.join([*seen, *limits])}"
    deciding = max(run.answers, key=_weight, default=None)
    if deciding is None:
        return f"{WORDS[answer]}{where}: the model has no output"
    rows = f" on these {many(deciding.samples, 'row')}" if answer is Answer.SAFE else ""
    several = f"in output {deciding.name}, " if len(run.answers) > 1 else ""
    metric = run.verdict.metric.name if run.verdict.metric is not None else ""
    reasons = [
        f"{several}{said_of(deciding, metric)}",
        *(limits if answer is Answer.SAFE else findings),
    ]
    return f"{WORDS[answer]}{where}{rows}: {'; '.join(reasons)}"


def _blind(run: CheckRun) -> Iterator[str]:
    """Yield why an output shows nothing, for each such output."""
    for output_answer in run.answers:
        if output_answer.why in _NOTHING:
            yield _NOTHING[output_answer.why].format(output_answer.name)


def _only_rounding(run: CheckRun) -> str:
    errors = [
        output.accumulated.relative for output in run.outputs if output.accumulated is not None
    ]
    largest = max((error for error in errors if error is not None), default=0.0)
    return f"synthetic inputs show only rounding (a relative error of {figure(largest)})"


def said_of(answer: OutputAnswer, metric: str) -> str:
    """
    Return the reason for the answer of one output.

    :param metric: the name of the metric
    """
    if answer.spoiled:
        return f"{many(answer.spoiled, 'row')} of {answer.samples:,} become NaN or infinity"
    if answer.labels is not None:
        return _of_labels(metric, answer.labels, answer.answer)
    if answer.why in _NOTHING:
        return _NOTHING[answer.why].format(answer.name)
    kind = answer.deciding
    if kind is None:
        return "nothing can be compared"
    text = _of_kind(kind, answer.answer)
    if answer.why is Open.KINDS:
        kinds = " or ".join(sorted({kind_answer.kind.value for kind_answer in answer.kinds}))
        return f"{text} if they are {kind.kind.value}; add --output-kind {answer.name}={kinds}"
    return text


def _weight(answer: OutputAnswer) -> tuple[int, float]:
    return severity(answer.answer), answer.deciding.change.value if answer.deciding else 0.0


def _of_labels(name: str, metric: OutputMetric, answer: Answer) -> str:
    text = change_words(name, metric)
    if metric.bounds is None:
        return text
    lower, upper = (figure(bound) for bound in metric.bounds)
    if answer is Answer.SAFE:
        return f"{text} (at most {upper} worse)"
    if answer is Answer.NOT_SAFE:
        return f"{text} (at least {lower}, {CONFIDENCE})"
    return f"{text} ({lower} to {upper} worse, {CONFIDENCE})"


def _of_kind(result: KindAnswer, answer: Answer) -> str:
    change = result.change
    counted = _COUNTED.get(result.kind)
    if counted is not None and result.needed is not None and not change.value:
        return (
            f"{many(result.samples, 'row')} {'show' if result.samples != 1 else 'shows'} that at "
            f"most {_share(change.upper)} of {counted[1]}; use {_rounded(result.needed)} or more"
        )
    if math.isinf(change.upper):
        return (
            "no class changes, but the largest probability of a row changes by "
            f"{figure(100 * change.value)}% on average"
        )
    if counted is None and not change.upper:
        return "no value changes"
    if counted is None:
        where = f" in channel {result.channel}" if result.channel is not None else ""
        size = _share(change.value)
        size = size if change.value >= _TIMES else f"{size} of"
        text = _SIZED[result.kind].format(size) + where
    elif not change.value:
        text = f"no {counted[0]}"
    else:
        of = (
            "" if answer is Answer.SAFE else f"{result.samples:,} "
        )  # which the sentence names already
        text = f"{_share(change.value)} of {of}{counted[1]}"
    if answer is Answer.NOT_SAFE:
        return f"{text} (at least {_share(change.lower)}, {CONFIDENCE})"
    if answer is Answer.SAFE:
        return f"{text} (at most {_share(change.upper)})"
    if result.needed is not None:
        return (
            f"{text} (at most {_share(change.upper)}, {CONFIDENCE}); use {_rounded(result.needed)} "
            "rows or more"
        )
    return f"{text} ({_share(change.lower)} to {_share(change.upper)}, {CONFIDENCE})"


def _share(fraction: float) -> str:
    """Return a share, or a change relative to something, in three digits."""
    return f"{figure(fraction)} times" if fraction >= _TIMES else f"{figure(100 * fraction)}%"


def _rounded(rows: int) -> str:
    """Return an estimated number of rows, of which the first two digits count."""
    digits = len(str(rows)) - _DIGITS
    return f"{-(-rows // 10**digits) * 10**digits if digits > 1 else rows:,}"
