"""The tables of outputs and layers: the errors between the tensors of both models, and remarks."""

from __future__ import annotations

import math
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from policytool.numerics.check_results.metrics import LARGEST_FINITE, NORMAL_EXPONENTS
from policytool.numerics.check_results.verdicts import JudgementSubject, Ruling, excess
from policytool.releases.dtypes import HALVES
from policytool.reports.page import Cell, Column, Fact, Sentence, Tone, fields_section
from policytool.reports.words import HEADROOM, decibels, figure, many, share
from policytool.support.grouping import group_pairs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from policytool.model.model import Layer
    from policytool.numerics.check_results.checks import CheckRun
    from policytool.numerics.check_results.metrics import CheckedOutput, LayerCall, Metrics
    from policytool.numerics.check_results.verdicts import Judgement
    from policytool.reports.layer_graph import LayerMark
    from policytool.reports.page import Graph, Section

    Judged = tuple[CheckedOutput, Judgement | None]
    """An output, and its judgement."""
    from collections.abc import Iterable

    from policytool.numerics.check_results.metrics import CheckedOutput


NUMBER: Final = 11
"""The maximum width of numbers in columns."""

ARROW: Final = " → "
"""The separator between a value of the reference and that of the candidate."""

_LEAST: Final = 0.001
"""The minimum shares of lost values that are reported."""


def measurements(output: CheckedOutput) -> list[Metrics]:
    """Return the measurements of an output of a call: the isolated one, then the accumulated."""
    return [metrics for metrics in (output.isolated, output.accumulated) if metrics is not None]


def overflow_reasons(largest_values: Iterable[float | None], dtype: str) -> Iterator[str]:
    """
    Yield the reason of an overflow, if the reference has numbers outside the range of its dtype.
    """
    largest = max((value for value in largest_values if value is not None), default=0.0)
    limit = LARGEST_FINITE.get(dtype, math.inf)
    if largest > limit:
        yield f"up to {figure(largest)} in the reference; {dtype} maximum {limit:,.5g}"


def has_narrow_range(dtype: str) -> bool:
    """Return whether a dtype has a smaller range than float32, as float16 does."""
    return dtype in NORMAL_EXPONENTS and NORMAL_EXPONENTS[dtype] != NORMAL_EXPONENTS["float32"]


def _first_measured(values: Iterable[float | None], default: float) -> float:
    return next((value for value in values if value is not None), default)


def remarks(output: CheckedOutput, *, far: bool) -> Iterator[str]:
    """
    Yield further remarks on one output of a call. They are from its isolated measurement if there
    is one, otherwise from the accumulated one.

    :param far: whether to include the two values that are farthest apart.
    """
    all_metrics = measurements(output)
    overflowing = next((metrics for metrics in all_metrics if metrics.overflow), None)
    if overflowing is not None:
        yield from _not_finite(overflowing)
        yield from overflow_reasons(
            (metrics.largest_reference for metrics in all_metrics), output.dtype_candidate
        )
    pair = next((metrics.pair for metrics in all_metrics if metrics.pair is not None), ())
    ends = [figure(value) for value in pair] if far and overflowing is None else []
    if len(set(ends)) > 1:
        yield ARROW.join(ends)
    for word, shares in (
        ("subnormal", [metrics.subnormal for metrics in all_metrics]),
        ("flushed", [metrics.flushed for metrics in all_metrics]),
    ):
        zero_share = _first_measured(shares, 0.0)
        if zero_share >= _LEAST:
            yield f"{share(zero_share)} {word}"
    headroom = _first_measured((metrics.headroom for metrics in all_metrics), HEADROOM)
    if headroom < HEADROOM and overflowing is None:
        yield f"headroom {figure(headroom)}x"
    differing = _first_measured((metrics.differing for metrics in all_metrics), 0)
    if differing:
        yield f"{differing:,} of {all_metrics[0].elements:,} values differ"


def _not_finite(metrics: Metrics) -> Iterator[str]:
    for word, counts in (("NaN", metrics.nan), ("Inf", metrics.infinite)):
        if counts is not None and counts[1] > counts[0]:
            yield f"{counts[1] - counts[0]:,} {word}"
    yield f"{share(metrics.overflow)} not finite"


