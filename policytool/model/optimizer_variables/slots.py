"""
The variables that each optimizer creates, and their order.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from policytool.model.optimizer_config import UnmappedError
from policytool.model.tree import STATE
from policytool.releases.releases import is_since

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from policytool.support.text.jsontext import Json

Shape = tuple[int, ...]


class Style(StrEnum):
    """The implementation of an optimizer, which determines its variables."""

    OLD = "old"
    NEW = "new"
    """The optimizers of Keras 2 in TF 2.11 and later."""

    KERAS3 = "keras3"


class StyledOptimizer(Struct, frozen=True, kw_only=True):
    """An optimizer without its wrapper."""

    class_name: str
    config: dict[str, Json]
    style: Style


class SlotKind(Struct, frozen=True):
    """A kind of variable that an optimizer creates for each weight, or once."""

    kind: str
    """The name in Keras 3."""

    old: str | None
    """The name in the old style; None if the old style has no such optimizer."""

    new: str | None
    """The name in Keras 2 since TF 2.11."""

    block: int = 0
    """The number of the block; the slots of a block are stored together for each weight."""

    needs: str | None = None
    """The config key that enables the slot."""

    without: int | None = None
    """
    The axis that the slot lacks, for weights with at least two axes. For other weights, Keras 3
    stores an unused number, except in a wrapper, and Keras 2 stores nothing.
    """

    def name(self, style: Style) -> str | None:
        """Return the name of the slot in a style; None if the style does not create it."""
        return self.kind if style is Style.KERAS3 else self.new if style is Style.NEW else self.old

    def shape(self, weight: Shape) -> Shape:
        """Return the shape of the slot for a weight."""
        if self.without is None:
            return weight
        if not self.is_factor_of(weight):
            return ()
        axis = len(weight) + self.without
        return weight[:axis] + weight[axis + 1 :]

    def is_factor_of(self, weight: Shape) -> bool:
        """Return whether the slot is one of two factors, and exists for a weight of this shape."""
        return self.without is None or len(weight) >= _FACTORED


class Position(Struct, frozen=True):
    """A variable of an optimizer in the stored order."""

    kind: str
    """The kind of a slot, or one of the names below."""

    weight: int | None = None
    """The position of the slot's trainable weight; None for a variable that is not a slot."""

    shape: Shape = ()


ITERATIONS: Final = "iterations"
RATE: Final = "learning_rate"
SCHEDULE: Final = "schedule"
"""The product of the momentums of all steps: a single variable of Nadam."""

_FACTORED: Final = 2
"""The minimum number of axes of a weight for which Adafactor stores two factors."""

_ADAM: Final = (
    SlotKind("momentum", "m", "m"),
    SlotKind("velocity", "v", "v"),
    SlotKind("velocity_hat", "vhat", "vhat", 1, "amsgrad"),
)
_SLOTS: Final[dict[str, tuple[SlotKind, ...]]] = {
    "SGD": (SlotKind("momentum", "momentum", "m", 0, "momentum"),),
    "Adam": _ADAM,
    "AdamW": _ADAM,
    "Nadam": _ADAM[:2],
    "RMSprop": (
        SlotKind("velocity", "rms", "velocity"),
        SlotKind("momentum", "momentum", "momentum", 1, "momentum"),
        SlotKind("average_gradient", "mg", "average_gradient", 2, "centered"),
    ),
    "Adagrad": (SlotKind("accumulator", "accumulator", "accumulator"),),
    "Adadelta": (
        SlotKind("accumulated_grad", "accum_grad", "accumulated_grad"),
        SlotKind("accumulated_delta_var", "accum_var", "accumulated_delta_var"),
    ),
    "Adafactor": (
        SlotKind("r", None, "r", without=-1),
        SlotKind("c", None, "c", without=-2),
        SlotKind("velocity", None, "v"),
    ),
    "Adamax": (SlotKind("momentum", "m", "m"), SlotKind("norm", "v", "u")),
    "Ftrl": (
        SlotKind("accumulator", "accumulator", "accumulator"),
        SlotKind("linear", "linear", "linear"),
    ),
    "Lion": (SlotKind("momentum", None, "m"),),
    "Lamb": (SlotKind("momentum", None, None), SlotKind("velocity", None, None)),
}
_AVERAGE: Final = SlotKind("average", None, "average", -2, "use_ema")
_GATHERED: Final = SlotKind("gradient_accumulator", None, None, -1, "gradient_accumulation_steps")
_TOGETHER_IN_OLD: Final = frozenset({"Ftrl"})
"""
The optimizer of the old style that creates all slots of a weight before those of the next weight.
The others create all slots of a kind before those of the next kind.
"""

