"""
The layers of a model as what holds variables: each with its own, those of the layers that it makes,
and the layers that it holds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from policytool.support.steps import spend

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.formats.document import Tensor
    from policytool.formats.edits import Assembly
    from policytool.migration.convert.architecture import Unit
    from policytool.releases.layer_variables import VariableSlot


@dataclass(frozen=True, kw_only=True, slots=True)
class Stored:
    """A variable that the target has, and where its values come from."""

    slot: VariableSlot
    shape: tuple[int, ...]
    dtype: str
    source: Tensor | None = None
    made_of: Assembly | None = None
    fill: tuple[float, ...] | None = None
    scale: tuple[float, ...] | None = None
    again: bool = False
    """Whether the layer above has the variable too: HDF5 then has it there alone."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Holder:
    """A layer of the target's model."""

    unit: Unit
    name: str
    """As it is built: with ``forward_`` in a Bidirectional."""

    attribute: str
    """What the layer above holds it by."""

    listed: bool
    """Whether that is a list, whose members are told by their classes."""

    own: tuple[Stored, ...] = ()
    below: tuple[Holder, ...] = field(default=())

    @property
    def trainable(self) -> bool:
        """Whether the layer is not frozen."""
        return self.unit.config.get("trainable") is not False

    @property
    def has_weights(self) -> bool:
        """Whether it, or one below it, has variables."""
        return bool(self.own) or any(holder.has_weights for holder in self.below)


def walk(holder: Holder) -> Iterator[Holder]:
    """Yield a holder and all below it."""
    spend(1, walk="holders of variables")
    yield holder
    for inner in holder.below:
        yield from walk(inner)