def error(metrics: Metrics | None, *, missed: bool = False) -> Cell:
    """Return the error between two tensors; an empty cell if it was not measured."""
    if metrics is None:
        return Cell(text="")
    return (
        Cell(text="NaN/Inf", tone=Tone.BAD)
        if metrics.overflow
        else Cell(text=figure(metrics.relative), tone=Tone.BAD if missed else Tone.PLAIN)
    )


def ratio(metrics: Metrics | None) -> Cell:
    """Return the signal-to-noise ratio of two tensors."""
    return Cell(text="" if metrics is None or metrics.overflow else decibels(metrics.snr_db))


def tolerance_cell(judgement: Judgement | None) -> Cell:
    """Return the tolerance; empty if no value was compared with it."""
    if judgement is None or (judgement.error is None and not judgement.is_missed):
        return Cell(text="")
    return Cell(
        text=figure(judgement.tolerance), tone=Tone.PLAIN if judgement.is_missed else Tone.DIM
    )


def dtype(reference: str | None, candidate: str | None) -> Cell:
    """Return the candidate's dtype, after the reference's if they differ."""
    text = candidate or ""
    if reference is not None and reference != candidate:
        text = f"{reference}{ARROW.strip()}{text}"
    return Cell(text=text, tone=Tone.HALF if candidate in HALVES else Tone.PLAIN)


_LAYERS: Final = 10


class MeasuredCall(Struct, frozen=True, kw_only=True):
    """A call, and its judgement."""

    call: LayerCall
    judgement: Judgement | None
    mark: str = ""
    """The mark of the call: the origin of the error, or the first call with new NaN or infinity."""

    @property
    def worst(self) -> CheckedOutput | None:
        """The output with the largest error."""
        return max(
            self.call.outputs,
            key=lambda output: (_rank(output.isolated), _rank(output.accumulated)),
            default=None,
        )

    @property
    def isolated_error(self) -> Metrics | None:
        """The isolated error of the call."""
        return self.worst.isolated if self.worst is not None else None

    @property
    def accumulated_error(self) -> Metrics | None:
        """The accumulated error of the call."""
        return self.worst.accumulated if self.worst is not None else None

    @property
    def is_missed(self) -> bool:
        """Whether the call fails the check."""
        return self.judgement is not None and self.judgement.is_missed

    @property
    def order(self) -> tuple[bool, tuple[bool, float, float, float]]:
        """The sort key of the row; a marked row, and then the worst ones, have the largest keys."""
        return bool(self.mark), self.error_order

    @property
    def error_order(self) -> tuple[bool, float, float, float]:
        """The sort key of the row by its errors; the worst rows have the largest keys."""
        is_judged = self.judgement is not None and (
            self.is_missed or self.judgement.error is not None
        )
        above = excess(self.judgement) if is_judged and self.judgement is not None else 0.0
        return (
            self.is_missed,
            above,
            _rank(self.isolated_error),
            _rank(self.accumulated_error),
        )

    @property
    def is_exact(self) -> bool:
        """Whether the call has no error and no remarks."""
        return not (self.mark or any(self.error_order))


def _rank(metrics: Metrics | None) -> float:
    """Return the error of metrics for sorting; 0 for equal values and for missing measurements."""
    if metrics is None:
        return 0.0
    if metrics.overflow:
        return float("inf")
    return (
        metrics.relative
        if metrics.relative is not None
        else (metrics.differing or 0) / max(1, metrics.elements)
    )


def calls_by_error(run: CheckRun) -> list[MeasuredCall]:
    """
    Return every call with its judgement, the worst first; equally bad calls in the order of the
    model.
    """
    judgement_by_call = run.verdict.by_path(JudgementSubject.LAYER)
    first, mark = (
        (run.origin.path, "origin")
        if run.origin is not None
        else (run.verdict.first_not_finite, "first NaN or Inf")
    )
    calls = [
        MeasuredCall(
            call=call,
            judgement=judgement_by_call.get(call.place),
            mark=mark if call.place == first else "",
        )
        for call in run.calls
    ]
    return sorted(calls, key=lambda measured: measured.order, reverse=True)


_LARGE: Final = 0.5
"""The share of the largest error from which the graph marks the error of a layer as large."""

