"""What ``tune`` found: the layers to keep in float32, why, and every trial of the search."""

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
    """Every removal of one layer was tried, and breaks the objective."""

    IMPOSSIBLE = "impossible"
    """The objective is not met even with every candidate in float32."""

    TRIALS = "trials"
    TIME = "time"
    INTERRUPTED = "interrupted"


class Split(StrEnum):
    """Which inputs validate the set that was found."""

    BATCHES = "batches"
    """Every second batch, which the search did not use; a single batch is cut into two."""

    NONE = "none"
    """The inputs of the search: there is one row only, or the batch size is fixed."""

    USED = "used"
    """
    The inputs of the search: a set that met the objective failed on the others, so the search went
    on with all of them.
    """


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """One set of layers in float32, and what the model came to with it."""

    kept: tuple[str, ...]
    """Paths, in the order of the model."""

    excess: float
    """
    How many times what the objective allows was used on the inputs of the search: at most 1 if the
    objective is met; infinite for NaN, and for a model that cannot run so.
    """

    validation: float | None
    """The same on the other inputs; None if there are none."""

    error: float | None
    """The largest relative error of an output, over all inputs; None if it is not finite."""

    agreement: float | None
    """
    The share of rows whose largest output is the same class, over all inputs, of the output with
    the smallest; None without an objective for it.
    """

    gradient_error: float | None
    """
    The relative error of all gradients together at the best loss scale; None if gradients are not
    part of the objective, or are finite at no scale.
    """

    metric: float | None = None
    """The metric of the task; None without one."""

    failure: str | None = None
    """Why the model cannot run with this set; None if it can."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TunedLayer:
    """A layer that could be kept or converted, with what was measured when all were converted."""

    path: str
    class_name: str
    kept: bool
    """Whether it stays in float32."""

    rule: str | None
    """Why ``migrate`` would keep it by default; None if it would not."""

    error: float | None
    """
    The relative error that its own calls make of the reference's inputs, the largest; None if that
    was not measured or is not finite.
    """

    is_finite: bool
    """Whether all values are finite where those of the reference are."""

    largest: float | None
    """The largest finite magnitude of its outputs in the reference."""

    headroom: float | None
    """How many times as large its values could be before they overflow the 16-bit dtype."""

    flushed: float | None
    """The share of values that become zero and are not zero in the reference."""

    excess_if_converted: float | None
    """
    The excess of the trial that converts this layer of those that were kept; None if the layer is
    converted, or the search ended before that trial.
    """

    excess_by_itself: float | None
    """The excess of the trial that converts this layer alone; None if there was none."""

    decides: tuple[str, ...]
    """
    Ops that get its outputs, and layers in it, that the diagnosis blames and whose own policy is
    not in the file: they compute in the dtype of this layer.
    """


@dataclass(frozen=True, kw_only=True, slots=True)
class CurvePoint:
    """The best trial among those that convert the same number of layers."""

    converted: int
    share: float
    """Of all candidates, from 0 to 1."""

    excess: float
    error: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Tuning:
    """The result of a search."""

    policy: str
    """The policy of the layers that are converted."""

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
    Layers that compute in float32 and are no candidates, with the reason: those of outputs.
    """

    trials: tuple[Trial, ...]
    """In the order in which they were made; those of a resumed record first."""

    resumed: int
    """How many of them are from the record of an earlier search."""

    best: Trial | None
    """The smallest set that meets the objective; None if none was found."""

    closest: Trial | None
    """The trial with the smallest excess; None if there was no trial."""

    metric: TaskMetric | None
    """
    The metric of the reference and of the model with the layers of ``best``, or of ``closest`` if
    no set was found; None without one.
    """

    options: Options | None
    """
    The options of ``migrate`` that write the model with the layers of ``best``; None if no set was
    found.
    """

    ending: Ending
    is_minimum: bool
    """
    Whether no smaller set exists, on the assumption that a set passes if a part of it does.
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
