"""
The result of a check: the compared models, the devices, the inputs, and the runs. A run includes
missing kernels, timings, and the rewrite of a graph by TensorFlow's automatic mixed precision.
"""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  # for the codec
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from policytool.numerics.check_results.verdicts import Answer, Open, worst
from policytool.releases.policy import GLOBAL_SOURCE

if TYPE_CHECKING:
    from policytool.migration.planning.options import Options
    from policytool.model.model import Layer
    from policytool.numerics.check_results.gradients import Gradients
    from policytool.numerics.check_results.metrics import CheckedOutput, LayerCall
    from policytool.numerics.check_results.verdicts import (
        Advice,
        CheckVerdict,
        Origin,
        OutputAnswer,
    )


class InputKind(StrEnum):
    """The source of inputs."""

    GIVEN = "given"
    """The user specifies them (``--inputs``)."""

    SYNTHETIC = "synthetic"
    """Random values, in the range that the layers that receive them accept."""


class ExtraBatch(StrEnum):
    """Synthetic batches that are not random."""

    CONSTANT = "constant"
    """All values are the same positive number."""

    EDGES = "edges"
    """All values are the lowest or the highest value of the range of the input."""


class CheckInput(Struct, frozen=True, kw_only=True):
    """One input of the model, or of a signature."""

    name: str
    shape: tuple[int | None, ...] | None
    """
    The shape with the batch first; a dimension is None if it differs between batches. None if the
    shape is unknown.
    """

    dtype: str
    how: str
    """
    The source of the values, in a few words: how they were drawn, or their name in the user's file.
    """

    range: tuple[float, float] | None = None
    """The range of the drawn values; None for text, and for the user's inputs."""


class OverflowProbe(Struct, frozen=True, kw_only=True):
    """The result of runs with larger inputs: synthetic floats, all multiplied by a factor."""

    factor: float | None
    """The smallest tried factor that overflows float16; None if no factor does."""

    finite_to: float
    """The largest tried factor that does not overflow."""

    path: str | None
    """The first layer that overflows; None if no layer does."""

    class_name: str | None


class CheckInputs(Struct, frozen=True, kw_only=True):
    """All inputs of a run."""

    kind: InputKind
    seed: int | None
    """The seed of the random values; None for the user's inputs."""

    batches: int
    batch_size: int
    inputs: tuple[CheckInput, ...]
    extra: tuple[ExtraBatch, ...] = ()
    """The extra batches; ``batches`` includes their number."""

    notes: tuple[str, ...] = ()
    """
    Notes on the inputs: a batch size that the model does not support, batches that were left out,
    or NaN in the user's arrays.
    """

    layer_rows: int | None = None
    """
    The number of rows in which layers were compared; None for all. Outputs are compared in all
    rows.
    """


_WIDE: Final = frozenset({"float32", "float64", GLOBAL_SOURCE})


class CheckSide(Struct, frozen=True, kw_only=True):
    """The reference or the candidate."""

    path: str
    """The file, as reports show it."""

    policy: str | None
    """
    The policy that the check set for the layers; None if they kept those of the file.
    """

    policies: Mapping[str, int]
    """The number of layers that compute, without input layers and models, with each policy."""

    float32_layers: tuple[str, ...] = ()
    """Of these, the layers that compute in float32 although ``policy`` computes in 16 bits."""

    kept: Mapping[str, str] = field(default_factory=dict)
    """Layers that do not follow ``policy``, with the reason."""

    library: str = ""
    """The library that loaded the file, such as ``tf_keras 2.21.0``."""

    backend: str = "tensorflow"
    """The backend of Keras that ran the model."""

    written_with: str | None = None
    """The backend that wrote the file; None if the file does not record it."""

    weights: str = "file"
    """The source of the weights: ``file``, or ``random`` for an architecture without weights."""

    dequantized: tuple[str, ...] = ()
    """
    The quantization modes, such as ``int8``, of layers that compute dequantized in the reference.
    """


