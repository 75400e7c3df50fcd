"""
The page of ``check``: the verdict with its cause, open questions, the run, and the measurements,
the largest errors first; HTML has charts.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from policytool.numerics.check_results.checks import InputKind
from policytool.numerics.check_results.metrics import NORMAL_EXPONENTS
from policytool.numerics.check_results.verdicts import (
    Answer,
    JudgementSubject,
    OutputKind,
    severity,
)
from policytool.releases import graph_ops
from policytool.releases.dtypes import HALVES, is_float
from policytool.releases.policy import GLOBAL_SOURCE
from policytool.releases.releases import BACKENDS
from policytool.reports.checks import _layers, _tables
from policytool.reports.checks._verdict import advice, command, headline, place, verdict
from policytool.reports.page import (
    Bar,
    Bars,
    Block,
    Command,
    Curve,
    Curves,
    Fact,
    Facts,
    Figures,
    Notes,
    Page,
    Section,
    Sentence,
    Spread,
    Spreads,
    Tone,
    Verdict,
)
from policytool.reports.words import bytes_words, failure_facts, figure, many, reason_words, share
from policytool.support.grouping import group_pairs
from policytool.support.text.phrases import join_first

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from policytool.numerics.check_results.checks import (
        Check,
        CheckInput,
        CheckInputs,
        CheckRun,
        CheckSide,
        GraphRewrite,
        KeptScope,
        TensorFlowDevice,
    )
    from policytool.numerics.check_results.metrics import CheckedOutput, LayerCall, Metrics
    from policytool.reports.checks._verdict import Checks
    from policytool.reports.layout import View
    from policytool.reports.page import Chart


def caveats(check: Check) -> list[str]:
    """Return the limits of the check, each with its run unless all runs have it."""
    caveats_by_run = [list(run_caveats(check, run)) for run in check.runs]
    shared = (
        [text for text in caveats_by_run[0] if all(text in other for other in caveats_by_run)]
        if caveats_by_run
        else []
    )
    own_ones = [
        f"{place(run)}: {text}"
        for run, texts in zip(check.runs, caveats_by_run, strict=True)
        for text in texts
        if text not in shared
    ]
    return [*shared, *own_ones]


def run_caveats(check: Check, run: CheckRun) -> Iterator[str]:
    """Yield the open questions of a run."""
    if run.random:
        yield (
            f"{join_first(run.random)} "
            f"{'generates' if len(run.random) == 1 else 'generate'} random numbers, which differ "
            "between the two models"
        )
    yield from _quantization_notes(check)
    yield from _other_backends(check)
    if not run.missing:
        yield from input_caveats(run.inputs)
    nonfinite_sentences = list(_nonfinite_sentences(run))
    if nonfinite_sentences:
        yield (
            f"{join_first(nonfinite_sentences)} are NaN or infinite in the reference and were not "
            "compared"
        )
    if run.is_on_data:
        yield from _one_class_caveats(run)
    yield from side_caveats(check.reference, check.candidate)
    if not run.missing and (check.against is None or not check.keeps_precision):
        yield from device_caveats(run.device, check.candidate.backend)


def _one_class_caveats(run: CheckRun) -> Iterator[str]:
    """Yield a caveat for each output of classes that the reference never changes."""
    has_one_class = {
        output.name: output.changes.has_one_class
        for output in run.outputs
        if output.changes is not None
    }
    takes_floats = any(is_float(entry.dtype) for entry in run.inputs.inputs)
    scale = "; check that the inputs have the scale of training, such as 0 to 255"
    for answer in run.answers:
        if (
            answer.deciding is not None
            and answer.deciding.kind is OutputKind.CLASSES
            and has_one_class.get(answer.name)
        ):
            yield (
                f"the reference predicts the same class in all {answer.samples:,} rows, so they do "
                f"not show whether other classes change{scale if takes_floats else ''}"
            )


def input_caveats(inputs: CheckInputs) -> Iterator[str]:
    """Yield a caveat if the inputs are not the user's."""
    if inputs.kind is InputKind.SYNTHETIC:
        yield (
            f"inputs are synthetic (seed {inputs.seed}); results on real data may differ: use your "
            "own data with --inputs"
        )


