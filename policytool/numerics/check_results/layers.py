"""What was measured of each call of a layer, and of the model's outputs."""

from __future__ import annotations

from dataclasses import dataclass

from policytool.numerics.check_results.metrics import Metrics  # noqa: TC001  # for the codec
from policytool.numerics.check_results.output_changes import OutputChanges  # noqa: TC001  # for the codec


@dataclass(frozen=True, kw_only=True, slots=True)
class CallTrace:
    """The place of a call in the candidate; other calls are given by their index in the run."""

    begun: int
    """How many calls began before it."""

    within: int | None
    """The call that it was made in; None for the model's own."""

    producers: tuple[int, ...]
    """The calls whose tensors it gets, directly or through code between them."""

    gets_nonfinite: bool
    """Whether the candidate's inputs have NaN or infinity where the reference's do not."""


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

    tf32: Metrics | None = None
    """
    The reference with TF32 against the reference without, from end to end; None where that was not
    measured.
    """

    own: Metrics | None = None
    """
    In a diagnosis: the candidate's layer against the reference's, both called with the reference's
    inputs as the candidate's layers round them; None where they are not rounded before the call.
    """

    rounding: Metrics | None = None
    """The same of the reference's layer, called with its inputs as they are and rounded."""

    activation: str | None = None
    """The last activation of one of the model's own outputs; None if its graph does not tell."""

    changes: OutputChanges | None = None
    """What became of the values of one of the model's own outputs."""

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

    weight_rounding: float = 0.0
    """
    The relative error that the rounding of quantised weights explains; 0 if both models have the
    same weights, or none are quantised.
    """

    is_model: bool
    outputs: tuple[CheckedOutput, ...]
    trace: CallTrace | None = None
    """None unless the run is a diagnosis."""

    @property
    def place(self) -> str:
        """The layer's path, with the number of the call where it is not the first."""
        return self.path if not self.number else f"{self.path} (call {self.number + 1})"