class CheckRun(Struct, frozen=True, kw_only=True):
    """The measurements on one device, for the call of the model or for one signature."""

    device: TensorFlowDevice
    signature: str | None
    """The name of the signature; None for the call of the model."""

    inputs: CheckInputs
    calls: tuple[LayerCall, ...]
    """
    All calls of layers, in the order in which they end: inner calls before the calls that contain
    them, and the model last.
    """

    outputs: tuple[CheckedOutput, ...]
    verdict: CheckVerdict
    """Whether rounding explains the errors."""

    answers: tuple[OutputAnswer, ...] = ()
    """Whether the candidate is safe, according to each output."""

    rewrite: GraphRewrite | None = None
    """
    The changes by TensorFlow's automatic mixed precision; None unless the model ran as a graph.
    """

    fallbacks: tuple[MissingKernel, ...] = ()
    """Ops that run on the CPU, because the device has no kernel for them."""

    missing: tuple[MissingKernel, ...] = ()
    """
    Ops of the candidate that have no kernel for their dtype. If there are any, nothing was run.
    """

    gradients: Gradients | None = None
    timings: Mapping[str, Timing] = field(default_factory=dict)
    """The timings of ``reference`` and ``candidate``."""

    unmatched: tuple[str, ...] = ()
    """Layers that only one of the two models calls."""

    origin: Origin | None = None
    """The cause of the error of a failed run; None if the run passes, or no cause is known."""

    aliases: tuple[str, ...] = ()
    """Other signatures with the same graph, which were not run."""

    random: tuple[str, ...] = ()
    """
    Layers that draw random numbers, which may differ between the candidate and the reference.
    """

    changed_weights: tuple[str, ...] | None = None
    """
    The layers whose weights differ from those of a recorded run; empty if a graph has other
    weights. None if no weights differ, or if it is not known.
    """

    overflow_probe: OverflowProbe | None = None
    """The result of larger inputs; None if they were not run, or if the plain inputs overflow."""

    @property
    def is_on_data(self) -> bool:
        """Whether the user specified the inputs."""
        return self.inputs.kind is InputKind.GIVEN

    @property
    def is_within_rounding(self) -> bool:
        """Whether an output was compared, and rounding explains all errors."""
        return self.is_equal_within_rounding and not self.verdict.is_inconclusive

    @property
    def is_equal_within_rounding(self) -> bool:
        """
        Whether rounding explains all errors, also if the outputs cannot show other differences.
        """
        return self.verdict.passed and not self.missing and self.measured is not Answer.NOT_SAFE

    @property
    def is_isolated(self) -> bool:
        """Whether layers also ran isolated from the rest of the model."""
        return any(output.isolated is not None for call in self.calls for output in call.outputs)

    @property
    def measured(self) -> Answer:
        """Whether the candidate is safe on these inputs, even if they are synthetic."""
        return worst(output_answer.answer for output_answer in self.answers)

    @property
    def answer(self) -> Answer:
        """
        Whether the candidate is safe; undecided for synthetic inputs, and for a rewrite that
        changed nothing.
        """
        is_test = self.is_on_data and not self.missing and not self.is_unchanged
        return self.measured if is_test else Answer.UNDECIDED

    @property
    def is_unchanged(self) -> bool:
        """Whether the rewrite of a graph changed nothing, so that the run tests no policy."""
        return self.rewrite is not None and self.rewrite.unchanged is not None

    @property
    def has_changes(self) -> bool:
        """Whether an output is not safe, or not safe for one of its possible kinds."""
        return any(
            output_answer.answer is Answer.NOT_SAFE or output_answer.why is Open.KINDS
            for output_answer in self.answers
        )

    @property
    def has_unexplained_error(self) -> bool:
        """
        Whether there is an error to explain: a sign that the candidate is not safe or, if the
        inputs cannot show that, an error that rounding does not explain.
        """
        if not self.is_on_data or any(
            output_answer.why in {Open.CONSTANT, Open.NOT_FINITE} for output_answer in self.answers
        ):
            return self.measured is Answer.NOT_SAFE or not self.verdict.passed
        return self.has_changes

    @property
    def holds(self) -> bool:
        """Whether no measurement shows a problem of the candidate."""
        if not self.is_on_data:
            return self.verdict.passed
        harmless = {None, Open.FEW, *([Open.CONSTANT] if self.verdict.passed else [])}
        return all(
            output_answer.answer is not Answer.NOT_SAFE and output_answer.why in harmless
            for output_answer in self.answers
        )


class CheckNote(Struct, frozen=True, kw_only=True):
    """Something to know about a check."""

    code: str
    message: str


class RecordedFile(Struct, frozen=True, kw_only=True):
    """The file of a recorded run."""

    file: str
    bytes: int
    rows: int
    calls: int