def side_caveats(*sides: CheckSide) -> Iterator[str]:
    """Yield a caveat if a model has no weights of its own."""
    if any(side.weights == "random" for side in sides):
        yield "weights are random because the file contains none"


def device_caveats(device: TensorFlowDevice, backend: str) -> Iterator[str]:
    """Yield the caveat that results on other devices, or with other settings, can differ."""
    if device.kind == "cpu":
        yield "results were measured on a CPU; GPU kernels accumulate differently"
    elif backend != "tensorflow":
        yield (
            f"products of float32 matrices were computed in float32 ({device.matrix_precision}); "
            f"{BACKENDS[backend]} may compute them in TF32 by default"
        )


def _quantization_notes(check: Check) -> Iterator[str]:
    """
    Yield notes on the reference of a quantized file, and on a check without differences to test.
    """
    modes = check.reference.dequantized
    stored = [mode for mode in modes if mode != "float8"]
    if check.is_same_model and not modes:
        yield "both models have the same policies, so this run does not test them"
    elif check.is_same_model:
        yield (
            f"the {' and '.join(modes)} layers quantize only their weights, which are the same in "
            "both models, so this run does not test the quantization"
        )
    if stored:
        yield (
            f"the reference uses the dequantized weights of the {' and '.join(stored)} layers, so "
            "the error of quantizing the weights is not included; to include it, run policytool "
            f"check ORIGINAL {check.candidate.path}"
        )
    if "float8" in modes:
        yield (
            "the file stores the weights of float8 layers unquantized, and the reference uses them"
        )


def _other_backends(check: Check) -> Iterator[str]:
    """Yield a note if the backend that wrote a model is not the one that runs it."""
    for path in dict.fromkeys((check.reference.path, check.candidate.path)):
        side = next(
            compared_side
            for compared_side in (check.reference, check.candidate)
            if compared_side.path == path
        )
        if side.written_with not in (None, side.backend):
            yield (
                f"{side.path} was written with the {side.written_with} backend and ran with the "
                f"{side.backend} backend, whose kernels may round differently"
            )


def _nonfinite_sentences(run: CheckRun) -> Iterator[str]:
    """Yield, for each output, how many values of the reference are not finite."""
    for output in run.outputs:
        metrics = output.accumulated
        value_counts = (
            sum(counts[0] for counts in (metrics.nan, metrics.infinite) if counts is not None)
            if metrics is not None
            else 0
        )
        if metrics is not None and value_counts:
            yield f"{value_counts:,} of {metrics.elements:,} values of output {(output.name or '')}"


_SCOPE_REASONS: Final = 3
"""The maximum number of listed reasons, the most frequent first."""

_OPS: Final = 3
_LISTED: Final = (("deny", "on TensorFlow's deny list"), (None, "on none of TensorFlow's lists"))
"""The lists whose ops are never converted."""


def computing_scopes(graph_rewrite: GraphRewrite) -> Iterator[KeptScope]:
    """Yield the scopes with computations, not those that only pass values on."""
    yield from (kept_scope for kept_scope in graph_rewrite.kept if _ops(kept_scope))


def kept_scope_facts(graph_rewrite: GraphRewrite) -> Iterator[tuple[str, str]]:
    """Yield a label and a text for scopes that stay in float32 completely, and in part."""
    for label, is_whole in (("kept", True), ("kept in part", False)):
        by_reason = group_pairs(
            (kept_reason(graph_rewrite, kept_scope), kept_scope.scope)
            for kept_scope in computing_scopes(graph_rewrite)
            if kept_scope.is_whole is is_whole and graph_rewrite.unchanged is None
        )
        if by_reason:
            yield label, _text(by_reason)


