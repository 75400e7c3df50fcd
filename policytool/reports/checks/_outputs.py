"""What was measured of the model's outputs, or of a signature's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from policytool.numerics.check_results.verdicts import JudgementSubject
from policytool.reports.checks._shown import (
    NUMBER,
    dtype,
    error,
    ratio,
    remarks,
    tolerance_cell,
)
from policytool.reports.figures import figure
from policytool.reports.page import Cell, Column, Row, Tone, table_section

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from policytool.numerics.check_results.checks import CheckRun
    from policytool.numerics.check_results.metrics import CheckedOutput
    from policytool.numerics.check_results.verdicts import Judgement
    from policytool.reports.page import Section

    Judged = tuple[CheckedOutput, Judgement | None]
    """An output, and how it was judged."""


def output_section(run: CheckRun) -> Iterator[Section]:
    """Yield every output, in the order of the model."""
    if not run.outputs:
        return
    judgements = {
        judgement.path: judgement
        for judgement in run.verdict.judgements
        if judgement.about is JudgementSubject.OUTPUT
    }
    judged = [(output, judgements.get(output.name or "")) for output in run.outputs]
    fields = list(_output_fields(judged))
    yield table_section(
        "outputs",
        [column for column, _ in fields],
        [
            Row(cells=tuple(cell(pair) for _, cell in fields), is_missed=_is_missed(pair))
            for pair in judged
        ],
    )


def _output_fields(judged: list[Judged]) -> Iterator[tuple[Column, Callable[[Judged], Cell]]]:
    """
    Yield the columns, each with the function that makes its cells, without columns that have no
    measurement.
    """
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
    own = [
        *([f"not comparable: {kind.value}"] if kind is not None else []),
    ]
    return "; ".join([*own, *remarks(output, far=_is_missed(pair))])