class Check(Struct, frozen=True, kw_only=True):
    """The result of a complete check."""

    reference: CheckSide
    candidate: CheckSide
    versions: Mapping[str, str]
    """The releases of TensorFlow and Keras."""

    runs: tuple[CheckRun, ...]
    notes: tuple[CheckNote, ...] = ()
    is_same_model: bool = False
    """
    Whether both sides are the same file with the same policies in all layers, so that the check
    tests nothing.
    """

    advice: Advice | None = None
    """The layers to keep in float32, so that the check passes; None if no layers were tried."""

    migration: Options | None = None
    """
    The options of ``migrate`` that write a candidate without a known problem: this candidate, or
    the one of the advice. None if there is no such candidate, or no file to write.
    """

    recording: RecordedFile | None = None
    """The file of this run; None if it was not recorded."""

    against: str | None = None
    """The file of the recorded run that is the reference; None if the reference ran too."""

    connected_layers: tuple[Layer, ...] = ()
    """The layers of the candidate with their inputs; empty if the file has no configs."""

    @property
    def is_recording(self) -> bool:
        """Whether one model ran, to be compared later."""
        return self.recording is not None and self.against is None

    @property
    def answer(self) -> Answer:
        """Whether the candidate is safe in every run."""
        if self.is_equal:
            return Answer.SAFE
        if self.differs_from_recording:
            return Answer.NOT_SAFE
        return worst(run.answer for run in self.runs)

    @property
    def is_equal(self) -> bool:
        """
        Whether no precision changes between two files, or since a recorded run, and the outputs
        differ by at most rounding. Then synthetic inputs are sufficient.
        """
        is_other = self.against is not None or self.reference.path != self.candidate.path
        return (
            is_other
            and self.keeps_precision
            and bool(self.runs)
            and all(
                run.is_equal_within_rounding if self.against is not None else run.is_within_rounding
                for run in self.runs
            )
        )

    @property
    def differs_from_recording(self) -> bool:
        """Whether rounding does not explain the difference from a recorded run."""
        return (
            self.against is not None
            and self.keeps_precision
            and any(not run.is_equal_within_rounding for run in self.runs)
        )

    @property
    def is_wide(self) -> bool:
        """Whether both models compute in float32 or float64."""
        sides = self.reference, self.candidate
        return all(side.policies and set(side.policies) <= _WIDE for side in sides)

    @property
    def keeps_precision(self) -> bool:
        """Whether the candidate does not compute in other dtypes than the reference."""
        is_same = self.reference.policies == self.candidate.policies
        return self.is_wide or (self.against is not None and is_same)

    @property
    def holds(self) -> bool:
        """Whether no measurement of any run shows a problem of the candidate."""
        return all(run.holds and not run.missing for run in self.runs)


class KeptScope(Struct, frozen=True, kw_only=True):
    """A scope of a graph, such as that of a layer, with ops that stay in float32."""

    scope: str
    ops: Mapping[str, int]
    """The number of these ops by type."""

    is_whole: bool
    """Whether no op in the scope was changed."""


class GraphRewrite(Struct, frozen=True, kw_only=True):
    """The changes of a TensorFlow pass in the graph of a signature."""

    option: str
    """
    The name of the pass in TensorFlow's RewriterConfig, such as
    ``auto_mixed_precision_onednn_bfloat16``.
    """

    said: str
    """The description of the pass, with the pass that it emulates if it is an emulation."""

    ops: int
    """The number of ops that the pass changed to 16 bits, including ops in functions of loops."""

    total: int
    """The number of float32 ops before, without ops that pass on their inputs unchanged."""

    casts: int
    """The number of added casts."""

    narrow_before: int
    """The number of 16-bit ops before. If there are any, the reference is not in float32."""

    by_type: Mapping[str, int]
    """The number of changed ops by type."""

    kept: tuple[KeptScope, ...] = ()
    """The scopes with ops that stay in float32, in the order of the graph."""

    unchanged: str | None
    """
    Why the pass changed nothing, as a sentence; None if it changed the graph. A run of an unchanged
    graph does not test the policy.
    """

    @property
    def dtype(self) -> str:
        """The 16-bit dtype to which the pass converts ops."""
        return "bfloat16" if self.option.endswith(("bfloat16", "_mkl")) else "float16"


class TensorFlowDevice(Struct, frozen=True, kw_only=True):
    """A device that the backend detects. Properties that it does not report are None."""

    name: str
    """The value of ``--device``: ``cpu:0`` or ``gpu:0``."""

    kind: str
    """``cpu`` or ``gpu``."""

    model: str | None
    """The product name."""

    compute_capability: str | None
    """The compute capability of an NVIDIA GPU, such as ``9.0``."""

    memory: int | None
    """The total memory in bytes."""

    driver: str | None
    """The version of the GPU driver."""

    cuda: str | None
    """The version of CUDA that TensorFlow was built for."""

    cudnn: str | None

    matrix_precision: str | None = None
    """The setting of the backend for products of float32 matrices, with its name."""


class MissingKernel(Struct, frozen=True, kw_only=True):
    """An op of the traced graph for which a device has no kernel."""

    op: str
    """
    The name in the graph. For an op in a function, the name of the op that calls the function comes
    first.
    """

    type: str
    """The type of the op, such as ``MaxPool3D``."""

    dtype: str | None
    """The dtype that no kernel supports, or the dtype of the op if no single dtype is the cause."""

    layer: str | None
    """The path of the layer that contains the op."""

    elsewhere: bool
    """Whether the op runs on the CPU instead; otherwise, the graph cannot run."""

    in_float32: bool
    """Whether the device has a kernel for the op in float32."""


class Timing(Struct, frozen=True, kw_only=True):
    """The time and memory of a model's calls on one batch."""

    latency: float
    """The median time of a call in seconds."""

    spread: tuple[float, float]
    """The shortest and the longest time of a call in seconds."""

    throughput: float
    """Examples per second, at the median time."""

    peak_memory: int | None
    """
    The maximum size of tensors during a call in bytes, without those that existed before; None if
    the allocator of the device does not count them.

    On a CPU, tensors of less than 256 KiB are not counted.
    """

    how: str | None
    """``device`` if the allocator of the device counted the memory; None without a count."""