def kept_reason(graph_rewrite: GraphRewrite, kept: KeptScope) -> str:
    """Return the reason why ops of a scope stay in float32, according to TensorFlow's lists."""
    ops = _ops(kept)
    lists = {op: graph_ops.amp_list(op, graph_rewrite.dtype) for op in ops}
    listed = [
        f"{_ops_and_verb([op for op in ops if lists[op] == name])} {description}"
        for name, description in _LISTED
        if name in lists.values()
    ]
    if listed:
        return ", ".join(listed)
    return f"{_ops_and_verb(ops)} converted only between other converted ops"


def _text(by_reason: dict[str, list[str]]) -> str:
    """Return scopes in float32 by reason, the most frequent reasons first."""
    ranked_reasons = sorted(by_reason.items(), key=lambda item: -len(item[1]))
    reason_texts = [
        f"{join_first(scopes)} ({reason})" for reason, scopes in ranked_reasons[:_SCOPE_REASONS]
    ]
    further_count = sum(len(scopes) for _, scopes in ranked_reasons[_SCOPE_REASONS:])
    return (
        f"{many(sum(map(len, by_reason.values())), 'layer')} in float32: {'; '.join(reason_texts)}"
        f"{f'; {further_count} more for other reasons' if further_count else ''}"
    )


def _ops(kept: KeptScope) -> list[str]:
    return [op for op in kept.ops if not graph_ops.moves_values(op)]


def _ops_and_verb(ops: list[str]) -> str:
    return f"{join_first(ops, _OPS)} {'is' if len(ops) == 1 else 'are'}"


_REASONS: Final = 3
"""The maximum number of reported reasons for kept policies, the most frequent first."""

_INPUTS: Final = 4
_TYPES: Final = 4


def side_facts(check: Check) -> Iterator[tuple[str, str]]:
    """
    Yield a label and a text for each of the two models, and for the libraries that loaded them.
    """
    both = {"reference": check.reference, "candidate": check.candidate}
    sides = {"model": check.candidate} if check.is_recording else both
    libraries = list(dict.fromkeys(side.library for side in sides.values() if side.library))
    is_graph = any(run.rewrite is not None for run in check.runs)  # whose ops have the dtypes
    for label, side in sides.items():
        words = side_words(replace(side, policies={}) if is_graph else side)
        yield label, " · ".join([*words, *([side.library] if len(libraries) > 1 else [])])
        if side.kept:
            yield "kept", _kept_layers(side)
    release = [
        f"{name} {check.versions[backend]}"
        for backend, name in BACKENDS.items()
        if backend in check.versions
    ]
    common_libraries = [
        library
        for library in libraries
        if len(libraries) == 1
        and library.lower() not in [release_text.lower() for release_text in release]
    ]
    backends = list(
        dict.fromkeys(f"{side.backend} backend" for side in sides.values() if side.library)
    )
    yield "versions", " · ".join([*release, *common_libraries, *backends])


def run_facts(run: CheckRun) -> Iterator[tuple[str, str]]:
    """Yield a label and a text for the device of a run and for its inputs."""
    yield "device", " · ".join(device_words(run.device))
    yield "inputs", input_words(run.inputs)
    if run.inputs.layer_rows is not None:
        yield "layers", f"compared in {many(run.inputs.layer_rows, 'row')}; outputs in all rows"
    if run.rewrite is not None:
        yield "rewrite", rewrite(run.rewrite)
        yield from kept_scope_facts(run.rewrite)
    if run.aliases:
        yield "same graph", f"{join_first(run.aliases)} (not run again)"
    if run.unmatched:
        yield (
            "unmatched",
            (
                f"{many(len(run.unmatched), 'layer')} called by only one model: "
                f"{join_first(run.unmatched)}"
            ),
        )


def _policy_words(policy: str) -> str:
    return "without a policy" if policy == GLOBAL_SOURCE else f"in {policy}"


