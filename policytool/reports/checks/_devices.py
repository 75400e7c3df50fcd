"""
What the device had to say: kernels that it lacks, ops that ran elsewhere, and what the calls took
in time and memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.reports._words import bytes_words
from policytool.reports.figures import figure, many
from policytool.reports.page import Cell, Column, Row, Tone, table_section

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from policytool.numerics.check_results.checks import CheckRun, MissingKernel, Timing
    from policytool.reports.page import Section

_OPS: Final = 10
"""How many kinds of ops are shown."""

_STAYS: Final = "use --set 'LAYER=float32' for layers with a float32 kernel"
_MS: Final = 1000


def kernels(run: CheckRun, *, everything: bool) -> Iterator[Section]:
    """
    Yield the ops that no kernel was found for, and those that ran on the CPU instead, by layer.
    """
    if run.missing:
        yield _ops("missing kernels", run.missing, everything=everything)
    if run.fallbacks:
        yield _ops("on the CPU instead", run.fallbacks, everything=everything)


def _ops(title: str, missing_kernels: Sequence[MissingKernel], *, everything: bool) -> Section:
    """
    Return the table of ops without a kernel by layer; equal ops are one row with their number.
    """
    counts: dict[tuple[str, str, str, bool], int] = {}
    for kernel in missing_kernels:
        key = (
            kernel.layer if kernel.layer is not None else "",
            kernel.type,
            kernel.dtype or "",
            kernel.in_float32,
        )
        counts[key] = counts.get(key, 0) + 1
    visible_counts = list(counts.items()) if everything else list(counts.items())[:_OPS]
    rows = [
        Row(
            cells=(
                Cell(text=layer or "(no layer)", tone=Tone.PLAIN if layer else Tone.DIM),
                Cell(text=op if count == 1 else f"{count:,} {op}"),
                Cell(text=dtype, tone=Tone.HALF),
                Cell(text="yes" if in_float32 else "no"),
            )
        )
        for (layer, op, dtype, in_float32), count in visible_counts
    ]
    more = len(counts) - len(visible_counts)
    return table_section(
        title=title,
        columns=(
            Column(title="layer", minimum=18, is_name=True),
            Column(title="op", minimum=16),
            Column(title="dtype", minimum=8),
            Column(title="in float32", minimum=3),
        ),
        rows=tuple(rows),
        sentences=(
            *([f"{more:,} more not shown; use --all-layers to show all"] if more else []),
            *([_STAYS] if any(kernel.in_float32 for kernel in missing_kernels) else []),
        ),
    )


def timing(run: CheckRun) -> Iterator[Section]:
    """
    Yield what the two models took for a batch, and the candidate's share of what the reference
    took.
    """
    if not run.timings:
        return
    reference, candidate = run.timings["reference"], run.timings["candidate"]
    counted = "" if reference.peak_memory is not None else "; memory is not measured on this device"
    batch = f"latency is the median for one batch of {many(run.inputs.batch_size, 'example')}"
    yield table_section(
        title="timing",
        columns=tuple(
            Column(title=title, minimum=len(title))
            for title in ("", "latency", "shortest", "longest", "examples/s", "peak memory")
        ),
        rows=(
            _timing_cells("reference", reference),
            _timing_cells("candidate", candidate),
            _ratio(reference, candidate),
        ),
        sentences=(
            (
                f"{batch}; memory is the peak tensor memory during one call, excluding "
                f"weights{counted}"
            ),
        ),
    )


def _timing_cells(name: str, measured_timing: Timing) -> Row:
    times = (measured_timing.latency, *measured_timing.spread)
    memory = "" if measured_timing.peak_memory is None else bytes_words(measured_timing.peak_memory)
    return Row(
        cells=(
            Cell(text=name),
            *(Cell(text=_seconds(duration)) for duration in times),
            Cell(text=figure(measured_timing.throughput)),
            Cell(text=memory),
        )
    )


def _ratio(reference: Timing, candidate: Timing) -> Row:
    """Return the candidate's numbers over the reference's."""
    tone = Tone.GOOD if candidate.latency < reference.latency else Tone.BAD
    times = (
        Cell(text=_times(candidate.latency, reference.latency), tone=tone),
        Cell(text=""),
        Cell(text=""),
    )
    rate = Cell(text=_times(candidate.throughput, reference.throughput), tone=tone)
    memory = Cell(text=_times(candidate.peak_memory, reference.peak_memory))
    return Row(cells=(Cell(text="candidate / reference"), *times, rate, memory))


def _times(value: float | None, of: float | None) -> str:
    """Return how many times a number is another; nothing where one is not known."""
    return f"{figure(value / of)}x" if value is not None and of else ""


def _seconds(value: float) -> str:
    return f"{figure(value)} s" if value >= 1 else f"{figure(_MS * value)} ms"
