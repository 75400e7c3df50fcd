"""What both models were fed with, and what larger inputs show."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


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