ALWAYS_IN_NEW: Final = frozenset({"SGD"})
"""The optimizer whose slots Keras 2 always creates since TF 2.11, even if it does not use them."""

WITH_SCHEDULE: Final = "Nadam"
_SCHEDULE_LAST_SINCE: Final = "keras3.10"
"""The first release that stores the momentum product of Nadam after the slots."""


def slot_blocks(optimizer: StyledOptimizer) -> tuple[tuple[SlotKind, ...], ...]:
    """
    Return the kinds of slots of an optimizer in blocks. All slots of a block are stored for one
    weight before those of the next weight.

    :raises UnmappedError: if the variables of the optimizer class are unknown
    """
    class_slots = _SLOTS.get(optimizer.class_name)
    if class_slots is None:
        raise UnmappedError(f"the variables of {optimizer.class_name} are unknown")
    slots = [slot for slot in (_AVERAGE, _GATHERED, *class_slots) if _keeps(optimizer, slot)]
    if optimizer.style is Style.OLD and optimizer.class_name not in _TOGETHER_IN_OLD:
        return tuple((slot,) for slot in slots)
    return tuple(
        tuple(slot for slot in slots if slot.block == block)
        for block in sorted({slot.block for slot in slots})
    )


def _keeps(optimizer: StyledOptimizer, slot: SlotKind) -> bool:
    """Return whether an optimizer with this config creates a slot."""
    if slot.name(optimizer.style) is None:
        return False
    if slot.needs is None or (
        optimizer.style is Style.NEW and optimizer.class_name in ALWAYS_IN_NEW and slot.block >= 0
    ):
        return True
    return bool(optimizer.config.get(slot.needs))


def is_in_use(optimizer: StyledOptimizer, kind: str, weight: Shape) -> bool:
    """Return whether training reads a slot of a weight, if the optimizer creates the slot."""
    return all(
        slot.is_factor_of(weight) and (slot.needs is None or bool(optimizer.config.get(slot.needs)))
        for slot in _SLOTS.get(optimizer.class_name, ())
        if slot.kind == kind
    )


def has_rate(optimizer: StyledOptimizer) -> bool:
    """Return whether the learning rate is a variable of the optimizer."""
    return optimizer.style is Style.KERAS3 and not isinstance(
        optimizer.config.get("learning_rate"), dict
    )


def positions(
    optimizer: StyledOptimizer, weights: Sequence[Shape], release: str, *, is_wrapped: bool = False
) -> tuple[Position, ...]:
    """
    Return the variables that a release stores for trainable weights of these shapes, in the order
    of the release.

    :param is_wrapped: whether the optimizer is in a loss-scaling wrapper. Then Keras 3.0 to 3.15
        do not store the momentum product of Nadam or the unused numbers of Adafactor
    :raises UnmappedError: for an optimizer whose variables are not one for each weight and kind.
    """
    return tuple(_positions(optimizer, weights, release, is_wrapped=is_wrapped))


def _positions(
    optimizer: StyledOptimizer, weights: Sequence[Shape], release: str, *, is_wrapped: bool
) -> Iterator[Position]:
    """Yield the variables of an optimizer without its wrapper, in the order of a release."""
    yield Position(ITERATIONS)
    if has_rate(optimizer):
        yield Position(RATE)
    is_bare = optimizer.style is Style.KERAS3 and not is_wrapped
    keeps_schedule = optimizer.class_name == WITH_SCHEDULE and (
        is_bare or optimizer.style is Style.OLD
    )
    is_last = is_since(release, _SCHEDULE_LAST_SINCE)
    if keeps_schedule and not is_last:
        yield Position(SCHEDULE)
    for block in slot_blocks(optimizer):
        for number, weight in enumerate(weights):
            for slot in block:
                if is_bare or slot.is_factor_of(weight):
                    yield Position(slot.kind, number, slot.shape(weight))
    if keeps_schedule and is_last:
        yield Position(SCHEDULE)


Path = tuple[str, ...]

OUTER: Final[Path] = (STATE, "vars")
INNER: Final[Path] = (STATE, "inner_optimizer", "vars")
