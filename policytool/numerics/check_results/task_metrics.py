"""The metric of the model's own task, such as its accuracy, of both models on labelled inputs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputMetric:
    """What the metric is for one output, or for all outputs together."""

    output: str | None
    """None for a function of the user's that gets several outputs."""

    reference: float
    candidate: float
    drop: float | None
    """How much worse the candidate is; below 0 if it is better, None if a value is NaN."""

    max_drop: float
    passed: bool
    """Whether it gets worse by no more than ``max_drop``."""

    names: tuple[str, ...] = ()
    """The outputs that a function of the user's gets; empty if ``output`` says it."""

    rows: int = 0
    """Rows with labels; 0 if the outputs of the reference took their place."""

    bounds: tuple[float, float] | None = None
    """
    The lower and the upper bound of ``drop`` at 95 % confidence; None if it is known for too few
    rows.
    """


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskMetric:
    """The metric of each output that has labels."""

    name: str
    higher_is_better: bool
    """Errors and losses are better if they are lower."""

    outputs: tuple[OutputMetric, ...]
    """At least one; the one with the largest drop above what is allowed first."""

    @property
    def worst(self) -> OutputMetric:
        """The output whose metric gets worse by most."""
        return self.outputs[0]

    @property
    def passed(self) -> bool:
        """Whether the metric of every output passed."""
        return all(output.passed for output in self.outputs)
