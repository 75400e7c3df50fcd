"""What was measured of the layers, the worst first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from policytool.numerics.check_results.verdicts import JudgementSubject, excess
from policytool.reports.checks._figures import figure, many
from policytool.reports.checks._section import CheckSection
from policytool.reports.checks._shown import (
    NUMBER,
    WIDE,
    dtype,
    error,
    name_cell,
    ratio,
    remarks,
    tolerance_cell,
)
from policytool.reports.layout import Cell, Column, clean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from policytool.numerics.check_results.checks import CheckRun
    from policytool.numerics.check_results.layers import CheckedOutput, LayerCall
    from policytool.numerics.check_results.metrics import Metrics
    from policytool.numerics.check_results.verdicts import Judgement
    from policytool.reports.layout import View

_LAYERS: Final = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """A call, and how it was judged."""

    call: LayerCall
    judgement: Judgement | None
    is_first: bool
    """Whether it is the first in which the candidate makes NaN or infinity."""

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
            self.is_first,
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
    Return every call with how it was judged, the worst first; those alike in the order of the
    model.
    """
    judged = {
        one.path: one for one in run.verdict.judgements if one.about is JudgementSubject.LAYER
    }
    calls = [
        Measured(
            call=call,
            judgement=judged.get(call.place),
            is_first=call.place == run.verdict.first_not_finite,
        )
        for call in run.calls
    ]
    return sorted(calls, key=lambda one: one.order, reverse=True)


def layers(run: CheckRun, view: View, *, everything: bool) -> Iterator[CheckSection]:
    """Yield the calls of layers that matter, or every one."""
    found = [
        one for one in calls_by_error(run) if everything or one.is_missed or not one.call.is_model
    ]
    shown = found if everything else [one for one in found if not one.is_exact][:_LAYERS]
    if not shown:
        return
    more, missed = (
        len(found) - len(shown),
        sum(one.is_missed for one in found) - sum(one.is_missed for one in shown),
    )
    fields = list(_fields(shown, view))
    beneath = (
        {place: _beneath(one, view) for place, one in enumerate(shown)} if view.width < WIDE else {}
    )
    yield CheckSection(
        title="layers, the worst first",
        columns=tuple(column for column, _ in fields),
        rows=tuple(tuple(cell(one) for _, cell in fields) for one in shown),
        beneath={place: text for place, text in beneath.items() if text},
        sentences=(_left(more, missed),) if more else (),
    )


def _left(more: int, missed: int) -> str:
    """Return how many calls are not shown."""
    too_far = f", {missed:,} of them above their tolerance" if missed else ""
    return f"and {many(more, 'further call')}{too_far}; --all-layers shows every one"


def _fields(
    shown: Sequence[Measured], view: View
) -> Iterator[tuple[Column, Callable[[Measured], Cell]]]:
    """
    Yield the columns, each with what makes its cells; those in which nothing would stand are left
    out.
    """
    wide = view.width >= WIDE
    outputs = [one.worst for one in shown if one.worst is not None]
    yield (
        Column(title="  layer", minimum=20, middle=True),
        lambda one: name_cell(one.call.place, missed=one.is_missed),
    )
    if wide:
        yield (
            Column(title="class", minimum=10),
            lambda one: Cell(text=clean(one.call.class_name), style="dim"),
        )
    yield Column(title="dtype", minimum=16 if wide else 8), lambda one: _dtype(one, view)
    if any(one.isolated_error is not None for one in shown):
        yield (
            Column(title="isolated", minimum=NUMBER),
            lambda one: error(one.isolated_error, missed=one.is_missed),
        )
    yield Column(title="accumulated", minimum=NUMBER), lambda one: error(one.accumulated_error)
    yield (
        Column(title="SNR", minimum=NUMBER),
        lambda one: ratio(one.isolated_error or one.accumulated_error),
    )
    if any(one.judgement is not None for one in shown):
        yield Column(title="allowed", minimum=NUMBER), lambda one: tolerance_cell(one.judgement)
    if any(output.tf32 is not None for output in outputs):
        yield (
            Column(title="TF32", minimum=NUMBER),
            lambda one: Cell(
                text=figure(one.worst.tf32.relative) if one.worst and one.worst.tf32 else "",
                style="dim",
            ),
        )
    if wide and any(any(_remarks(one, view)) for one in shown):
        yield (
            Column(title="shows", minimum=16),
            lambda one: Cell(text="; ".join(_remarks(one, view))),
        )


def _dtype(one: Measured, view: View) -> Cell:
    candidate = one.call.compute_candidate or (
        one.worst.dtype_candidate if one.worst is not None else None
    )
    return dtype(one.call.compute_reference, candidate, view)


def _beneath(one: Measured, view: View) -> str:
    """Return the class and what else shows, where anything does."""
    found = list(_remarks(one, view))
    return "; ".join([clean(one.call.class_name), *found]) if found or one.is_missed else ""


def _remarks(one: Measured, view: View) -> Iterator[str]:
    if one.is_first:
        yield "the first NaN or Inf"
    if one.worst is not None:
        yield from remarks(one.worst, view, far=one.is_missed or one.is_first)
