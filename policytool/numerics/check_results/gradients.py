"""What one backward step gave under each loss scale that was tried, for each trainable variable."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from policytool.releases.policy import Dynamic, Fixed
from policytool.support.text import codec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, kw_only=True, slots=True)
class GradientReductions:
    """
    The elements of one gradient, or of several, of a candidate against those of the reference; an
    element counts once for each batch.
    """

    elements: int = 0
    undefined: int = 0
    """Elements whose reference is not finite; none of the counts below has them."""

    nonzero: int = 0
    """Elements whose reference is not zero."""

    underflow: int = 0
    """Of those, the ones that are zero when the optimizer gets them."""

    overflow: int = 0
    """Elements that are not finite before they are unscaled."""

    subnormal: int = 0
    """
    Elements that are too small for a normal number of the dtype in which they flowed, before they
    are unscaled.
    """

    squared_error: float = 0.0
    """The sum of the squared differences, after unscaling, over what is finite."""

    squared_reference: float = 0.0
    squared_lost: float = 0.0
    """Of that, what is in elements that underflow."""

    largest: float = 0.0
    """The largest finite magnitude before unscaling."""

    largest_reference: float = 0.0

    @property
    def underflow_share(self) -> float:
        """The share of what is not zero that underflows."""
        return self.underflow / self.nonzero if self.nonzero else 0.0

    @property
    def overflow_share(self) -> float:
        """The share of all elements that overflow."""
        return self.overflow / self.elements if self.elements else 0.0

    @property
    def subnormal_share(self) -> float:
        """The share of all elements that are subnormal."""
        return self.subnormal / self.elements if self.elements else 0.0

    @property
    def relative_error(self) -> float:
        """
        The length of the difference over the length of the reference, of what is finite; infinite
        where a zero reference is missed.
        """
        if self.overflow and self.overflow + self.undefined >= self.elements:
            return math.inf  # nothing is left that could be compared
        if self.squared_reference:
            return math.sqrt(self.squared_error / self.squared_reference)
        return math.inf if self.squared_error else 0.0

    def __add__(self, other: GradientReductions) -> GradientReductions:
        """Return the reductions over the elements of both."""
        both = {
            field.name: (getattr(self, field.name), getattr(other, field.name))
            for field in fields(self)
        }
        return GradientReductions(
            **{
                name: max(pair) if name.startswith("largest") else sum(pair)
                for name, pair in both.items()
            }
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputLoss:
    """The loss of one output of the model."""

    output: str
    loss: str | None
    """The class or function; None where the output has none."""

    source: str
    """``recorded`` for the file's own, ``substitute`` for one that stands in for it, ``none``."""

    targets: str | None
    """
    What the synthetic targets look like: classes, one-hot, distribution, binary, counts, positive,
    normal.
    """

    weight: float | None
    why: str | None
    """Why it is not the recorded one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainedVariable:
    """A variable that training changes, and whose gradient there is."""

    layer: str
    """The path of its layer."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    flow: str
    """The dtype in which its gradient was computed, before the cast to its own."""

    @property
    def path(self) -> str:
        """Its layer's path and its name."""
        return f"{self.layer}/{self.name}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """What one loss scale gave."""

    scale: float
    """1 for none."""

    loss: float
    """The candidate's, not scaled; the mean over the batches."""

    variables: tuple[GradientReductions, ...]
    """In the order of the measurement's variables."""

    @property
    def total(self) -> GradientReductions:
        """The reductions over all variables."""
        return sum(self.variables, GradientReductions())


@dataclass(frozen=True, kw_only=True, slots=True)
class DynamicScale:
    """What Keras' rule for a dynamic loss scale comes to on these batches."""

    initial: float
    multiplier: float
    floor: float
    """Where the rule, or the measurement, ends."""

    scale: float | None
    """The first one with finite gradients; None where there is none."""

    skipped: int
    """How many steps the optimizer skips until then."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Gradients:
    """What was measured of a model's gradients."""

    recorded: Fixed | Dynamic | None
    """The loss scale that the file records."""

    outputs: tuple[OutputLoss, ...]
    reference_loss: float | None
    """The mean over the batches; None where there is nothing to train."""

    variables: tuple[TrainedVariable, ...]
    trials: tuple[Trial, ...]
    """By scale, the lowest first; none where there is nothing to train."""

    dynamic: DynamicScale
    workable: tuple[float, float] | None
    """
    The lowest and the highest power of two that do: nothing overflows, and underflow is within 1 %
    of the elements of the least there is. Nothing above 2**24 is tried. None where gradients are
    not finite under any.
    """

    quiet: tuple[str, ...]
    """Paths of layers that ran as in inference, because they draw numbers."""

    own: tuple[str, ...]
    """
    Methods by which the model's class trains in its own way, such as ``train_step``; the measured
    step is Keras' own.
    """

    random: tuple[str, ...]
    """Ops that drew numbers all the same, so that the two models may have had different ones."""

    unconnected: tuple[str, ...]
    """Variables that the loss does not depend on."""

    def at(self, scale: float | None) -> Trial | None:
        """Return what a scale gave; None for one that was not tried."""
        return next((trial for trial in self.trials if trial.scale == scale), None)

    @property
    def recorded_scale(self) -> float | None:
        """
        The number that the recorded loss scale comes to on these batches; None without one, and
        where a dynamic one finds none.
        """
        return (
            self.recorded.value
            if isinstance(self.recorded, Fixed)
            else self.dynamic.scale
            if self.recorded is not None
            else None
        )


def gradients_from_json(record: Mapping[str, Any]) -> Gradients:
    """Return the gradients that the child process reports as JSON."""
    names: Sequence[str] = record["fields"]
    return Gradients(
        recorded=_recorded_scale(record["recorded"]),
        outputs=tuple(codec.read(OutputLoss, output) for output in record["outputs"]),
        reference_loss=record["reference_loss"],
        variables=tuple(
            codec.read(TrainedVariable, {**variable, "name": variable["variable"]})
            for variable in record["variables"]
        ),
        trials=tuple(
            Trial(
                scale=trial["scale"],
                loss=trial["loss"],
                variables=tuple(_reductions(names, row) for row in trial["values"]),
            )
            for trial in record["trials"]
        ),
        dynamic=codec.read(DynamicScale, record["dynamic"]),
        workable=None
        if record["search"]["highest"] is None
        else (record["search"]["lowest"], record["search"]["highest"]),
        quiet=tuple(record["quiet"]),
        own=tuple(record["own"]),
        random=tuple(record["random"]),
        unconnected=tuple(record["unconnected"]),
    )


def _recorded_scale(record: Mapping[str, Any] | None) -> Fixed | Dynamic | None:
    match record:
        case {"kind": "fixed", "value": float() | int() as value}:
            return Fixed(value=float(value))
        case {
            "kind": "dynamic",
            "initial": initial,
            "growth_steps": steps,
            "multiplier": multiplier,
        }:
            return Dynamic(initial=initial, growth_steps=steps, multiplier=multiplier)
    return None


def _reductions(names: Sequence[str], row: Sequence[float]) -> GradientReductions:
    """Return a row of numbers by their names; what is counted is whole."""
    whole = {field.name for field in fields(GradientReductions) if isinstance(field.default, int)}
    values: dict[str, Any] = {
        name: int(value) if name in whole else value for name, value in zip(names, row, strict=True)
    }
    return GradientReductions(**values)
