"""
Where errors of a candidate come from: what enters each call, which calls made that, and how much of
a call's error its rounded inputs explain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import isolated_calls

if TYPE_CHECKING:
    from typing import Any, Sequence

    from .call_pairs import Row
    from .comparisons import Comparisons


class Trace:
    """What is known of one call besides its own result."""

    def __init__(self) -> None:
        self.entering: list[int] = []
        """The numbers of the comparisons of the tensors that enter it."""

        self.producers: list[int] = []
        """The numbers of the rows whose tensors it gets, directly or through code between them."""

        self.own: list[int | None] | None = None
        """
        For each output, the number of the comparison of both layers, called with the same rounded
        inputs; None where no input is rounded before the call.
        """

        self.rounding: list[int | None] | None = None
        """The same of the reference's layer, called with its inputs as they are and rounded."""


class Diagnosis:
    """The traces of a candidate's calls, in the graph that is being traced."""

    def __init__(self, tf: Any, comparisons: Comparisons) -> None:
        self.tf = tf
        self._comparisons = comparisons
        self._rows: dict[str, int] = {}
        """Tensors by name, with the row of the innermost call that made each."""

    def entering(self, row: Row) -> Trace:
        """Return the trace of a call's inputs, before the call is made."""
        trace = Trace()
        reference_inputs, candidate_inputs = (
            self._comparisons.tensors((call.args, call.kwargs))
            for call in (row.reference, row.candidate)
        )
        if len(reference_inputs) == len(candidate_inputs):
            numbers = (
                self._comparisons.number(reference, candidate)
                for reference, candidate in zip(reference_inputs, candidate_inputs)
                if reference is not candidate
                and reference.dtype.is_floating
                and candidate.dtype.is_floating
            )
            trace.entering = [number for number in numbers if number is not None]
        trace.producers = self._producers(candidate_inputs)
        return trace

    def made(self, row: Row, number: int) -> None:
        """Note that a row's call made its outputs."""
        for tensor in self._comparisons.tensors(row.candidate.outputs):
            self._rows.setdefault(tensor.name, number)

    def split(self, trace: Trace, row: Row, alone: Any) -> None:
        """
        Measure how much of the error of an isolated call, which gave ``alone``, is from the
        rounding of its inputs, and how much from the call itself.
        """
        rounded = isolated_calls.again_rounded(self.tf, row.reference, row.candidate)
        if rounded is not None:
            trace.rounding = self._comparisons.each(row.reference.outputs, rounded)
            trace.own = self._comparisons.each(rounded, alone)

    def _producers(self, tensors: Sequence[Any]) -> list[int]:
        """Return the rows whose outputs these tensors are, or are computed from."""
        row_numbers: set[int] = set()
        seen: set[Any] = set()
        pending = list(tensors)
        while pending:
            tensor = pending.pop()
            number = self._rows.get(tensor.name)
            if number is not None:
                row_numbers.add(number)
            elif tensor.op not in seen:
                seen.add(tensor.op)
                pending += tensor.op.inputs
        return sorted(row_numbers)
