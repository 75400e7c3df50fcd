"""What was measured of each call of a layer, and of the model's outputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from policytool.numerics.check_results.metrics import Metrics


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckedOutput:
    """One tensor that a call gives, by the reference and by the candidate."""

    shape: tuple[int | None, ...]
    dtype_reference: str
    dtype_candidate: str
    accumulated: Metrics | None
    """
    How far it is from the reference's where both models run from end to end; None where it cannot
    be compared.
    """

    isolated: Metrics | None = None
    """
    The same where the candidate's layer gets the reference's inputs; None where that was not
    measured.
    """

    name: str | None = None
    """The output's name, of the model's own outputs."""

    top_1: float | None = None
    """
    The share of rows whose largest value stands at the same place; None where the output is not one
    value for each class.
    """

    tf32: Metrics | None = None
    """
    The reference with TF32 against the reference without, from end to end; None where that was not
    measured.
    """

    exponents: tuple[tuple[int, int], ...] | None = None
    """
    The reference's binary exponents in ascending order, each with its number of values that are
    normal in float32; None if they were not counted.
    """


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerCall:
    """One call of a layer."""

    path: str
    number: int
    """How often the layer was called before: a shared layer has several calls."""

    class_name: str
    compute_reference: str | None
    compute_candidate: str | None
    inputs: tuple[str, ...]
    """The float dtypes of what the candidate's layer was called with."""

    depth: int
    """The terms that its reductions add up, one reduction after the other."""

    children: int
    """How many calls of other layers were made within it."""

    within: tuple[str, ...] = ()
    """
    What it and the layers in it compute in, on either side: dtypes, and modes of quantisation such
    as ``int8``.
    """

    is_model: bool
    outputs: tuple[CheckedOutput, ...]

    @property
    def place(self) -> str:
        """The layer's path, with the number of the call where it is not the first."""
        return self.path if not self.number else f"{self.path} (call {self.number + 1})"
