"""The charts of ``check``: errors along the model's depth, and the latency of both models."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from policytool.reports.checks._figures import figure
from policytool.reports.page import Bar, Bars, Curve, Curves

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
    if run.timings:
        yield Bars(
            title="Latency of one call, the median",
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
