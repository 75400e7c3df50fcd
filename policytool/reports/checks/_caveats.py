"""What a check leaves open: what stands between the reader and taking it for more than it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from policytool.numerics.check_results.checks import InputKind
from policytool.reports.checks._verdict import place
from policytool.support.shorten import join_first

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.numerics.check_results.checks import (
        Check,
        CheckInputs,
        CheckRun,
        CheckSide,
        TensorFlowDevice,
    )


def caveats(check: Check) -> list[str]:
    """Return the limits of the check, each with its run unless all runs have it."""
    caveats_by_run = [list(run_caveats(check, run)) for run in check.runs]
    shared = (
        [text for text in caveats_by_run[0] if all(text in other for other in caveats_by_run)]
        if caveats_by_run
        else []
    )
    own_ones = [
        f"{place(run)}: {text}"
        for run, texts in zip(check.runs, caveats_by_run, strict=True)
        for text in texts
        if text not in shared
    ]
    return [*shared, *own_ones]


def run_caveats(check: Check, run: CheckRun) -> Iterator[str]:
    """Yield what one run leaves open."""
    if run.rewrite is not None and run.rewrite.unchanged is not None:
        yield "the rewrite changed nothing, so this run does not test the policy"
    if run.random:
        yield (
            f"{join_first(run.random)} "
            f"{'generates' if len(run.random) == 1 else 'generate'} random numbers, which differ "
            "between the two models"
        )
    yield from _quantized(check)
    yield from _other_backends(check)
    if not run.missing:
        yield from input_caveats(run.inputs)
    lost = list(_nonfinite_sentences(run))
    if lost:
        yield (f"{join_first(lost)} are NaN or infinite in the reference and were not compared")
    yield from side_caveats(check.reference, check.candidate)
    if not run.missing:
        yield from device_caveats(run.device)


def input_caveats(inputs: CheckInputs) -> Iterator[str]:
    """Yield that inputs are not the user's."""
    if inputs.kind is InputKind.SYNTHETIC:
        yield f"inputs are synthetic (seed {inputs.seed}); results on real data may differ"


def side_caveats(*sides: CheckSide) -> Iterator[str]:
    """Yield that a model has no weights of its own."""
    if any(side.weights == "random" for side in sides):
        yield "weights are random because the file contains none"


def device_caveats(device: TensorFlowDevice) -> Iterator[str]:
    """Yield that results on other devices are not the same."""
    if device.kind == "cpu":
        yield "results were measured on a CPU; GPU kernels accumulate differently"


def _quantized(check: Check) -> Iterator[str]:
    """Yield what the reference is if the file is quantised, and that nothing was tested."""
    modes = check.reference.dequantized
    stored = [mode for mode in modes if mode != "float8"]
    if check.is_alike and not modes:
        yield "both models have the same policies, so this run does not test them"
    elif check.is_alike:
        yield (
            f"the {' and '.join(modes)} layers quantize only their weights, which are the same in "
            "both models, so this run does not test the quantization"
        )
    if stored:
        yield (
            f"the reference uses the dequantized weights of the {' and '.join(stored)} layers, so "
            "the error of quantizing the weights is not included; to include it, run policytool "
            f"check ORIGINAL {check.candidate.path}"
        )
    if "float8" in modes:
        yield (
            "the file stores the weights of float8 layers unquantized, and the reference uses them"
        )


def _other_backends(check: Check) -> Iterator[str]:
    """Yield that a model was written with another backend than the one that runs it."""
    for path in dict.fromkeys((check.reference.path, check.candidate.path)):
        side = next(
            compared_side
            for compared_side in (check.reference, check.candidate)
            if compared_side.path == path
        )
        if side.written_with not in (None, side.backend):
            yield (
                f"{side.path} was written with the {side.written_with} backend and ran with the "
                f"{side.backend} backend, whose kernels may round differently"
            )


def _nonfinite_sentences(run: CheckRun) -> Iterator[str]:
    """Yield, for each output, how many values of the reference are not finite."""
    for output in run.outputs:
        metrics = output.accumulated
        lost = (
            sum(counts[0] for counts in (metrics.nan, metrics.infinite) if counts is not None)
            if metrics is not None
            else 0
        )
        if metrics is not None and lost:
            yield f"{lost:,} of {metrics.elements:,} values of output {(output.name or '')}"
