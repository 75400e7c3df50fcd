"""The result of ``tune``: the layers to keep in float32, the reasons, and all trials."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from policytool.migration.planning.options import Options
    from policytool.numerics.check_results.checks import (
        CheckInputs,
        CheckNote,
        CheckSide,
        TensorFlowDevice,
    )
    from policytool.numerics.check_results.metrics import TaskMetric
    from policytool.numerics.tuning.objectives import Objective


class Ending(StrEnum):
    """Why a search ended."""

    MINIMAL = "minimal"
    """The removal of each single layer was tried, and the objective was then not met."""

    IMPOSSIBLE = "impossible"
    """The objective is not met even with every candidate in float32."""

    TRIALS = "trials"
    TIME = "time"
    INTERRUPTED = "interrupted"


class Split(StrEnum):
    """The inputs that validate the result of the search."""

    BATCHES = "batches"
    """Every second batch, which the search does not use; a single batch is split into two."""

    NONE = "none"
    """No separate inputs, because there is only one row, or the batch size is fixed."""

    USED = "used"
    """
    No separate inputs, because a set that met the objective failed on them. The search then
    continued with all inputs.
    """


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """The measurements of the model with a set of layers in float32."""

    kept: tuple[str, ...]
    """The paths of the layers in float32, in the order of the model."""

    excess: float
    """
    The error on the inputs of the search as a multiple of what the objective allows: at most 1 if
    the objective is met; infinite for NaN, and if the model cannot run with this set.
    """

    validation: float | None
    """The excess on the validation inputs; None if there are none."""

    error: float | None
    """The largest relative error of an output, over all inputs; None if it is not finite."""

    agreement: float | None
    """
    The share of rows with the same class over all inputs, for the output with the smallest share;
    None if the objective is not an agreement.
    """

    gradient_error: float | None
    """
    The relative error of all gradients together at the best loss scale; None if gradients are not
    part of the objective, or are finite at no scale.
    """

    metric: float | None = None
    """The metric of the task; None if the objective has none."""

    failure: str | None = None
    """Why the model cannot run with this set; None if it can."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TunedLayer:
    """A candidate layer, with its measurements when all candidates are converted."""

    path: str
    class_name: str
    kept: bool
    """Whether the layer stays in float32."""

    rule: str | None
    """Why ``migrate`` would keep the layer in float32 by default; None if it would not."""

    error: float | None
    """
    The largest relative error of the layer's calls with the inputs of the reference; None if it was
    not measured or is not finite.
    """

    is_finite: bool
    """Whether all values that are finite in the reference are also finite in the candidate."""

    largest: float | None
    """The largest finite magnitude of the layer's outputs in the reference."""

    headroom: float | None
    """The factor by which the values could grow before they overflow the 16-bit dtype."""

    flushed: float | None
    """The share of values that become zero, but are not zero in the reference."""

    excess_if_converted: float | None
    """
    The excess of the trial that also converts this layer; None if the result converts the layer, or
    the search ended before that trial.
    """

    excess_by_itself: float | None
    """The excess of the trial that converts only this layer; None if there was none."""

    decides: tuple[str, ...]
    """
    The calls that cause errors according to the diagnosis and compute in the dtype of this layer:
    ops that use its outputs, and layers inside it, which have no policy in the file.
    """


@dataclass(frozen=True, kw_only=True, slots=True)
class CurvePoint:
    """The best trial among those that convert the same number of layers."""

    converted: int
    share: float
    """The share of candidates that are converted, from 0 to 1."""

    excess: float
    error: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Tuning:
    """The result of a search."""

    policy: str
    """The policy of the converted layers."""

    objective: Objective
    reference: CheckSide
    device: TensorFlowDevice
    inputs: CheckInputs
    versions: Mapping[str, str]
    split: Split
    layers: tuple[TunedLayer, ...]
    """The candidates, in the order of the model."""

    fixed: Mapping[str, str]
    """
    Output layers that compute in float32 and are not candidates, with the reason.
    """

    trials: tuple[Trial, ...]
    """All trials in the order of the search. Trials of a resumed record come first."""

    resumed: int
    """The number of trials from the record of an earlier search."""

    best: Trial | None
    """The smallest set that meets the objective; None if none was found."""

    closest: Trial | None
    """The trial with the smallest excess; None if there was no trial."""

    metric: TaskMetric | None
    """
    The metric of the reference and of the model with the layers of ``best``, or of ``closest`` if
    no set was found; None if the objective has no metric.
    """

    options: Options | None
    """
    The options of ``migrate`` that write the model with the layers of ``best``; None if no set was
    found.
    """

    ending: Ending
    is_minimum: bool
    """
    Whether no smaller set exists, if additional layers in float32 never increase the error.
    """

    seconds: float
    seed: int
    notes: tuple[CheckNote, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether a set was found that also meets the objective on the validation inputs."""
        return self.best is not None and (self.best.validation is None or self.best.validation <= 1)

    @property
    def kept(self) -> tuple[TunedLayer, ...]:
        """The layers to keep in float32."""
        return tuple(layer for layer in self.layers if layer.kept)

    @property
    def converted(self) -> tuple[TunedLayer, ...]:
        """The layers that compute in 16 bits."""
        return tuple(layer for layer in self.layers if not layer.kept)

    @property
    def curve(self) -> tuple[CurvePoint, ...]:
        """The error by share of converted layers: the best trial for each number of layers."""
        best_trials: dict[int, Trial] = {}
        for trial in self.trials:
            converted = len(self.layers) - len(trial.kept)
            if converted not in best_trials or trial.excess < best_trials[converted].excess:
                best_trials[converted] = trial
        return tuple(
            CurvePoint(
                converted=count,
                share=count / len(self.layers) if self.layers else 1.0,
                excess=best_trials[count].excess,
                error=best_trials[count].error,
            )
            for count in sorted(best_trials)
        )
