"""
The other tables of ``check``: missing kernels, time and memory, gradients for several loss scales,
and the metric of the task.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.numerics.verdicts import loss_scales
from policytool.reports.page import Cell, Column, Row, Tone, table_section
from policytool.reports.words import bytes_words, figure, many, share
from policytool.support.grouping import group_pairs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from policytool.numerics.check_results.checks import CheckRun, MissingKernel, Timing
    from policytool.numerics.check_results.gradients import Gradients, Trial
    from policytool.numerics.check_results.metrics import Metrics, OutputMetric, TaskMetric
    from policytool.reports.page import Section


_OPS: Final = 10
"""The maximum number of listed kinds of ops."""

_STAYS: Final = "use --set 'LAYER=float32' for layers with a float32 kernel"
MILLISECONDS: Final = 1000


def kernels(run: CheckRun, *, everything: bool) -> Iterator[Section]:
    """Yield the ops without a kernel, and those that ran on the CPU instead, by layer."""
    if run.missing:
        yield _kernel_table("missing kernels", run.missing, everything=everything)
    if run.fallbacks:
        yield _kernel_table("on the CPU instead", run.fallbacks, everything=everything)


def _kernel_table(
    title: str, missing_kernels: Sequence[MissingKernel], *, everything: bool
) -> Section:
    """
    Return the table of ops without a kernel by layer; equal ops are one row with their number.
    """
    counts: dict[tuple[str, str, str, bool], int] = {}
    for kernel in missing_kernels:
        key = (
            kernel.layer if kernel.layer is not None else "",
            kernel.type,
            kernel.dtype or "",
            kernel.in_float32,
        )
        counts[key] = counts.get(key, 0) + 1
    visible_counts = list(counts.items()) if everything else list(counts.items())[:_OPS]
    rows = [
        Row(
            cells=(
                Cell(text=layer or "(no layer)", tone=Tone.PLAIN if layer else Tone.DIM),
                Cell(text=op if count == 1 else f"{count:,} {op}"),
                Cell(text=dtype, tone=Tone.HALF),
                Cell(text="yes" if in_float32 else "no"),
            )
        )
        for (layer, op, dtype, in_float32), count in visible_counts
    ]
    hidden_count = len(counts) - len(visible_counts)
    return table_section(
        title=title,
        columns=(
            Column(title="layer", minimum=18, is_name=True),
            Column(title="op", minimum=16),
            Column(title="dtype", minimum=8),
            Column(title="in float32", minimum=3),
        ),
        rows=tuple(rows),
        sentences=(
            *([f"{hidden_count:,} more not shown; use -v to show all"] if hidden_count else []),
            *([_STAYS] if any(kernel.in_float32 for kernel in missing_kernels) else []),
        ),
    )


def timing(run: CheckRun) -> Iterator[Section]:
    """Yield the time and memory of both models for a batch, and their ratios."""
    if not run.timings:
        return
    reference, candidate = run.timings["reference"], run.timings["candidate"]
    counted = "" if reference.peak_memory is not None else "; memory is not measured on this device"
    batch = f"latency is the median for one batch of {many(run.inputs.batch_size, 'example')}"
    yield table_section(
        title="timing",
        columns=tuple(
            Column(title=title, minimum=len(title))
            for title in ("", "latency", "shortest", "longest", "examples/s", "peak memory")
        ),
        rows=(
            _timing_cells("reference", reference),
            _timing_cells("candidate", candidate),
            _ratio(reference, candidate),
        ),
        sentences=(
            (
                f"{batch}; memory is the peak tensor memory during one call, excluding "
                f"weights{counted}"
            ),
        ),
    )


def _timing_cells(name: str, measured_timing: Timing) -> Row:
    seconds = (measured_timing.latency, *measured_timing.spread)
    memory = "" if measured_timing.peak_memory is None else bytes_words(measured_timing.peak_memory)
    return Row(
        cells=(
            Cell(text=name),
            *(Cell(text=_seconds(duration)) for duration in seconds),
            Cell(text=figure(measured_timing.throughput)),
            Cell(text=memory),
        )
    )


def _ratio(reference: Timing, candidate: Timing) -> Row:
    """Return the ratios of the candidate's numbers to the reference's."""
    tone = Tone.GOOD if candidate.latency < reference.latency else Tone.BAD
    ratios = (
        Cell(text=_times(candidate.latency, reference.latency), tone=tone),
        Cell(text=""),
        Cell(text=""),
    )
    rate = Cell(text=_times(candidate.throughput, reference.throughput), tone=tone)
    memory = Cell(text=_times(candidate.peak_memory, reference.peak_memory))
    return Row(cells=(Cell(text="candidate / reference"), *ratios, rate, memory))


def _times(value: float | None, of: float | None) -> str:
    """Return the ratio of two numbers as text; empty if one of them is unknown."""
    return f"{figure(value / of)}x" if value is not None and of else ""


def _seconds(value: float) -> str:
    return f"{figure(value)} s" if value >= 1 else f"{figure(MILLISECONDS * value)} ms"


_SCALE_WIDTH: Final = 10
_VARIABLES: Final = 5
"""The maximum number of listed variables; those with the largest losses are first."""


def gradient_sections(gradients: Gradients) -> Iterator[Section]:
    """
    Yield the lost shares of all gradients for each loss scale, and the variables with the largest
    losses.
    """
    scales = _scales(gradients)
    titles = ("scale", "underflow", "overflow", "subnormal", "error", "loss")
    yield table_section(
        title="gradients",
        columns=(
            Column(title="loss scaling", minimum=17),
            *(Column(title=title, minimum=_SCALE_WIDTH) for title in titles),
        ),
        rows=tuple(Row(cells=_scale_cells(label, trial)) for label, trial in scales),
        sentences=tuple(text for text in loss_scales.loss_scale_decision(gradients).sentences),
    )
    if scales:
        yield from _variables(gradients, scales)


def _scales(gradients: Gradients) -> list[tuple[str, Trial]]:
    """
    Return the trials without a scale, with the recorded one and with a dynamic one, in that order,
    each scale once.
    """
    labels = group_pairs(
        (
            (1.0, "none"),
            (gradients.recorded_scale, "recorded"),
            (gradients.dynamic.scale, "dynamic"),
        )
    )
    trials = [
        (", ".join(names), gradients.at(scale))
        for scale, names in labels.items()
        if scale is not None
    ]
    return [(label, trial) for label, trial in trials if trial is not None]


def _number(scale: float) -> str:
    """Return a scale as text: powers of two below 1 are fractions."""
    return f"{scale:,.0f}" if scale >= 1 else f"1/{1 / scale:,.0f}"


_LEAST_UNDERFLOW: Final = 0.01
"""The minimum share of gradients that become zero that is emphasized."""


def _scale_cells(label: str, trial: Trial) -> tuple[Cell, ...]:
    total = trial.total
    is_lossy = total.underflow_share >= _LEAST_UNDERFLOW
    tone = Tone.BAD if total.overflow else Tone.CAUTION if is_lossy else Tone.PLAIN
    return (
        Cell(text=label),
        Cell(text=_number(trial.scale)),
        Cell(text=share(total.underflow_share), tone=tone if total.underflow else Tone.PLAIN),
        Cell(text=share(total.overflow_share), tone=tone if total.overflow else Tone.PLAIN),
        Cell(text=share(total.subnormal_share)),
        Cell(text=figure(total.relative_error)),
        Cell(text=figure(trial.loss)),
    )


def _variables(gradients: Gradients, scales: list[tuple[str, Trial]]) -> Iterator[Section]:
    """
    Yield the variables that lose elements, each with the share of its gradient that is lost under
    each scale.
    """
    first = scales[0][1].variables
    order = sorted(
        range(len(first)),
        key=lambda place: (-(first[place].overflow_share + first[place].underflow_share), place),
    )
    lossy = [
        place
        for place in order
        if any(
            trial.variables[place].underflow or trial.variables[place].overflow
            for _, trial in scales
        )
    ]
    if not lossy:
        return
    rows = [
        Row(
            cells=(
                Cell(text=gradients.variables[place].path),
                Cell(text=gradients.variables[place].flow, tone=Tone.DIM),
                *(Cell(text=_lost_shares(trial, place)) for _, trial in scales),
            )
        )
        for place in lossy[:_VARIABLES]
    ]
    hidden_count = len(lossy) - len(rows)
    yield table_section(
        title="lost elements by variable",
        columns=(
            Column(title="variable", minimum=18, is_name=True),
            Column(title="dtype", minimum=8),
            *(Column(title=label, minimum=9) for label, _ in scales),
        ),
        rows=tuple(rows),
        sentences=(f"{many(hidden_count, 'more variable')} with lost elements",)
        if hidden_count
        else (),
    )


def _lost_shares(trial: Trial, place: int) -> str:
    """Return the share of a gradient that underflows, and the share that overflows if any does."""
    variable = trial.variables[place]
    overflow_text = f"{share(variable.overflow_share)} over" if variable.overflow else ""
    underflow_text = (
        share(variable.underflow_share) if variable.underflow or not overflow_text else ""
    )
    return ", ".join(part for part in (underflow_text, overflow_text) if part)


_METRIC_WIDTH: Final = 9
_DIGITS: Final = 5


def metric_sentence(task_metric: TaskMetric) -> str:
    """Return the change of the metric in the output with the largest deterioration."""
    worst = task_metric.worst
    of_output = f" of output {worst.output}" if len(task_metric.outputs) > 1 else ""
    text = change_words(f"metric {task_metric.name}{of_output}", worst)
    if worst.drop is None or worst.drop <= 0:
        return text
    direction_words = "" if task_metric.higher_is_better else "; lower is better"
    return f"{text} (allowed {figure(worst.max_drop)}{direction_words})"


def change_words(name: str, output_metric: OutputMetric) -> str:
    """Return the change of the metric of an output."""
    ends = (
        f"from {metric_value(output_metric.reference)} to {metric_value(output_metric.candidate)}"
    )
    if output_metric.drop is None:
        return f"{name} cannot be compared: it changes {ends}"
    if not output_metric.drop:
        return f"{name} is {metric_value(output_metric.reference)} in both models"
    if output_metric.drop < 0:
        return f"{name} gets better, {ends}"
    return f"{name} gets worse by {figure(output_metric.drop)}, {ends}"


def metric_section(run: CheckRun) -> Iterator[Section]:
    """Yield the metric of each output that has labels."""
    task_metric = run.verdict.metric
    if task_metric is None:
        return
    better_direction = "higher" if task_metric.higher_is_better else "lower"
    empty = {
        (output.name, side)
        for output in run.outputs
        if output.accumulated is not None
        for side in range(2)
        if _is_nowhere_finite(output.accumulated, side)
    }
    yield table_section(
        f"metric {task_metric.name}",
        (
            Column(title="output", minimum=14, is_name=True),
            *(
                Column(title=title, minimum=_METRIC_WIDTH)
                for title in ("reference", "candidate", "drop", "allowed")
            ),
        ),
        [
            _metric_row(output_metric, [(output_metric.output, side) in empty for side in range(2)])
            for output_metric in task_metric.outputs
        ],
        [
            f"{better_direction} values are better",
            *(["n/a: all values of the output are NaN or infinite"] if empty else []),
        ],
    )


def _is_nowhere_finite(metrics: Metrics, side: int) -> bool:
    """Return whether no value is finite in the reference (0) or in the candidate (1)."""
    counts = [pair[side] for pair in (metrics.nan, metrics.infinite) if pair is not None]
    return 0 < metrics.elements <= sum(counts)


def _metric_row(output_metric: OutputMetric, is_empty: Sequence[bool]) -> Row:
    """
    Return the metric of an output.

    :param is_empty: whether the output has no finite value in the reference and in the candidate
    """
    tone = Tone.PLAIN if output_metric.passed else Tone.BAD
    reference, candidate = (
        "n/a" if nowhere_finite else metric_value(value)
        for value, nowhere_finite in zip(
            (output_metric.reference, output_metric.candidate), is_empty, strict=True
        )
    )
    return Row(
        cells=(
            Cell(text=output_metric.output or "all", tone=tone),
            Cell(text=reference),
            Cell(text=candidate, tone=tone),
            Cell(text="n/a" if any(is_empty) else figure(output_metric.drop), tone=tone),
            Cell(
                text=figure(output_metric.max_drop),
                tone=Tone.DIM if output_metric.passed else Tone.PLAIN,
            ),
        ),
        is_missed=not output_metric.passed,
    )


def metric_value(number: float) -> str:
    """Return a metric with enough digits to show differences between models."""
    return f"{number:.{_DIGITS}g}"
