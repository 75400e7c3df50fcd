"""
The result of a check: the compared models, the devices, the inputs, and the runs. A run holds the
missing kernels, the timings and the rewrite of a graph by TensorFlow's own automatic mixed
precision.
"""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  # for the codec
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from policytool.numerics.check_results.verdicts import Answer, Open, worst

if TYPE_CHECKING:
    from policytool.migration.planning.options import Options
    from policytool.numerics.check_results.gradients import Gradients
    from policytool.numerics.check_results.metrics import CheckedOutput, LayerCall
    from policytool.numerics.check_results.verdicts import (
        Advice,
        CheckVerdict,
        Comparison,
        Origin,
        OutputAnswer,
    )


class InputKind(StrEnum):
    """Where inputs are from."""

    GIVEN = "given"
    """The user's own (``--inputs``)."""

    SYNTHETIC = "synthetic"
    """Drawn at random, in the range of what the layers that they come to take."""


class ExtraBatch(StrEnum):
    """Synthetic batches that are not random."""

    CONSTANT = "constant"
    """A positive value everywhere."""

    EDGES = "edges"
    """The lowest and the highest values of the range of each input."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckInput:
    """One input of the model, or of a signature."""

    name: str
    shape: tuple[int | None, ...] | None
    """
    With the batch first; None for a dimension that differs from batch to batch, and in place of all
    where nothing is known of it.
    """

    dtype: str
    how: str
    """
    Where its values are from, in a few words: how they were drawn, or what they are called in the
    user's file.
    """

    range: tuple[float, float] | None = None
    """The range of what was drawn, from which the edges are; None for text and given values."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OverflowProbe:
    """What larger inputs show: synthetic float inputs, each multiplied by the same factor."""

    factor: float | None
    """The smallest factor that was tried and overflows float16; None if none does."""

    finite_to: float
    """The largest factor that was tried and does not."""

    path: str | None
    """The first layer that overflows; None if none does."""

    class_name: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckInputs:
    """All of them."""

    kind: InputKind
    seed: int | None
    """What they were drawn with; None where nothing was drawn."""

    batches: int
    batch_size: int
    inputs: tuple[CheckInput, ...]
    extra: tuple[ExtraBatch, ...] = ()
    """Which extra batches were run; ``batches`` counts them too."""

    notes: tuple[str, ...] = ()
    """
    What is to be said of them: a batch size that the model does not take, batches that were left
    out, NaN in the user's arrays.
    """

    layer_rows: int | None = None
    """
    In how many rows layers were compared; None for all. Outputs are compared in all rows.
    """