_LEGEND: Final = (
    Sentence(text="smaller error, or none"),
    Sentence(
        text=f"at least {share(_LARGE)} of the largest error, or headroom below {HEADROOM:g}x",
        tone=Tone.CAUTION,
    ),
    Sentence(text="new NaN or infinity, or an error that rounding does not explain", tone=Tone.BAD),
    Sentence(text="not measured", tone=Tone.DIM),
)
"""The colours of layers in the graph."""


def error_graph(run: CheckRun, layers: Sequence[Layer]) -> Graph | None:
    """Return the graph of the layers, coloured by error; None if no layer of it was measured."""
    from policytool.reports import layer_graph  # only HTML needs it

    calls = calls_by_error(run)
    calls_by_path = group_pairs((measured.call.path, measured) for measured in calls)
    errors = [_rank(measured.accumulated_error) for measured in calls]
    large = _LARGE * max(errors, default=0.0)

    def mark(layer: Layer) -> LayerMark:
        if layer.path not in calls_by_path:
            return layer_graph.LayerMark(text="", tone=Tone.DIM)
        worst = calls_by_path[layer.path][0]
        cells = [
            (column.title, cell(worst).text)
            for column, cell in _layer_fields([worst])
            if column.title not in {"layer", "class"}
        ]
        metrics = worst.accumulated_error or worst.isolated_error
        return layer_graph.LayerMark(
            text=error(metrics).text,
            value=_rank(metrics),
            tone=_error_tone(worst, large),
            details=tuple(Fact(label=label, text=text) for label, text in cells if text),
        )

    if not any(layer.path in calls_by_path for layer in layers):
        return None
    return layer_graph.layer_graph(
        "Layers by relative error, from input to output", layers, mark, _LEGEND
    )


def _error_tone(measured: MeasuredCall, large: float) -> Tone:
    metrics = measured.accumulated_error
    if measured.is_missed or _rank(metrics) == math.inf:
        return Tone.BAD
    headrooms = [
        metrics.headroom
        for output in measured.call.outputs
        for metrics in measurements(output)
        if metrics.headroom is not None
    ]
    is_narrow = min(headrooms, default=HEADROOM) < HEADROOM
    return Tone.CAUTION if is_narrow or 0 < large <= _rank(metrics) else Tone.PLAIN


def layer_section(run: CheckRun, *, everything: bool) -> Iterator[Section]:
    """Yield the table of layer calls: the relevant ones, or all with ``everything``."""
    measured_calls = [
        measured
        for measured in calls_by_error(run)
        if everything or measured.is_missed or not measured.call.is_model
    ]
    visible_calls = (
        measured_calls
        if everything
        else [measured for measured in measured_calls if not measured.is_exact][:_LAYERS]
    )
    if not visible_calls:
        return
    hidden_count, missed_count = (
        len(measured_calls) - len(visible_calls),
        sum(measured.is_missed for measured in measured_calls)
        - sum(measured.is_missed for measured in visible_calls),
    )
    first = visible_calls[0]
    is_worst = all(measured.error_order <= first.error_order for measured in visible_calls)
    yield fields_section(
        "layers, worst first" if is_worst else f"layers, {first.mark} first, then the worst",
        _layer_fields(visible_calls),
        visible_calls,
        [_hidden_calls_text(hidden_count, missed_count)] if hidden_count else [],
        attrgetter("is_missed"),
    )


def _hidden_calls_text(hidden_count: int, missed_count: int) -> str:
    """Return the number of calls that are not displayed."""
    too_far = (
        f", {missed_count:,} of which have larger errors than rounding explains"
        if missed_count
        else ""
    )
    return f"{many(hidden_count, 'more call')} not shown{too_far}; use -v to show all"