def side_words(side: CheckSide) -> Iterator[str]:
    """Yield the path of a model, and the number of its layers with each policy."""
    yield side.path
    counts = sorted(side.policies.items(), key=lambda item: (-item[1], item[0]))
    if counts:
        (first, count), *others = counts
        yield ", ".join(
            [
                f"{many(count, 'layer')} {_policy_words(first)}",
                *(f"{number:,} {_policy_words(policy)}" for policy, number in others),
            ]
        )
    if side.weights == "random":
        yield "random weights"
    if side.dequantized:
        yield f"{' and '.join(side.dequantized)} layers dequantized"


def _kept_layers(side: CheckSide) -> str:
    reasons = Counter(side.kept.values())
    reason_texts = [
        f"{_names_with_reason(side, reason)}" for reason, _ in reasons.most_common(_REASONS)
    ]
    further_count = sum(count for _, count in reasons.most_common()[_REASONS:])
    further = f"; {further_count} more for other reasons" if further_count else ""
    return f"{many(len(side.kept), 'layer')}: {'; '.join(reason_texts)}{further}"


def _names_with_reason(side: CheckSide, reason: str) -> str:
    names = [name for name, layer_reason in side.kept.items() if layer_reason == reason]
    return f"{join_first(names)} ({reason_words(reason, len(names))})"


def device_words(tf_device: TensorFlowDevice) -> Iterator[str]:
    """Yield the properties of a device."""
    yield tf_device.name
    if tf_device.model:
        yield tf_device.model
    if tf_device.compute_capability:
        yield f"compute capability {tf_device.compute_capability}"
    if tf_device.memory is not None:
        yield bytes_words(tf_device.memory)
    if tf_device.driver:
        yield f"driver {tf_device.driver}"
    yield from (
        f"{name} {number}"
        for name, number in (("CUDA", tf_device.cuda), ("cuDNN", tf_device.cudnn))
        if number
    )


def rewrite(changes: GraphRewrite) -> str:
    """Return the changes by TensorFlow's automatic mixed precision."""
    if changes.unchanged is not None:
        return f"{changes.said}; {changes.unchanged}"
    types = sorted(changes.by_type.items(), key=lambda item: (-item[1], item[0]))
    op_counts_text = join_first([f"{count:,} {kind}" for kind, count in types], _TYPES)
    before = (
        (
            f"; {many(changes.narrow_before, 'op')} used 16 bits before, so the original graph is "
            "not a float32 reference"
        )
        if changes.narrow_before
        else ""
    )
    return (
        f"{changes.said}: {changes.ops:,} of {many(changes.total, 'op')} now use 16 bits "
        f"({op_counts_text}), {many(changes.casts, 'cast')} added{before}"
    )


def input_words(feed: CheckInputs) -> str:
    """Return a description of the inputs of both models."""
    kind = f"synthetic (seed {feed.seed})" if feed.kind is InputKind.SYNTHETIC else "your data"
    size = (
        f"{many(feed.batches, 'batch') if feed.batches == 1 else f'{feed.batches:,} batches'} "
        f"of {feed.batch_size:,}"
    )
    input_texts = [_input(check_input) for check_input in feed.inputs[:_INPUTS]]
    hidden_count = len(feed.inputs) - len(input_texts)
    further = [f"{hidden_count} more"] if hidden_count else []
    return f"{kind}, {size}: {'; '.join([*input_texts, *further])}"


def _input(check_input: CheckInput) -> str:
    how = check_input.how.removeprefix("given").removeprefix(", ")
    words = f"{check_input.name} {check_input.dtype} {shape(check_input.shape)}"
    return f"{words}, {how}" if how else words


def shape(sizes: tuple[int | None, ...] | None) -> str:
    """Return a shape as Python writes it, with a question mark for unknown sizes."""
    if sizes is None:
        return "?"
    size_texts = ", ".join("None" if size is None else str(size) for size in sizes)
    return f"({size_texts},)" if len(sizes) == 1 else f"({size_texts})"


_TONES: Final = {
    Answer.SAFE: Tone.GOOD,
    Answer.UNDECIDED: Tone.CAUTION,
    Answer.NOT_SAFE: Tone.BAD,
}


