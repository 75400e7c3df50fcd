"""A check: what ran against what, on which devices, with which inputs, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from policytool.numerics.check_results.devices import MissingKernel, TensorFlowDevice, Timing
    from policytool.numerics.check_results.gradients import Gradients
    from policytool.numerics.check_results.graphs import GraphRewrite
    from policytool.numerics.check_results.inputs import CheckInputs
    from policytool.numerics.check_results.layers import CheckedOutput, LayerCall
    from policytool.numerics.check_results.regressions import Comparison
    from policytool.numerics.check_results.verdicts import Advice, CheckVerdict, Origin


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


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckNote:
    """Something to know about a check."""

    code: str
    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """The whole of it."""

    reference: CheckSide
    candidate: CheckSide
    versions: Mapping[str, str]
    """TensorFlow's and the Keras' releases."""

    runs: tuple[CheckRun, ...]
    notes: tuple[CheckNote, ...] = ()
    is_alike: bool = False
    """
    Whether both are one file with the same policies in every layer, so that nothing was put to the
    test.
    """

    advice: Advice | None = None
    """Which layers stay in float32 so that it passes; None if it passes, or nothing was tried."""

    comparison: Comparison | None = None
    """What changed since an earlier check; None without one."""

    @property
    def passed(self) -> bool:
        """Whether every run does, and nothing is worse than in the earlier check."""
        regressed = self.comparison is not None and not self.comparison.passed
        return not regressed and all(run.verdict.passed and not run.missing for run in self.runs)
