"""What a check says, part by part, for any way to show it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from policytool.numerics.check_results.verdicts import JudgementSubject
from policytool.releases.dtypes import HALVES
from policytool.reports.checks import _devices, _gradients, _layers, _outputs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.numerics.check_results.checks import Check, CheckRun
    from policytool.reports.page import Section


def sections(run: CheckRun, *, everything: bool) -> Iterator[Section]:
    """Yield the parts of one run, the most important first."""
    yield from _devices.kernels(run, everything=everything)
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
    yield from dict.fromkeys([*_advice(check), *notes])


def _advice(check: Check) -> Iterator[str]:
    """Yield how the layer that is farthest off stays in float32, where its policy can be chosen."""
    if check.reference.path != check.candidate.path:
        return
    for run in check.runs:
        missed = [one.path for one in run.verdict.missed if one.about is JudgementSubject.LAYER]
        worst = run.verdict.first_not_finite or next(iter(missed), None)
        call = next(
            (
                call
                for call in run.calls
                if call.place == worst and call.compute_candidate in HALVES
            ),
            None,
        )
        if call is not None and run.rewrite is None:
            yield (
                f"use --set '{call.path}=float32' in check and migrate to keep {call.path} in "
                "float32"
            )
