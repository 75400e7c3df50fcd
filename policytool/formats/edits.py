"""What changes in a model file, as values: JSON values, stored tensors, and optimizer state."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from policytool.formats.document import Address
    from policytool.support.text.jsontext import Absent, Json


class Kind(StrEnum):
    """What an edit changes for whoever loads the file."""

    SPELLING = "spelling"
    """Nothing but who can read it."""

    NUMERICS = "numerics"
    """What a layer computes in or stores its variables in."""

    TRAINING = "training"
    """How training goes on: loss scaling, the optimizer and its state."""

    STORAGE = "storage"
    """How a tensor is stored."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Edit:
    """One JSON value that changes."""

    kind: Kind
    address: Address
    path: str | None
    """The layer it belongs to; None for the optimizer."""

    before: Json | Absent
    after: Json | Absent
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Cast:
    """One stored tensor that gets another dtype."""

    tensor: tuple[str, ...]
    """Where it is stored, as :attr:`policytool.formats.document.Tensor.path` has it."""

    path: str | None
    """The layer it belongs to; None for the optimizer's state."""

    before: str
    after: str
    """Keras' dtype names, as stored."""

    reason: str
    through: str | None = None
    """
    A dtype that values are rounded to on the way, where the file cannot store the one the layer has
    (bfloat16 as float32).
    """


@dataclass(frozen=True, kw_only=True, slots=True)
class Slot:
    """One variable of the optimizer's state in a ``.keras`` file, as it will be stored."""

    tensor: tuple[str, ...]
    """Its new place, e.g. ``("optimizer", "vars", "4")``."""

    source: tuple[str, ...] | None = None
    """The place whose values it takes over, bit for bit; None where it starts from ``value``."""

    dtype: str | None = None
    value: float | None = None
