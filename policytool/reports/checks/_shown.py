"""What there is to see of two tensors besides how far apart they are."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from policytool.numerics.check_results.metrics import LARGEST_FINITE
from policytool.releases.dtypes import HALVES
from policytool.reports.figures import HEADROOM, decibels, figure, share
from policytool.reports.page import Cell, Tone

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from policytool.numerics.check_results.metrics import CheckedOutput, Metrics
    from policytool.numerics.check_results.verdicts import Judgement

NUMBER: Final = 11
"""Columns that no number needs more of."""

ARROW: Final = " → "
"""Between a value of the reference and that of the candidate."""

_LEAST: Final = 0.001
"""Shares of lost values from which on they are told."""


def measurements(output: CheckedOutput) -> list[Metrics]:
    """Return the measurements of an output of a call: the isolated one, then the accumulated."""
    return [metrics for metrics in (output.isolated, output.accumulated) if metrics is not None]


def overflow_reasons(largest_values: Iterable[float | None], dtype: str) -> Iterator[str]:
    """
    Yield why a tensor overflowed, if the reference has numbers outside the range of its dtype.
    """
    largest = max((value for value in largest_values if value is not None), default=0.0)
    limit = LARGEST_FINITE.get(dtype, math.inf)
    if largest > limit:
        yield f"up to {figure(largest)} in the reference; {dtype} maximum {limit:,.5g}"


def _first_measured(values: Iterable[float | None], default: float) -> float:
    return next((value for value in values if value is not None), default)


def remarks(output: CheckedOutput, *, far: bool) -> Iterator[str]:
    """
    Yield further remarks on one output of a call. They are from its isolated measurement if there
    is one, otherwise from the accumulated one.

    :param far: whether to include the two values that are farthest apart.
    """
    every = measurements(output)
    spoiled = next((metrics for metrics in every if metrics.overflow), None)
    if spoiled is not None:
        yield from _not_finite(spoiled)
        yield from overflow_reasons(
            (metrics.largest_reference for metrics in every), output.dtype_candidate
        )
    pair = next((metrics.pair for metrics in every if metrics.pair is not None), ())
    ends = [figure(value) for value in pair] if far and spoiled is None else []
    if len(set(ends)) > 1:
        yield ARROW.join(ends)
    for word, shares in (
        ("subnormal", [metrics.subnormal for metrics in every]),
        ("flushed", [metrics.flushed for metrics in every]),
    ):
        lost = _first_measured(shares, 0.0)
        if lost >= _LEAST:
            yield f"{share(lost)} {word}"
    headroom = _first_measured((metrics.headroom for metrics in every), HEADROOM)
    if headroom < HEADROOM and spoiled is None:
        yield f"headroom {figure(headroom)}x"
    differing = _first_measured((metrics.differing for metrics in every), 0)
    if differing:
        yield f"{differing:,} of {every[0].elements:,} values differ"


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
    """Return the tolerance; nothing where nothing was held against it."""
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
