"""What a backward step gave, under each loss scale that people ask about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.numerics.verdicts import loss_scales
from policytool.reports.figures import figure, share
from policytool.reports.page import Cell, Column, Row, Tone, table_section

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.numerics.check_results.gradients import Gradients, Trial
    from policytool.reports.page import Section

_SCALE_WIDTH: Final = 10
_VARIABLES: Final = 5
"""How many variables are shown, those first that lose most without a loss scale."""


def gradient_sections(gradients: Gradients) -> Iterator[Section]:
    """
    Yield the losses of all gradients under each loss scale with the conclusions from them, and the
    variables that lose most.
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
        sentences=tuple(text for text in loss_scales.decision(gradients).sentences),
    )
    if scales:
        yield from _variables(gradients, scales)


def _scales(gradients: Gradients) -> list[tuple[str, Trial]]:
    """
    Return the trials without a scale, with the recorded one and with a dynamic one, in that order,
    each scale once.
    """
    labels: dict[float, list[str]] = {}
    for label, scale in (
        ("none", 1.0),
        ("recorded", gradients.recorded_scale),
        ("dynamic", gradients.dynamic.scale),
    ):
        if scale is not None:
            labels.setdefault(scale, []).append(label)
    tried = [(", ".join(names), gradients.at(scale)) for scale, names in labels.items()]
    return [(label, trial) for label, trial in tried if trial is not None]


def _number(scale: float) -> str:
    """Return a scale as people write it: powers of two below 1 as a fraction."""
    return f"{scale:,.0f}" if scale >= 1 else f"1/{1 / scale:,.0f}"


def _scale_cells(label: str, trial: Trial) -> tuple[Cell, ...]:
    total = trial.total
    lost = Tone.BAD if total.overflow else Tone.MIXED if total.underflow else Tone.PLAIN
    return (
        Cell(text=label),
        Cell(text=_number(trial.scale)),
        Cell(text=share(total.underflow_share), tone=lost if total.underflow else Tone.PLAIN),
        Cell(text=share(total.overflow_share), tone=lost if total.overflow else Tone.PLAIN),
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
    more = len(lossy) - len(rows)
    yield table_section(
        title="lost elements by variable",
        columns=(
            Column(title="variable", minimum=18, is_name=True),
            Column(title="dtype", minimum=8),
            *(Column(title=label, minimum=9) for label, _ in scales),
        ),
        rows=tuple(rows),
        sentences=(f"{more:,} more {'variables' if more > 1 else 'variable'} with lost elements",)
        if more
        else (),
    )


def _lost_shares(trial: Trial, place: int) -> str:
    """Return the share of a gradient that underflows, and the share that overflows if any does."""
    variable = trial.variables[place]
    over = f"{share(variable.overflow_share)} over" if variable.overflow else ""
    under = share(variable.underflow_share) if variable.underflow or not over else ""
    return ", ".join(part for part in (under, over) if part)
