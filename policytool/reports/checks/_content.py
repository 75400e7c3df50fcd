"""What a check says, part by part, for any way to show it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from policytool.reports.checks import _devices, _gradients, _layers, _metric, _outputs
from policytool.reports.checks._advice import advice

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.numerics.check_results.checks import Check, CheckRun
    from policytool.reports.page import Section


def sections(run: CheckRun, *, everything: bool) -> Iterator[Section]:
    """Yield the parts of one run, the most important first."""
    yield from _devices.kernels(run, everything=everything)
    yield from _metric.metric(run)
    yield from _outputs.outputs(run)
    yield from _layers.layers(run, everything=everything)
    if run.gradients is not None:
        yield from _gradients.sections(run.gradients)
    yield from _devices.timing(run)


def remarks(check: Check) -> Iterator[str]:
    """Yield what to do next, and what else is to be known, each once however many runs say it."""
    notes = [
        *(note.message for note in check.notes),
        *(note for run in check.runs for note in run.inputs.notes),
    ]
    yield from dict.fromkeys([*advice(check), *notes])
