"""What there is to see of two tensors besides how far apart they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.releases.dtypes import HALVES
from policytool.reports.figures import HEADROOM, beyond, decibels, figure, share
from policytool.reports.page import Cell, Tone

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.numerics.check_results.layers import CheckedOutput
    from policytool.numerics.check_results.metrics import Metrics
    from policytool.numerics.check_results.verdicts import Judgement

NUMBER: Final = 11
"""Columns that no number needs more of."""

ARROW: Final = " → "
"""Between a value of the reference and that of the candidate."""

_LEAST: Final = 0.001
"""Shares of lost values from which on they are told."""


def remarks(output: CheckedOutput, *, far: bool) -> Iterator[str]:
    """
    Yield what else shows in one output of a call, measured by itself where that was done, and from
    end to end otherwise.

    :param far: whether the two values that are farthest apart are told.
    """
    alone, along = output.isolated, output.accumulated
    found = [one for one in (alone, along) if one is not None]
    spoiled = next((one for one in found if one.overflow), None)
    if spoiled is not None:
        yield from _not_finite(spoiled)
        yield from beyond([one.largest_reference for one in found], output.dtype_candidate)
    pair = next((one.pair for one in found if one.pair is not None), None)
    ends = [figure(value) for value in pair] if far and pair is not None and spoiled is None else []
    if len(set(ends)) > 1:
        yield ARROW.join(ends)
    for word, shares in (
        ("subnormal", [one.subnormal for one in found]),
        ("flushed", [one.flushed for one in found]),
    ):
        lost = next((one for one in shares if one is not None), 0.0)
        if lost >= _LEAST:
            yield f"{share(lost)} {word}"
    headroom = next((one.headroom for one in found if one.headroom is not None), HEADROOM)
    if headroom < HEADROOM and spoiled is None:
        yield f"headroom {figure(headroom)}x"
    differing = next((one.differing for one in found if one.differing is not None), 0)
    if differing:
        yield f"{differing:,} of {found[0].elements:,} values differ"


def _not_finite(found: Metrics) -> Iterator[str]:
    for word, counts in (("NaN", found.nan), ("Inf", found.infinite)):
        if counts is not None and counts[1] > counts[0]:
            yield f"{counts[1] - counts[0]:,} {word}"
    yield f"{share(found.overflow)} not finite"


def error(found: Metrics | None, *, missed: bool = False) -> Cell:
    """Return how far apart two tensors are; nothing where that was not measured."""
    if found is None:
        return Cell(text="")
    return (
        Cell(text="NaN/Inf", tone=Tone.BAD)
        if found.overflow
        else Cell(text=figure(found.relative), tone=Tone.BAD if missed else Tone.PLAIN)
    )


def ratio(found: Metrics | None) -> Cell:
    """Return the signal-to-noise ratio of two tensors."""
    return Cell(text="" if found is None or found.overflow else decibels(found.snr_db))


def tolerance_cell(judgement: Judgement | None) -> Cell:
    """Return the tolerance; nothing where nothing was held against it."""
    if judgement is None or (judgement.error is None and not judgement.is_missed):
        return Cell(text="")
    return Cell(
        text=figure(judgement.tolerance), tone=Tone.PLAIN if judgement.is_missed else Tone.DIM
    )


def dtype(reference: str | None, candidate: str | None) -> Cell:
    """Return the candidate's dtype, behind the reference's if they differ."""
    shown = candidate or ""
    if reference is not None and reference != candidate:
        shown = f"{reference}{ARROW.strip()}{shown}"
    return Cell(text=shown, tone=Tone.HALF if candidate in HALVES else Tone.PLAIN)