def page(checks: Checks, view: View) -> Page:
    """Return the page; an empty page if nothing could be run."""
    if checks.check is None:
        return Page(groups=(), failures=failure_facts(checks.failures))
    return Page(groups=(tuple(_blocks(checks, checks.check, view)),))


def _blocks(checks: Checks, check: Check, view: View) -> Iterator[Block]:
    if check.is_recording:
        yield Verdict.whole(text=headline(check), tone=Tone.GOOD)
        run_texts = (fact for run in check.runs for fact in run_facts(run) if fact[0] != "layers")
        yield _facts([*side_facts(check), *run_texts])
        if notes := tuple(note for run in check.runs for note in run.inputs.notes):
            yield Notes(texts=notes)
        return
    everything = checks.everything
    has_several_runs = len(check.runs) > 1
    yield from _verdict(check)
    if view.is_searchable and check.runs:
        worst_run = max(check.runs, key=lambda run: severity(run.answer))
        yield Figures(figures=tuple(_figures(worst_run)))
        if drawing := _layers.error_graph(worst_run, check.connected_layers):
            yield drawing
    if left_open := caveats(check):
        yield Section(title="caveats", blocks=(Notes(texts=tuple(left_open)),))
    if has_several_runs:
        yield _facts(side_facts(check))
    else:
        yield _facts([*side_facts(check), *(fact for run in check.runs for fact in run_facts(run))])
    for run in check.runs:
        parts: list[Block] = list(charts(run)) if view.is_searchable else []
        parts += sections(run, everything=everything or view.is_searchable)
        if has_several_runs:
            yield Section(title=place(run), blocks=(_facts(run_facts(run)), *parts))
        else:
            yield from parts
    if advice := tuple(remarks(check)):
        yield Section(title="notes", blocks=(Notes(texts=advice),))


_SHARES: Final = {OutputKind.CLASSES, OutputKind.BINARY, OutputKind.EMBEDDING, OutputKind.VALUES}
"""The kinds of outputs whose changes are a share of the rows."""


def _figures(run: CheckRun) -> Iterator[Fact]:
    """Yield the largest change and error of a run, the worst layer, and the number of rows."""
    changes = [
        answer.deciding.change.value
        for answer in run.answers
        if answer.deciding is not None and answer.deciding.kind in _SHARES
    ]
    if changes and run.is_on_data:
        yield Fact(label="predictions changed", text=share(max(changes)))
    errors = [output.accumulated for output in run.outputs if output.accumulated is not None]
    if any(metrics.overflow for metrics in errors):
        yield Fact(label="largest error", text="NaN/Inf", tone=Tone.BAD)
    elif relative := [metrics.relative for metrics in errors if metrics.relative is not None]:
        yield Fact(label="largest error", text=figure(max(relative)))
    layers = [measured for measured in _layers.calls_by_error(run) if not measured.call.is_model]
    if layers and not layers[0].is_exact:
        yield Fact(label="worst layer", text=layers[0].call.place.rpartition("/")[2])
    if rows := max((answer.samples for answer in run.answers), default=0):
        yield Fact(label="rows", text=f"{rows:,}")


def _verdict(check: Check) -> Iterator[Block]:
    yield Verdict.whole(text=headline(check), tone=_TONES[check.answer])
    if words := command(check):
        yield Command(label="to apply", words=words)
    if len(check.runs) > 1:
        yield from (
            Sentence(text=f"{place(run)}: {verdict(check, run)}", tone=_TONES[run.answer])
            for run in check.runs
        )


def _facts(labelled_texts: Iterable[tuple[str, str]]) -> Facts:
    return Facts(facts=tuple(Fact(label=label, text=text) for label, text in labelled_texts))