_WIDE: Final = frozenset({"float32", "float64", "(global)"})


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckSide:
    """The reference or the candidate."""

    path: str
    """The file, as reports show it."""

    policy: str | None
    """
    The policy that its layers were given for this check; None where they have those of the file.
    """

    policies: Mapping[str, int]
    """How many layers compute under each policy."""

    kept: Mapping[str, str] = field(default_factory=dict)
    """Layers that do not follow ``policy``, with the reason."""

    library: str = ""
    """What it was loaded with, such as ``tf_keras 2.21.0``."""

    backend: str = "tensorflow"
    """The backend of Keras that it ran with."""

    written_with: str | None = None
    """The backend that wrote the file; None if the file does not say."""

    weights: str = "file"
    """Where its weights are from: ``file``, or ``random`` for an architecture without any."""

    dequantized: tuple[str, ...] = ()
    """
    The modes of quantisation of layers that compute in the reference as if they were not quantised,
    such as ``int8``.
    """


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckRun:
    """What was measured on one device, of the model's own call or of one signature."""

    device: TensorFlowDevice
    signature: str | None
    """None for the model's own call."""

    inputs: CheckInputs
    calls: tuple[LayerCall, ...]
    """
    Every call of a layer, in the order in which they were made, the innermost first where one holds
    another; the model itself last.
    """

    outputs: tuple[CheckedOutput, ...]
    verdict: CheckVerdict
    """Whether rounding explains the errors."""

    answers: tuple[OutputAnswer, ...] = ()
    """What each output says of whether the candidate is safe."""

    rewrite: GraphRewrite | None = None
    """
    What TensorFlow's own automatic mixed precision changed, where the model could only be run as a
    graph.
    """

    fallbacks: tuple[MissingKernel, ...] = ()
    """Ops that run on the CPU instead, for want of a kernel on the device."""

    missing: tuple[MissingKernel, ...] = ()
    """
    Ops of the candidate that have no kernel in their dtype; where there are any nothing was run.
    """

    gradients: Gradients | None = None
    timings: Mapping[str, Timing] = field(default_factory=dict)
    """``reference`` and ``candidate``."""

    unmatched: tuple[str, ...] = ()
    """Layers that one of the two models calls and the other does not."""

    origin: Origin | None = None
    """What causes the error of a run that fails; None if it passes, or nothing is to blame."""

    aliases: tuple[str, ...] = ()
    """Other signatures with the same graph, which were not run again."""

    random: tuple[str, ...] = ()
    """
    Layers that draw random numbers: those of the candidate need not be those of the reference.
    """

    overflow_probe: OverflowProbe | None = None
    """What larger inputs show; None if they were not tried, or these overflow."""

    @property
    def is_on_data(self) -> bool:
        """Whether the inputs are the user's."""
        return self.inputs.kind is InputKind.GIVEN

    @property
    def is_within_rounding(self) -> bool:
        """Whether an output was compared, and rounding explains every error."""
        return (
            self.verdict.passed
            and not self.verdict.is_inconclusive
            and not self.missing
            and self.measured is not Answer.NOT_SAFE
        )

    @property
    def is_isolated(self) -> bool:
        """Whether layers also ran isolated from the rest of the model."""
        return any(output.isolated is not None for call in self.calls for output in call.outputs)

    @property
    def measured(self) -> Answer:
        """Whether the candidate is safe on these inputs, whether or not they are real data."""
        return worst(output_answer.answer for output_answer in self.answers)

    @property
    def answer(self) -> Answer:
        """Whether the candidate is safe; synthetic inputs leave it open."""
        return self.measured if self.is_on_data and not self.missing else Answer.UNDECIDED

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


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckNote:
    """Something to know about a check."""

    code: str
    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """The result of a complete check."""

    reference: CheckSide
    candidate: CheckSide
    versions: Mapping[str, str]
    """TensorFlow's and the Keras' releases."""

    runs: tuple[CheckRun, ...]
    notes: tuple[CheckNote, ...] = ()
    is_same_model: bool = False
    """
    Whether both are one file with the same policies in every layer, so that nothing was put to the
    test.
    """

    advice: Advice | None = None
    """Which layers stay in float32 so that it passes; None if it passes, or nothing was tried."""

    migration: Options | None = None
    """
    What ``migrate`` is asked for to write a candidate that nothing speaks against: this one, or the
    one of the advice; None if there is none, or nothing to write.
    """

    comparison: Comparison | None = None
    """What changed since an earlier check; None without one."""

    @property
    def is_regressed(self) -> bool:
        """Whether something is worse than in the earlier check."""
        return self.comparison is not None and not self.comparison.passed

    @property
    def answer(self) -> Answer:
        """Whether the candidate is safe in every run."""
        return Answer.SAFE if self.is_equal else worst(run.answer for run in self.runs)

    @property
    def is_equal(self) -> bool:
        """
        Whether two files compute in float32 and give the same within its rounding: no precision
        changes, so that inputs of any kind show it.
        """
        sides = self.reference, self.candidate
        return (
            sides[0].path != sides[1].path
            and all(side.policies and set(side.policies) <= _WIDE for side in sides)
            and bool(self.runs)
            and all(run.is_within_rounding for run in self.runs)
        )

    @property
    def holds(self) -> bool:
        """Whether nothing that was measured speaks against the candidate."""
        return all(run.holds and not run.missing for run in self.runs)


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptScope:
    """A scope of a graph, such as a layer's, with ops that stay float32."""

    scope: str
    ops: Mapping[str, int]
    """These ops by type."""

    is_whole: bool
    """Whether none of its ops were changed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GraphRewrite:
    """What one pass changed in the graph of one signature."""

    option: str
    """
    The pass, as TensorFlow's RewriterConfig calls it, such as
    ``auto_mixed_precision_onednn_bfloat16``.
    """

    said: str
    """The same in words, with what it stands for where it only emulates."""

    ops: int
    """How many ops it took to 16 bits; those of loops that are functions among them."""

    total: int
    """How many ops had a float32 type before, without those that only pass on what others made."""

    casts: int
    """How many casts it added."""

    narrow_before: int
    """How many ops had a 16-bit type before: the plain graph is no float32 reference then."""

    by_type: Mapping[str, int]
    """The ops that it changed, by their type."""

    kept: tuple[KeptScope, ...] = ()
    """The scopes with ops that it left in float32, in the order of the graph."""

    unchanged: str | None
    """
    Why nothing differs, as a sentence, where it changed nothing; such a run shows nothing of the
    policy.
    """

    @property
    def dtype(self) -> str:
        """The 16-bit dtype that it converts to."""
        return "bfloat16" if self.option.endswith(("bfloat16", "_mkl")) else "float16"


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorFlowDevice:
    """One device that TensorFlow sees; what it does not say is None."""

    name: str
    """``cpu:0`` or ``gpu:0``, as ``--device`` takes it."""

    kind: str
    """``cpu`` or ``gpu``."""

    model: str | None
    """What its maker calls it."""

    compute_capability: str | None
    """Of NVIDIA GPUs, such as ``9.0``."""

    memory: int | None
    """All bytes that it has."""

    driver: str | None
    """The version of the GPU's driver."""

    cuda: str | None
    """The version that TensorFlow was built for, of the GPU's libraries."""

    cudnn: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class MissingKernel:
    """An op of the traced graph that a kind of device has no kernel for."""

    op: str
    """Its name in the graph, after that of the op that calls the function it is in."""

    type: str
    """What it does, such as ``MaxPool3D``."""

    dtype: str | None
    """The dtype that no kernel takes, or the op's own where none alone is to blame."""

    layer: str | None
    """The path of the layer that it belongs to."""

    elsewhere: bool
    """Whether it runs on the CPU instead; where not, the graph cannot run."""

    in_float32: bool
    """Whether the device would have a kernel for it in float32."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Timing:
    """What calls of one model on one batch took."""

    latency: float
    """Seconds of one call, the median."""

    spread: tuple[float, float]
    """Seconds of the shortest and of the longest call."""

    throughput: float
    """Examples in a second, at the median."""

    peak_memory: int | None
    """
    Bytes that tensors took at most during a call, beyond those there before it; None where the
    device's allocator does not count.

    That of a CPU leaves out tensors of less than 256 KiB.
    """

    how: str | None
    """``device`` where its allocator counted them."""