def _layer_fields(
    calls: Sequence[MeasuredCall],
) -> Iterator[tuple[Column, Callable[[MeasuredCall], Cell]]]:
    """Yield the columns with measurements, each with the function that makes its cells."""
    outputs = [measured.worst for measured in calls if measured.worst is not None]
    yield (
        Column(title="layer", minimum=20, is_name=True),
        lambda measured: Cell(
            text=measured.call.place, tone=Tone.BAD if measured.is_missed else Tone.PLAIN
        ),
    )
    yield (
        Column(title="class", minimum=18, priority=4, is_name=True, is_last=True),
        lambda measured: Cell(text=measured.call.class_name, tone=Tone.DIM),
    )
    yield Column(title="dtype", minimum=16, priority=3), _dtype
    if any(measured.isolated_error is not None for measured in calls):
        yield (
            Column(title="isolated", minimum=NUMBER),
            lambda measured: error(measured.isolated_error, missed=measured.is_missed),
        )
    yield (
        Column(title="accumulated", minimum=NUMBER),
        lambda measured: error(measured.accumulated_error),
    )
    yield (
        Column(title="SNR", minimum=NUMBER, priority=2),
        lambda measured: ratio(measured.isolated_error or measured.accumulated_error),
    )
    if any(measured.judgement is not None for measured in calls):
        yield (
            Column(title="expected", minimum=NUMBER),
            lambda measured: tolerance_cell(measured.judgement),
        )
    if any(output.tf32 is not None for output in outputs):
        yield (
            Column(title="TF32", minimum=NUMBER, priority=5),
            lambda measured: Cell(
                text=figure(measured.worst.tf32.relative)
                if measured.worst and measured.worst.tf32
                else "",
                tone=Tone.DIM,
            ),
        )
    yield (
        Column(title="details", minimum=16, priority=1, is_beneath=True),
        lambda measured: Cell(text="; ".join(_layer_remarks(measured))),
    )


def _dtype(measured: MeasuredCall) -> Cell:
    candidate = measured.call.compute_candidate or (
        measured.worst.dtype_candidate if measured.worst is not None else None
    )
    return dtype(measured.call.compute_reference, candidate)


def _layer_remarks(measured: MeasuredCall) -> Iterator[str]:
    if measured.mark:
        yield measured.mark
    if measured.worst is not None:
        yield from remarks(measured.worst, far=measured.is_missed or bool(measured.mark))


def output_section(run: CheckRun) -> Iterator[Section]:
    """Yield every output, in the order of the model."""
    if not run.outputs:
        return
    judgements = run.verdict.by_path(JudgementSubject.OUTPUT)
    judged_outputs = [(output, judgements.get(output.name or "")) for output in run.outputs]
    yield fields_section(
        "outputs", _output_fields(judged_outputs), judged_outputs, is_missed=_is_missed
    )


def _output_fields(judged: list[Judged]) -> Iterator[tuple[Column, Callable[[Judged], Cell]]]:
    """Yield the columns with measurements, each with the function that makes its cells."""
    yield (
        Column(title="output", minimum=14, is_name=True),
        lambda pair: Cell(
            text=pair[0].name or "output", tone=Tone.BAD if _is_missed(pair) else Tone.PLAIN
        ),
    )
    yield (
        Column(title="dtype", minimum=16, priority=3),
        lambda pair: dtype(pair[0].dtype_reference, pair[0].dtype_candidate),
    )
    yield (
        Column(title="error", minimum=NUMBER),
        lambda pair: error(pair[0].accumulated, missed=_is_missed(pair)),
    )
    yield Column(title="SNR", minimum=NUMBER, priority=2), lambda pair: ratio(pair[0].accumulated)
    yield (
        Column(title="max abs", minimum=NUMBER, priority=4),
        lambda pair: Cell(
            text=figure(pair[0].accumulated.max_abs) if pair[0].accumulated is not None else ""
        ),
    )
    yield Column(title="expected", minimum=NUMBER), lambda pair: tolerance_cell(pair[1])
    if any(output.tf32 is not None for output, _ in judged):
        yield (
            Column(title="TF32", minimum=NUMBER, priority=5),
            lambda pair: Cell(
                text=figure(pair[0].tf32.relative) if pair[0].tf32 is not None else "",
                tone=Tone.DIM,
            ),
        )
    yield (
        Column(title="details", minimum=16, priority=1, is_beneath=True),
        lambda pair: Cell(text=_output_remarks(pair)),
    )


def _is_missed(pair: Judged) -> bool:
    return pair[1] is not None and pair[1].is_missed


def _output_remarks(pair: Judged) -> str:
    output, judgement = pair
    kind = judgement.not_comparable if judgement is not None else None
    is_changed = judgement is not None and judgement.ruling is Ruling.CHANGED
    own_remarks = [
        *([f"not comparable: {kind.value}"] if kind is not None else []),
        *(["predictions change"] if is_changed else []),
    ]
    return "; ".join([*own_remarks, *remarks(output, far=_is_missed(pair))])
