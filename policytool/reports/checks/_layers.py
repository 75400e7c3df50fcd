"""What was measured of the layers, worst first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from policytool.numerics.check_results.verdicts import JudgementSubject, excess
from policytool.reports.checks._shown import (
    NUMBER,
    dtype,
    error,
    ratio,
    remarks,
    tolerance_cell,
)
from policytool.reports.figures import figure, many
from policytool.reports.page import Cell, Column, Row, Tone, table_section

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from policytool.numerics.check_results.checks import CheckRun
    from policytool.numerics.check_results.metrics import CheckedOutput, LayerCall, Metrics
    from policytool.numerics.check_results.verdicts import Judgement
    from policytool.reports.page import Section

_LAYERS: Final = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """A call, and how it was judged."""

    call: LayerCall
    judgement: Judgement | None
    mark: str = ""
    """What it is: the origin, or else the first that makes NaN or infinity."""

    @property
    def worst(self) -> CheckedOutput | None:
        """The output that is farthest off."""
        return max(
            self.call.outputs,
            key=lambda output: (_rank(output.isolated), _rank(output.accumulated)),
            default=None,
        )

    @property
    def isolated_error(self) -> Metrics | None:
        """How far it is off by itself."""
        return self.worst.isolated if self.worst is not None else None

    @property
    def accumulated_error(self) -> Metrics | None:
        """How far it is off from end to end."""
        return self.worst.accumulated if self.worst is not None else None

    @property
    def is_missed(self) -> bool:
        """Whether it fails the check."""
        return self.judgement is not None and self.judgement.is_missed

    @property
    def order(self) -> tuple[bool, bool, float, float, float]:
        """What the worst have most of."""
        judged = self.judgement is not None and (self.is_missed or self.judgement.error is not None)
        above = excess(self.judgement) if judged and self.judgement is not None else 0.0
        return (
            bool(self.mark),
            self.is_missed,
            above,
            _rank(self.isolated_error),
            _rank(self.accumulated_error),
        )

    @property
    def is_exact(self) -> bool:
        """Whether there is nothing to tell of it."""
        return not any(self.order)


def _rank(metrics: Metrics | None) -> float:
    """Return how bad metrics are: 0 for what is equal and for what was not measured."""
    if metrics is None:
        return 0.0
    if metrics.overflow:
        return float("inf")
    return (
        metrics.relative
        if metrics.relative is not None
        else (metrics.differing or 0) / max(1, metrics.elements)
    )


def calls_by_error(run: CheckRun) -> list[Measured]:
    """
    Return every call with its judgement, the worst first; equally bad calls in the order of the
    model.
    """
    judged = {
        judgement.path: judgement
        for judgement in run.verdict.judgements
        if judgement.about is JudgementSubject.LAYER
    }
    first, mark = (
        (run.origin.path, "origin")
        if run.origin is not None
        else (run.verdict.first_not_finite, "first NaN or Inf")
    )
    calls = [
        Measured(
            call=call,
            judgement=judged.get(call.place),
            mark=mark if call.place == first else "",
        )
        for call in run.calls
    ]
    return sorted(calls, key=lambda measured: measured.order, reverse=True)


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
    more, missed = (
        len(measured_calls) - len(visible_calls),
        sum(measured.is_missed for measured in measured_calls)
        - sum(measured.is_missed for measured in visible_calls),
    )
    fields = list(_layer_fields(visible_calls))
    yield table_section(
        "layers, worst first",
        [column for column, _ in fields],
        [
            Row(cells=tuple(cell(measured) for _, cell in fields), is_missed=measured.is_missed)
            for measured in visible_calls
        ],
        [_left(more, missed)] if more else [],
    )


def _left(more: int, missed: int) -> str:
    """Return how many calls are not shown."""
    too_far = f", {missed:,} of which have larger errors than rounding explains" if missed else ""
    return f"{many(more, 'more call')} not shown{too_far}; use --all-layers to show all"


def _layer_fields(calls: Sequence[Measured]) -> Iterator[tuple[Column, Callable[[Measured], Cell]]]:
    """
    Yield the columns, each with the function that makes its cells, without columns that have no
    measurement.
    """
    outputs = [measured.worst for measured in calls if measured.worst is not None]
    yield (
        Column(title="layer", minimum=20, is_name=True),
        lambda measured: Cell(
            text=measured.call.place, tone=Tone.BAD if measured.is_missed else Tone.PLAIN
        ),
    )
    yield (
        Column(title="class", minimum=10, priority=4),
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


def _dtype(measured: Measured) -> Cell:
    candidate = measured.call.compute_candidate or (
        measured.worst.dtype_candidate if measured.worst is not None else None
    )
    return dtype(measured.call.compute_reference, candidate)


def _layer_remarks(measured: Measured) -> Iterator[str]:
    if measured.mark:
        yield measured.mark
    if measured.worst is not None:
        yield from remarks(measured.worst, far=measured.is_missed or bool(measured.mark))
