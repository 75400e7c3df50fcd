"""What a check says, part by part, for any way to show it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from policytool.reports._layout import clean
from policytool.reports.checks import _devices, _gradients, _layers, _outputs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.measurement.checks import Check, Run
    from policytool.reports._layout import View
    from policytool.reports.checks._section import Section


def sections(run: Run, view: View, *, everything: bool) -> Iterator[Section]:
    """Yield the parts of one run, the most important first."""
    yield from _devices.kernels(run, everything=everything)
    yield from _outputs.outputs(run, view)
    yield from _layers.layers(run, view, everything=everything)
    if run.gradients is not None:
        yield from _gradients.sections(run.gradients)
    yield from _devices.timing(run)


def remarks(check: Check) -> Iterator[str]:
    """Yield what else is to be known, each once however many runs say it."""
    yield from dict.fromkeys([*(clean(note.message) for note in check.notes), *(clean(note) for run in check.runs for note in run.inputs.notes)])