def sections(run: CheckRun, *, everything: bool) -> Iterator[Section]:
    """Yield the sections of a run, the most important first."""
    yield from _tables.kernels(run, everything=everything)
    yield from _tables.metric_section(run)
    yield from _layers.output_section(run)
    yield from _layers.layer_section(run, everything=everything)
    if run.gradients is not None:
        yield from _tables.gradient_sections(run.gradients)
    yield from _tables.timing(run)


def remarks(check: Check) -> Iterator[str]:
    """Yield next steps and notes, each once for all runs."""
    notes = [
        *(note.message for note in check.notes),
        *(note for run in check.runs for note in run.inputs.notes),
    ]
    yield from dict.fromkeys([*advice(check), *notes])


_LEAST_BELOW: Final = 0.001
"""The minimum share of values below the range of a dtype for which a layer has a histogram."""


def charts(run: CheckRun) -> Iterator[Chart]:
    """Yield the charts of the measurements."""
    calls = [call for call in run.calls if not call.is_model and call.outputs]
    curves = [
        Curve(label=label, values=tuple(_largest(call, side) for call in calls))
        for label, side in (
            ("isolated", lambda output: output.isolated),
            ("accumulated", lambda output: output.accumulated),
        )
    ]
    tolerances = {
        path: judgement.tolerance
        for path, judgement in run.verdict.by_path(JudgementSubject.LAYER).items()
    }
    expected = tuple(tolerances.get(call.place) for call in calls)
    curves.append(Curve(label="expected from rounding", values=expected))
    visible_curves = tuple(
        curve for curve in curves if any(value is not None for value in curve.values)
    )
    if visible_curves:
        yield Curves(
            title="Relative error of each layer, from the input to the output",
            places=tuple(call.place for call in calls),
            curves=visible_curves,
        )
    entries = sorted(
        (
            _spread(call, output)
            for call in calls
            for output in call.outputs
            if output.exponents and _layers.has_narrow_range(output.dtype_candidate)
        ),
        key=lambda entry: entry[0],
        reverse=True,
    )
    spreads = [spread for lost, spread in entries if lost[0] or lost[1] >= _LEAST_BELOW]
    if spreads:
        yield Spreads(
            title=(
                "Values that the candidate's dtype cannot hold, or only with fewer digits: those "
                "outside the shaded range, by power of two (worst layers first)"
            ),
            spreads=tuple(spreads),
        )
    if run.timings:
        yield Bars(
            title="Median latency of one call",
            bars=tuple(
                Bar(
                    label=side,
                    value=timing.latency,
                    text=f"{figure(timing.latency * _tables.MILLISECONDS)} ms",
                )
                for side, timing in run.timings.items()
            ),
        )


def _largest(call: LayerCall, side: Callable[[CheckedOutput], Metrics | None]) -> float | None:
    """Return the largest relative error of a call's outputs; infinite if one is not finite."""
    measured = [metrics for output in call.outputs if (metrics := side(output)) is not None]
    errors = [math.inf if metrics.overflow else metrics.relative for metrics in measured]
    return max((error for error in errors if error is not None), default=None)


def _spread(call: LayerCall, output: CheckedOutput) -> tuple[tuple[float, float], Spread]:
    """
    Return the shares of values above and below the range of the candidate's dtype, and the
    histogram.
    """
    dtype, counts = output.dtype_candidate, output.exponents or ()
    low, high = NORMAL_EXPONENTS.get(dtype, NORMAL_EXPONENTS["float32"])
    counted = sum(count for _, count in counts)
    total = output.accumulated.elements if output.accumulated is not None else counted
    above = sum(count for exponent, count in counts if exponent > high) / total
    below = sum(count for exponent, count in counts if exponent < low) / total
    words = [
        f"{share(portion)} {side} the normal range"
        for side, portion in (("above", above), ("below", below))
        if portion
    ]
    return (above, below), Spread(
        label=call.place,
        text=": ".join([dtype, ", ".join(words)] if words else [dtype]),
        counts=counts,
        normal=(low, high),
        tone=Tone.BAD if above else Tone.HALF if dtype in HALVES else Tone.PLAIN,
    )
