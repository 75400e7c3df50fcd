"""The gradients of one backward step, for each tried loss scale and trainable variable."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs

from policytool.releases.policy import Dynamic, Fixed
from policytool.support.text import codec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class GradientReductions(Struct, frozen=True, kw_only=True):
    """
    Counts and sums that compare the elements of one or more gradients of the candidate with the
    reference. An element counts once for each batch.
    """

    elements: int = 0
    undefined: int = 0
    """Elements that are not finite in the reference. The next counts do not include them."""

    nonzero: int = 0
    """Elements that are not zero in the reference."""

    underflow: int = 0
    """Elements that are not zero in the reference, but zero when the optimizer gets them."""

    overflow: int = 0
    """Elements that are not finite before unscaling."""

    subnormal: int = 0
    """
    Elements that are subnormal before unscaling, in the dtype in which the gradient was computed.
    """

    squared_error: float = 0.0
    """The sum of the squared differences after unscaling, over finite elements."""

    squared_reference: float = 0.0
    squared_lost: float = 0.0
    """The part of ``squared_reference`` in elements that underflow."""

    largest: float = 0.0
    """The largest finite magnitude before unscaling."""

    largest_reference: float = 0.0

    @property
    def underflow_share(self) -> float:
        """The share of the nonzero elements that underflow."""
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
        The L2 norm of the difference divided by that of the reference, over finite elements;
        infinite if only the reference is zero.
        """
        if self.overflow and self.overflow + self.undefined >= self.elements:
            return math.inf  # no element can be compared
        if self.squared_reference:
            return math.sqrt(self.squared_error / self.squared_reference)
        return math.inf if self.squared_error else 0.0

    def __add__(self, other: GradientReductions) -> GradientReductions:
        """Return the reductions over the elements of both."""
        both = {
            name: (getattr(self, name), getattr(other, name)) for name in self.__struct_fields__
        }
        return GradientReductions(
            **{
                name: max(pair) if name.startswith("largest") else sum(pair)
                for name, pair in both.items()
            }
        )


class OutputLoss(Struct, frozen=True, kw_only=True):
    """The loss of one output of the model."""

    output: str
    loss: str | None
    """The class or function; None if the output has no loss."""

    source: str
    """``recorded`` if the file records the loss, ``substitute`` for a replacement, or ``none``."""

    targets: str | None
    """
    The kind of the synthetic targets: classes, one-hot, distribution, binary, counts, positive or
    normal.
    """

    weight: float | None
    why: str | None
    """Why the loss is not the recorded one; None if it is."""


class TrainedVariable(Struct, frozen=True, kw_only=True):
    """A trainable variable that has a gradient."""

    layer: str
    """The path of the variable's layer."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    flow: str
    """The dtype in which the gradient was computed, before the cast to ``dtype``."""

    @property
    def path(self) -> str:
        """The path of the layer, and the name of the variable."""
        return f"{self.layer}/{self.name}"


class Trial(Struct, frozen=True, kw_only=True):
    """The gradients with one loss scale."""

    scale: float
    """The loss scale; 1 without scaling."""

    loss: float
    """The unscaled loss of the candidate, as the mean over the batches."""

    variables: tuple[GradientReductions, ...]
    """The reductions of each variable, in the order of :attr:`Gradients.variables`."""

    @property
    def total(self) -> GradientReductions:
        """The reductions over all variables."""
        return sum(self.variables, GradientReductions())


class DynamicScale(Struct, frozen=True, kw_only=True):
    """The result of Keras' rule for a dynamic loss scale on these batches."""

    initial: float
    multiplier: float
    floor: float
    """The lowest scale of the rule, or of the measurement."""

    scale: float | None
    """The first scale with finite gradients; None if there is none."""

    skipped: int
    """The number of steps that the optimizer skips before this scale."""


class Gradients(Struct, frozen=True, kw_only=True):
    """The measurements of a model's gradients."""

    recorded: Fixed | Dynamic | None
    """The loss scale that the file records."""

    outputs: tuple[OutputLoss, ...]
    reference_loss: float | None
    """The mean over the batches; None if the model has no trainable variables."""

    variables: tuple[TrainedVariable, ...]
    trials: tuple[Trial, ...]
    """The trials, lowest scale first; empty if the model has no trainable variables."""

    dynamic: DynamicScale
    workable: tuple[float, float] | None
    """
    The lowest and the highest power of two that work as a loss scale: nothing overflows, and the
    share of elements that underflow is at most 1 % above the lowest such share. Scales above 2**24
    are not tried. None if no scale has finite gradients.
    """

    quiet: tuple[str, ...]
    """Paths of layers that ran in inference mode, because they draw random numbers in training."""

    own: tuple[str, ...]
    """
    Methods that the model's class overrides to change training, such as ``train_step``. The
    measured step is the default of Keras.
    """

    random: tuple[str, ...]
    """Ops that still drew random numbers, which may differ between the two models."""

    unconnected: tuple[str, ...]
    """Variables that the loss does not depend on."""

    def at(self, scale: float | None) -> Trial | None:
        """Return the trial of a scale; None if the scale was not tried."""
        return next((trial for trial in self.trials if trial.scale == scale), None)

    @property
    def recorded_scale(self) -> float | None:
        """
        The value of the recorded loss scale on these batches. None if the file records no scale, or
        if dynamic scaling reaches no scale with finite gradients.
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
    """Return the loss scale in a record of the child process."""
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
    """Return the reductions in a row of numbers with these names; counts become integers."""
    count_names = {
        field.name for field in structs.fields(GradientReductions) if isinstance(field.default, int)
    }
    values: dict[str, Any] = {
        name: int(value) if name in count_names else value
        for name, value in zip(names, row, strict=True)
    }
    return GradientReductions(**values)
