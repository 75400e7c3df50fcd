"""
The result of ``check`` in one sentence with its numbers: whether the candidate is safe, the
evidence, and the layer that causes the error. Then the next step: the command that writes the
candidate, and the results of trials.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from policytool.migration.planning.options import Outputs
from policytool.numerics.check_results.verdicts import (
    Answer,
    JudgementSubject,
    Open,
    OutputKind,
    Ruling,
    severity,
)
from policytool.numerics.recordings import changed_weights_words
from policytool.releases.releases import BACKENDS
from policytool.reports import layout
from policytool.reports.checks._layers import measurements, overflow_reasons
from policytool.reports.checks._tables import change_words
from policytool.reports.words import HEADROOM, bytes_words, figure, many, share
from policytool.support.text.phrases import join_and_count, join_first

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from policytool.commands.inspect import Failure
    from policytool.migration.planning.options import Options
    from policytool.numerics.check_results.checks import Check, CheckRun, RecordedFile
    from policytool.numerics.check_results.metrics import OutputMetric
    from policytool.numerics.check_results.verdicts import (
        Judgement,
        KindAnswer,
        Origin,
        OutputAnswer,
    )


def migrate_command(path: str, options: Options) -> tuple[str, ...]:
    """Return the words of the command ``migrate``, without an output."""
    return ("policytool", "migrate", layout.file(path), *_words(options))


def _words(options: Options) -> Iterator[str]:
    """Yield the options of ``migrate`` that make the candidate."""
    if options.to is not None:
        yield from ("--to", options.to)
    if options.include_exceptions:
        yield from ("--include", "exceptions")
    if options.outputs is not Outputs.KEEP:
        yield from ("--include", "outputs")
    if options.target is not None:
        yield from ("--target", options.target)
    if options.retrace:
        yield "--retrace"
    for assignment in options.assignments:
        yield from ("--set", f"{assignment.pattern}={assignment.policy}")


WORDS: Final = {Answer.SAFE: "Safe", Answer.NOT_SAFE: "Not safe", Answer.UNDECIDED: "Undecided"}
_COUNTED: Final = {
    OutputKind.CLASSES: ("class changes", "predictions change class"),
    OutputKind.BINARY: ("yes/no prediction changes", "rows get another yes/no prediction"),
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
_TO_DECIDE: Final = "to decide, {}"
_STEPS: Final[Mapping[Open | None, str]] = {
    Open.BETWEEN: "add {labels}, or keep layers in float32 with policytool tune",
    Open.CONSTANT: "use other --inputs",
    Open.NOT_FINITE: "use other --inputs",
}
"""What decides, by the reason; the sentences about other reasons name it."""

_NAMED_LAYERS: Final = 3
"""The most layers that a sentence names."""

_NAMED: Final = 4
"""The most inputs that the code to write them names."""

_DIGITS: Final = 2
_TIMES: Final = 2.0
"""The factor from which on a change is not reported in percent."""

CONFIDENCE: Final = "95% confidence"


def first_line(check: Check, run: CheckRun, findings: Sequence[str], limits: Sequence[str]) -> str:
    """
    Return the answer of a run.

    :param findings: the causes of an error, and on synthetic inputs the evidence for it
    :param limits: values close to the limit of a dtype, now or with larger inputs
    """
    answer = run.answer
    policy_words = f" in {check.candidate.policy}" if check.candidate.policy else ""
    if check.candidate.backend != "tensorflow":
        policy_words += f" with {BACKENDS.get(check.candidate.backend, check.candidate.backend)}"
    if answer is Answer.SAFE:
        policy_words += float32_words(check.candidate.float32_layers)
    count = max((output_answer.samples for output_answer in run.answers), default=0)
    input_words = f"these {many(count, 'row')}" if run.is_on_data else "synthetic inputs"
    library = check.candidate.library
    library_words = f" in {library}," if library != check.reference.library else ""
    if check.is_equal:
        dtype_words = "float32 " if check.is_wide else ""
        is_recorded = check.against is not None
        recorded_words = f" to the recorded run{library_words}" if is_recorded else ""
        return f"Equal{recorded_words} within {dtype_words}rounding on {input_words}"
    if check.differs_from_recording:
        return (
            f"Differs from the recorded run{library_words} on {input_words}: {'; '.join(findings)}"
        )
    if run.rewrite is not None and run.is_unchanged:
        return f"{WORDS[answer]}{policy_words}: {run.rewrite.unchanged}"
    if not run.is_on_data:
        evidence = [*_blind_outputs(run), *findings] or [_only_rounding(run)]
        step = [_TO_DECIDE.format(_add_inputs(run))] if answer is Answer.UNDECIDED else []
        remarks = "; ".join([*evidence, *limits, *step])
        return f"{WORDS[answer]}{policy_words}: not tested on your data; {remarks}"
    deciding = max(run.answers, key=_weight, default=None)
    if deciding is None:
        return f"{WORDS[answer]}{policy_words}: the model has no output"
    rows = f" on these {many(deciding.samples, 'row')}" if answer is Answer.SAFE else ""
    output_words = f"in output {deciding.name}, " if len(run.answers) > 1 else ""
    metric = run.verdict.metric.name if run.verdict.metric is not None else ""
    reasons = [
        f"{output_words}{answer_reason(deciding, metric)}",
        *(limits if answer is Answer.SAFE else findings),
    ]
    deciding_step = "use more rows" if deciding.labels is not None else _STEPS.get(deciding.why)
    if answer is Answer.UNDECIDED and deciding_step is not None:
        labels = f"labels of output {deciding.name}" if metric else "--labels and --metric"
        reasons.append(_TO_DECIDE.format(deciding_step.format(labels=labels)))
    return f"{WORDS[answer]}{policy_words}{rows}: {'; '.join(reasons)}"


def float32_words(paths: Sequence[str]) -> str:
    """Return which layers stay in float32, as part of a sentence; empty if there are none."""
    if not paths:
        return ""
    names = [path.rpartition("/")[2] for path in paths]
    if len(set(names)) < len(names):
        names = list(paths)
    words = f"{many(len(paths), 'layer')} in float32 ({join_and_count(names, _NAMED_LAYERS)})"
    return f" with {words}"


def _add_inputs(run: CheckRun) -> str:
    """Return how to write the rows of each input, with the names that the model has."""
    names = [entry.name for entry in run.inputs.inputs]
    if len(names) == 1:
        arrays = "rows"
    elif all(name.isidentifier() for name in names):
        arrays = join_first([f"{name}=rows" for name in names], _NAMED)
    else:
        return "add --inputs data.npz, with an array for each input"
    return f"add --inputs data.npz, which numpy.savez('data.npz', {arrays}) writes"


def _blind_outputs(run: CheckRun) -> Iterator[str]:
    """Yield the reason for each output that does not test the candidate."""
    for output_answer in run.answers:
        if output_answer.why in _NOTHING:
            yield _NOTHING[output_answer.why].format(output_answer.name)


def _only_rounding(run: CheckRun) -> str:
    """
    Return a sentence part about an answer without evidence: the largest error on synthetic inputs,
    which rounding explains.
    """
    errors = [
        output.accumulated.relative for output in run.outputs if output.accumulated is not None
    ]
    largest = max((error for error in errors if error is not None), default=0.0)
    return f"synthetic inputs show only rounding (a relative error of {figure(largest)})"


def answer_reason(answer: OutputAnswer, metric: str) -> str:
    """
    Return the reason for the answer of one output.

    :param metric: the name of the metric
    """
    if answer.spoiled:
        return f"{many(answer.spoiled, 'row')} of {answer.samples:,} become NaN or infinity"
    if answer.labels is not None:
        return _label_words(metric, answer.labels, answer.answer)
    if answer.why in _NOTHING:
        return _NOTHING[answer.why].format(answer.name)
    kind = answer.deciding
    if kind is None:
        return "nothing can be compared"
    text = _kind_words(kind, answer.answer)
    if answer.why is Open.KINDS:
        kinds = " or ".join(sorted({kind_answer.kind.value for kind_answer in answer.kinds}))
        return f"{text} if they are {kind.kind.value}; add --output-kind {answer.name}={kinds}"
    return text


def _weight(answer: OutputAnswer) -> tuple[int, float]:
    return severity(answer.answer), answer.deciding.change.value if answer.deciding else 0.0


def _label_words(name: str, metric: OutputMetric, answer: Answer) -> str:
    text = change_words(name, metric)
    if metric.bounds is None:
        return text
    lower, upper = (figure(bound) for bound in metric.bounds)
    if answer is Answer.SAFE:
        return f"{text} (at most {upper} worse)"
    if answer is Answer.NOT_SAFE:
        return f"{text} (at least {lower}, {CONFIDENCE})"
    return f"{text} ({lower} to {upper} worse, {CONFIDENCE})"


def _kind_words(result: KindAnswer, answer: Answer) -> str:
    change = result.change
    counted = _COUNTED.get(result.kind)
    if counted is not None and result.needed is not None and not change.value:
        return (
            f"no {counted[0]} in {many(result.samples, 'row')}, which "
            f"{'show' if result.samples != 1 else 'shows'} that at most {_share(change.upper)} of "
            f"{counted[1]}; use {rounded_rows(result.needed)} or more"
        )
    if math.isinf(change.upper):
        return (
            "no class changes, but the largest probability of a row changes by "
            f"{figure(100 * change.value)}% on average"
        )
    if counted is None and not change.upper:
        return "no value changes"
    if counted is None:
        channel_words = f" in channel {result.channel}" if result.channel is not None else ""
        size = _share(change.value)
        size = size if change.value >= _TIMES else f"{size} of"
        text = _SIZED[result.kind].format(size) + channel_words
    elif not change.value:
        text = f"no {counted[0]}"
    else:
        has_several = result.predictions != result.samples
        names_rows = answer is not Answer.SAFE  # the sentence of a safe answer names them already
        count_words = f"{result.predictions:,} " if has_several or names_rows else ""
        text = f"{_share(change.value)} of {count_words}{counted[1]}"
        text += f" in {many(result.samples, 'row')}" if has_several and names_rows else ""
    if answer is Answer.NOT_SAFE:
        return f"{text} (at least {_share(change.lower)}, {CONFIDENCE})"
    if answer is Answer.SAFE:
        return f"{text} (at most {_share(change.upper)})"
    if result.needed is not None:
        return (
            f"{text} (at most {_share(change.upper)}, {CONFIDENCE}); use "
            f"{rounded_rows(result.needed)} rows or more"
        )
    limit_words = f"; up to {_share(result.limit)} is safe" if result.limit is not None else ""
    return f"{text} ({_share(change.lower)} to {_share(change.upper)}, {CONFIDENCE}){limit_words}"


def bound_words(kind: OutputKind, most: float) -> str:
    """Return the largest change of the predictions of one kind of output."""
    counted = _COUNTED.get(kind)
    if counted is not None:
        return f"at most {_share(most)} of {counted[1]}"
    if not most:
        return "no value changes"
    return _SIZED[kind].format(f"at most {_share(most)}{'' if most >= _TIMES else ' of'}")


def _share(fraction: float) -> str:
    """Return a share or a relative change with three digits."""
    return f"{figure(fraction)} times" if fraction >= _TIMES else f"{figure(100 * fraction)}%"


def rounded_rows(rows: int) -> str:
    """Return an estimated number of rows with two digits."""
    digits = len(str(rows)) - _DIGITS
    return f"{-(-rows // 10**digits) * 10**digits if digits > 1 else rows:,}"


def command(check: Check) -> tuple[str, ...]:
    """
    Return the command that writes the candidate, with the layers to keep if it is not safe without
    them; empty if there is none.
    """
    if check.migration is None:
        return ()
    return migrate_command(check.candidate.path, check.migration)


def unfit_sentence(check: Check) -> str:
    """
    Return a sentence that recommends another policy for the model; empty if this one suits it.
    """
    search = check.advice
    if search is None or not search.is_unfit:
        return ""
    if search.layers:
        conclusion = (
            f"in the smallest set found, {len(search.layers):,} of {many(search.choices, 'layer')} "
            f"{'stays' if len(search.layers) == 1 else 'stay'} in float32"
        )
    else:
        conclusion = f"no set of float32 layers {'was found' if search.exhausted else 'is enough'}"
    suggestion = f"; {search.policy} does" if search.policy is not None else ""
    policy = check.candidate.policy or "the policy"
    return f"{policy} does not suit this model ({conclusion}){suggestion}"


def replaced_sentence(check: Check) -> str:
    """
    Return a sentence on the ``--set`` options without which the check does not fail; empty if none
    is known.
    """
    search = check.advice
    if search is None or not search.replaced:
        return ""
    kept = join_and_count(search.layers, _NAMED_LAYERS)
    removed = [f"{item.pattern}={item.policy}" for item in search.replaced]
    return (
        f"the check does not fail with {kept} in float32, without "
        f"--set {' --set '.join(removed[:_NAMED_LAYERS])}"
        f"{', ...' if len(removed) > _NAMED_LAYERS else ''}"
    )


def advice(check: Check) -> Iterator[str]:
    """Yield the results of the trials that followed a failed check."""
    search = check.advice
    if search is None:
        return
    trials = many(search.trials, "trial run")
    if search.layers:
        yield (
            f"with {many(len(search.layers), 'more layer')} in float32, the check no longer fails "
            f"(found and verified in {trials})"
        )
    elif search.exhausted:
        yield f"found no set of float32 layers that prevents the failure in {trials}"
    else:
        yield "the check fails even with all layers of the file in float32"
    if search.policy is not None:
        yield f"with {search.policy} instead, the check does not fail (verified)"


_OWN: Final = "its own policies"
_MANY_FLUSHED: Final = 0.1
"""The minimum share of values that underflow which the verdict reports."""


def verdict(check: Check, run: CheckRun) -> str:
    """Return the result of a run as a complete sentence."""
    if run.missing:
        return f"Undecided: {next(_missing(run))}"
    if run.is_on_data and not check.differs_from_recording:
        findings = list(_causes(run)) if run.has_unexplained_error else []
    else:
        findings = list(_fail_sentences(run)) if not run.verdict.passed else []
    return first_line(check, run, findings, [*_probe(run), *_margins(run)])


def overall(check: Check) -> str:
    """Return the combined answer of several runs."""
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
    if check.recording is not None and check.is_recording:
        return recording_sentence(check.recording)
    sentences = [verdict(check, check.runs[0]) if len(check.runs) == 1 else overall(check)]
    sentences += filter(None, (replaced_sentence(check), unfit_sentence(check)))
    return "; ".join(sentences)


def recording_sentence(recording: RecordedFile) -> str:
    """Return a sentence on the file of a recorded run."""
    return (
        f"Recorded {many(recording.rows, 'row')} and {many(recording.calls, 'layer call')} in "
        f"{recording.file} ({bytes_words(recording.bytes)}), which contains the inputs and outputs"
    )


def place(run: CheckRun) -> str:
    """Return the device and the signature of a run."""
    return (
        run.device.name
        if run.signature is None
        else f"{run.device.name}, signature {run.signature}"
    )


def _missing(run: CheckRun) -> Iterator[str]:
    """Yield a sentence on ops without a kernel; a table has the details."""
    ops = list(
        dict.fromkeys(
            kernel.type + (f" in {kernel.dtype}" if kernel.dtype else "") for kernel in run.missing
        )
    )
    yield (
        f"{many(len(run.missing), 'op')} {'has' if len(run.missing) == 1 else 'have'} no kernel on "
        f"{run.device.name}: {join_first(ops)}; {_TO_DECIDE.format('select another --device')}"
    )


def _fail_sentences(run: CheckRun) -> Iterator[str]:
    verdict = run.verdict
    outputs, layers = (
        [
            judgement
            for judgement in verdict.missed
            if judgement.about is subject and judgement.not_comparable is None
        ]
        for subject in (JudgementSubject.OUTPUT, JudgementSubject.LAYER)
    )
    if outputs:
        missed = [judgement for judgement in outputs if judgement.ruling is not Ruling.CHANGED]
        if missed:
            total = len(verdict.about(JudgementSubject.OUTPUT))
            yield _describe_missed(missed, total, "outputs")
        for judgement in outputs:
            if judgement.ruling is Ruling.CHANGED:
                yield _describe_changed(run, judgement)
    yield from _causes(run)
    named_paths = {verdict.first_not_finite, run.origin.path if run.origin is not None else None}
    is_told = bool(layers) and layers[0].path in named_paths
    if layers and not (is_told and len(layers) == 1):
        total = len(verdict.about(JudgementSubject.LAYER))
        yield _describe_missed(layers, total, "layer calls", is_told=is_told)


def _causes(run: CheckRun) -> Iterator[str]:
    """Yield the layer that causes an error, if it is known."""
    if run.changed_weights is not None:
        yield changed_weights_words(run.changed_weights)
    if run.origin is not None:
        if run.origin.path not in (run.changed_weights or ()):
            yield origin(run, run.origin)
    elif run.verdict.first_not_finite is not None:
        reasons = "; ".join(_overflow_reasons(run, run.verdict.first_not_finite))
        first_words = f"NaN or infinity first appears in layer {run.verdict.first_not_finite}"
        yield f"{first_words} ({reasons})" if reasons else first_words


def _describe_changed(run: CheckRun, judgement: Judgement) -> str:
    """Return how the predictions of an output change whose error rounding could explain."""
    answer = next(answer for answer in run.answers if answer.name == judgement.path)
    output_words = f"in output {answer.name}, " if len(run.answers) > 1 else ""
    return f"{output_words}{answer_reason(answer, '')}"


def _describe_missed(
    missed: Sequence[Judgement], total: int, noun: str, *, is_told: bool = False
) -> str:
    """
    Return the errors that rounding does not explain; the largest one with its value unless it was
    named.
    """
    if len(missed) == 1:
        return f"{missed[0].about.value} {missed[0].path} {_error(missed[0])}"
    worst = "" if is_told else f"; the worst one, {missed[0].path}, {_error(missed[0])}"
    return f"{len(missed):,} of {total:,} {noun} have larger errors than rounding explains{worst}"


def origin(run: CheckRun, cause: Origin) -> str:
    """Return the cause of the error of a failed run."""
    layer = f"{cause.path} ({cause.class_name})"
    if cause.in_reference:
        return f"NaN or infinity originates in layer {layer} of the reference"
    if cause.nonfinite:
        known = "; ".join([cause.class_name, *_overflow_reasons(run, cause.path)])
        place_words = "in the code of" if cause.in_code else "in layer"
        return f"NaN or infinity originates {place_words} {cause.path} ({known})"
    if cause.seen_in is not None:
        return (
            f"the error originates in the rounding of the output of layer {layer}, which layer "
            f"{cause.seen_in} amplifies"
        )
    return f"the error originates in {'the code of' if cause.in_code else 'layer'} {layer}"


def _overflow_reasons(run: CheckRun, path: str) -> Iterator[str]:
    """Yield the reason for an overflow in a call, if the values in the reference explain it."""
    call = next((call for call in run.calls if call.place == path), None)
    for output in call.outputs if call is not None else ():
        largest_values = [metrics.largest_reference for metrics in measurements(output)]
        yield from overflow_reasons(largest_values, output.dtype_candidate)


def _margins(run: CheckRun) -> Iterator[str]:
    """Yield the layer with the least headroom, and the layer in which most values underflow."""
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
        rows = run.inputs.layer_rows
        place_words = f"{path} (measured in {many(rows, 'row')})" if rows is not None else path
        yield f"largest value {used} {dtype}'s limit, in {place_words}"
    if losses:
        flushed, path = max(losses)
        yield f"{share(flushed)} of the values of layer {path} underflow to zero"


def _probe(run: CheckRun) -> Iterator[str]:
    """Yield the layer that overflows if the inputs are larger."""
    probe = run.overflow_probe
    if probe is not None and probe.factor is not None:
        yield (
            f"float16 overflows in {probe.path} ({probe.class_name}) at inputs "
            f"{figure(probe.factor)} times larger than these"
        )


def _error(judgement: Judgement) -> str:
    """Return an error as the end of a sentence whose subject is the output or layer."""
    if judgement.ruling is Ruling.NOT_FINITE:
        return "contains NaN or infinity, but the reference does not"
    if judgement.ruling is Ruling.DIFFERING:
        return "computes different values from the same integers, strings or booleans"
    return (
        f"has a relative error of {figure(judgement.error)} (rounding explains "
        f"{figure(judgement.tolerance)})"
    )


class Checks(Struct, frozen=True, kw_only=True):
    """A check, and how much of it to show."""

    check: Check | None = None
    """None if nothing could run; the failures have the reason."""

    failures: tuple[Failure, ...] = ()
    everything: bool = False
    """Whether to display all calls of layers instead of only the relevant ones."""
