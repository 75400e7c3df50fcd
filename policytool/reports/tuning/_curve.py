"""The error against the share of layers that are converted, as a table and as a chart."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from policytool.reports.figures import figure, share
from policytool.reports.page import Cell, Column, Point, Profile, Row, Tone, table_section
from policytool.reports.tuning._verdict import (
    NOT_FINITE,
    allowed_error,
    is_error_only,
    largest_excess,
    limit_words,
    times,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from policytool.numerics.tuning.results import CurvePoint, Tuning
    from policytool.reports.page import Section

_ROWS: Final = 10
_LEAST: Final = 2
"""Points from which on there is a curve."""

_TITLE: Final = "error by share of converted layers"


def curve_section(tuning: Tuning, *, everything: bool) -> Iterator[Section]:
    """Yield the best trial for each number of converted layers."""
    points = tuning.curve
    if len(points) < _LEAST:
        return
    visible_points = points if everything else _chosen_rows(tuning, points)
    yield table_section(
        _TITLE,
        (
            Column(title="layers", minimum=10),
            Column(title="share", minimum=7),
            Column(title="largest error", minimum=13),
            Column(title="of the limit", minimum=12),
            Column(title="result", minimum=6, priority=1),
        ),
        [_row(tuning, point) for point in visible_points],
        ["the best trial for each number of layers; above 1x, the objective is not met"],
    )


def curve_chart(tuning: Tuning) -> Iterator[Profile]:
    """Yield the same as a chart: the error, or what is used of the limit if more is asked for."""
    points = tuning.curve
    if len(points) < _LEAST:
        return
    allowed = allowed_error(tuning.objective) if is_error_only(tuning.objective) else None
    value = "Largest error of an output" if allowed is not None else "Multiple of the limit"
    yield Profile(
        title=f"{value} by share of converted layers",
        limit=1.0 if allowed is None else allowed,
        limit_text=f"limit: {times(1.0) if allowed is None else figure(allowed)}",
        points=tuple(
            Point(
                share=point.share,
                value=_value(tuning, point, allowed),
                text=_point_text(tuning, point),
                is_missed=_is_missed(tuning, point),
                is_chosen=_is_chosen(tuning, point),
            )
            for point in points
        ),
    )


def _value(tuning: Tuning, point: CurvePoint, allowed: float | None) -> float:
    if allowed is None:
        return _point_excess(tuning, point)
    return math.inf if point.error is None else point.error


def _point_text(tuning: Tuning, point: CurvePoint) -> str:
    error = NOT_FINITE if point.error is None else figure(point.error)
    return f"{_count(tuning, point)} layers ({share(point.share)}): largest error {error}"


def _row(tuning: Tuning, point: CurvePoint) -> Row:
    is_missed = _is_missed(tuning, point)
    tone = Tone.BAD if is_missed else Tone.PLAIN
    error = NOT_FINITE if point.error is None else figure(point.error)
    chosen = "chosen" if _is_chosen(tuning, point) else ""
    used = _point_excess(tuning, point)
    return Row(
        cells=(
            Cell(text=_count(tuning, point)),
            Cell(text=share(point.share)),
            Cell(text=error, tone=tone),
            Cell(text=limit_words(used, point.error), tone=tone),
            Cell(text=chosen, tone=Tone.GOOD),
        ),
        is_missed=is_missed,
    )


def _is_missed(tuning: Tuning, point: CurvePoint) -> bool:
    return _point_excess(tuning, point) > 1


def _point_excess(tuning: Tuning, point: CurvePoint) -> float:
    """Return how many times the limit a point uses; of the chosen set, on the other inputs too."""
    best = tuning.best
    if best is not None and _is_chosen(tuning, point):
        return largest_excess(best)
    return point.excess


def _count(tuning: Tuning, point: CurvePoint) -> str:
    return f"{point.converted:,} of {len(tuning.layers):,}"


def _is_chosen(tuning: Tuning, point: CurvePoint) -> bool:
    return tuning.best is not None and point.converted == len(tuning.layers) - len(tuning.best.kept)


def _chosen_rows(tuning: Tuning, points: Sequence[CurvePoint]) -> list[CurvePoint]:
    """Return the points that are shown: the ends, the chosen one and its neighbours, and others."""
    if len(points) <= _ROWS:
        return list(points)
    last = len(points) - 1
    chosen = [at for at, point in enumerate(points) if _is_chosen(tuning, point)]
    near = [other for at in chosen for other in (at, at + 1, at - 1) if 0 <= other <= last]
    spread = [round(step * last / (_ROWS - 1)) for step in range(_ROWS)]
    order = list(dict.fromkeys([0, last, *near, *spread]))
    return [points[at] for at in sorted(order[:_ROWS])]
