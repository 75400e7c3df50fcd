"""What was measured of the model's outputs, or of a signature's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from policytool.numerics.check_results.verdicts import JudgementSubject
from policytool.reports.checks._figures import figure, share
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
from policytool.reports.layout import Cell, Column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from policytool.numerics.check_results.checks import CheckRun
    from policytool.numerics.check_results.layers import CheckedOutput
    from policytool.numerics.check_results.verdicts import Judgement
    from policytool.reports.layout import View

    Judged = tuple[CheckedOutput, Judgement | None]
    """An output, and how it was judged."""


def outputs(run: CheckRun, view: View) -> Iterator[CheckSection]:
    """Yield every output, in the order of the model."""
    if not run.outputs:
        return
    judgements = {
        one.path: one for one in run.verdict.judgements if one.about is JudgementSubject.OUTPUT
    }
    judged = [(output, judgements.get(output.name or "")) for output in run.outputs]
    fields = list(_fields(judged, view))
    yield CheckSection(
        title="outputs",
        columns=tuple(column for column, _ in fields),
        rows=tuple(tuple(cell(one) for _, cell in fields) for one in judged),
        beneath={place: text for place, one in enumerate(judged) if (text := _remarks(one, view))}
        if view.width < WIDE
        else {},
    )


def _fields(judged: list[Judged], view: View) -> Iterator[tuple[Column, Callable[[Judged], Cell]]]:
    """
    Yield the columns, each with what makes its cells; those in which nothing would stand are left
    out.
    """
    wide = view.width >= WIDE
    yield (
        Column(title="  output", minimum=14, middle=True),
        lambda one: name_cell(one[0].name or "output", missed=_is_missed(one)),
    )
    yield (
        Column(title="dtype", minimum=16 if wide else 8),
        lambda one: dtype(one[0].dtype_reference, one[0].dtype_candidate, view),
    )
    yield (
        Column(title="error", minimum=NUMBER),
        lambda one: error(one[0].accumulated, missed=_is_missed(one)),
    )
    yield Column(title="SNR", minimum=NUMBER), lambda one: ratio(one[0].accumulated)
    yield (
        Column(title="max abs", minimum=NUMBER),
        lambda one: Cell(
            text=figure(one[0].accumulated.max_abs) if one[0].accumulated is not None else ""
        ),
    )
    yield Column(title="allowed", minimum=NUMBER), lambda one: tolerance_cell(one[1])
    if any(output.top_1 is not None for output, _ in judged):
        yield Column(title="top-1", minimum=7), lambda one: Cell(text=share(one[0].top_1))
    if any(output.tf32 is not None for output, _ in judged):
        yield (
            Column(title="TF32", minimum=NUMBER),
            lambda one: Cell(
                text=figure(one[0].tf32.relative) if one[0].tf32 is not None else "", style="dim"
            ),
        )
    if wide and any(_remarks(one, view) for one in judged):
        yield Column(title="shows", minimum=16), lambda one: Cell(text=_remarks(one, view))


def _is_missed(one: Judged) -> bool:
    return one[1] is not None and one[1].is_missed


def _remarks(one: Judged, view: View) -> str:
    return "; ".join(remarks(one[0], view, far=_is_missed(one)))
