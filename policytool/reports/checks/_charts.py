"""
The charts of ``check``: errors along the model's depth, the range of each layer's values, and the
latency of both models.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from policytool.numerics.check_results.metrics import NORMAL_EXPONENTS
from policytool.releases.dtypes import HALVES
from policytool.reports.figures import figure, share
from policytool.reports.page import Bar, Bars, Curve, Curves, Spread, Spreads, Tone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from policytool.numerics.check_results.checks import CheckRun
    from policytool.numerics.check_results.layers import CheckedOutput, LayerCall
    from policytool.numerics.check_results.metrics import Metrics
    from policytool.reports.page import Chart

_MS: Final = 1000


def charts(run: CheckRun) -> Iterator[Chart]:
    """Yield the charts of what was measured."""
    calls = [call for call in run.calls if not call.is_model and call.outputs]
    curves = [
        Curve(label=label, values=tuple(_largest(call, side) for call in calls))
        for label, side in (
            ("isolated", lambda output: output.isolated),
            ("accumulated", lambda output: output.accumulated),
        )
    ]
    shown = tuple(curve for curve in curves if any(value is not None for value in curve.values))
    if shown:
        yield Curves(
            title="Relative error of each layer, from the input to the output",
            places=tuple(call.place for call in calls),
            curves=shown,
        )
    spreads = sorted(
        (_spread(call, output) for call in calls for output in call.outputs if output.exponents),
        key=lambda one: one[0],
        reverse=True,
    )
    if spreads:
        yield Spreads(
            title=(
                "Reference values by binary exponent, starting with the layers that have the "
                "most values outside the normal range of the candidate's dtype"
            ),
            spreads=tuple(spread for _, spread in spreads),
        )
    if run.timings:
        yield Bars(
            title="Median latency of one call",
            bars=tuple(
                Bar(label=side, value=timing.latency, text=f"{figure(timing.latency * _MS)} ms")
                for side, timing in run.timings.items()
            ),
        )


def _largest(call: LayerCall, side: Callable[[CheckedOutput], Metrics | None]) -> float | None:
    """Return the largest relative error of a call's outputs; infinite if one is not finite."""
    measured = [found for output in call.outputs if (found := side(output)) is not None]
    errors = [math.inf if found.overflow else found.relative for found in measured]
    return max((error for error in errors if error is not None), default=None)


def _spread(call: LayerCall, output: CheckedOutput) -> tuple[tuple[float, float], Spread]:
    """Return the shares above and below the range of the candidate's dtype, and the histogram."""
    dtype, counts = output.dtype_candidate, output.exponents or ()
    low, high = NORMAL_EXPONENTS.get(dtype, NORMAL_EXPONENTS["float32"])
    counted = sum(count for _, count in counts)
    total = output.accumulated.elements if output.accumulated is not None else counted
    above = sum(count for exponent, count in counts if exponent > high) / total
    below = sum(count for exponent, count in counts if exponent < low) / total
    words = [
        f"{share(found)} {side} the normal range"
        for side, found in (("above", above), ("below", below))
        if found
    ]
    return (above, below), Spread(
        label=call.place,
        text=": ".join([dtype, ", ".join(words)] if words else [dtype]),
        counts=counts,
        normal=(low, high),
        tone=Tone.BAD if above else Tone.HALF if dtype in HALVES else Tone.PLAIN,
    )
