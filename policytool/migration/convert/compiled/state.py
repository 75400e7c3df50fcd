"""Where the target restores the optimizer's variables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.formats.edits import Placement
from policytool.model.optimizer_variables import (
    ALWAYS_IN_NEW,
    ITERATIONS,
    RATE,
    WITH_SCHEDULE,
    Style,
    blocks,
    positions,
)
from policytool.model.trainable_weights import UnmappedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from policytool.formats.document import Tensor
    from policytool.migration.convert.compiled.optimizer import ConvertedOptimizer
    from policytool.model.optimizer_variables import OptimizerState, Position

_SCHEDULES_APART: Final = {
    frozenset({Style.OLD, Style.NEW}): "its momentum schedule changed in TF 2.11",
    frozenset({Style.OLD, Style.KERAS3}): "its momentum schedule is different in Keras 3",
    frozenset({Style.NEW, Style.KERAS3}): (
        "Keras 2 updates the momentum product once per weight, and Keras 3 once per step"
    ),
}
"""Why no state of Nadam means the same in two styles."""


def place_state(
    optimizer: ConvertedOptimizer,
    found: OptimizerState,
    weights: Sequence[Placement],
    release: str,
    source_style: Style,
) -> list[Placement]:
    """
    Return the variables of the optimizer itself in the order of the release that reads them, each
    with a path of one part: its name in HDF5.

    :raises UnmappedError: where the target keeps what the source has not.
    """
    if optimizer.class_name == WITH_SCHEDULE and optimizer.style is not source_style:
        reason = _SCHEDULES_APART[frozenset({optimizer.style, source_style})]
        raise UnmappedError(
            f"the state of {WITH_SCHEDULE} has a different meaning in the target ({reason})"
        )
    shapes = [weight.shape for weight in weights]
    return [
        _once(optimizer, found, one)
        if one.weight is None
        else _slot(optimizer, found, weights[one.weight], one)
        for one in positions(optimizer, shapes, release, is_wrapped=optimizer.wrapped)
    ]


def _once(optimizer: ConvertedOptimizer, found: OptimizerState, one: Position) -> Placement:
    if one.kind == RATE:
        return _rate(optimizer, found)
    if one.kind == ITERATIONS:
        name = "iteration:0" if optimizer.style is Style.NEW else f"{optimizer.class_name}/iter:0"
        if found.iterations is None:
            return Placement(path=(name,), shape=(), dtype="int64", fill=(0.0,))
        return _placement(found.iterations, name)
    name = f"{optimizer.class_name}/momentum_cache:0"
    if found.schedule is None:  # which is not stored, and begins with 1 where it is read
        return Placement(path=(name,), shape=(), dtype="float32", fill=(1.0,))
    return _placement(found.schedule, name)


def _slot(
    optimizer: ConvertedOptimizer, found: OptimizerState, weight: Placement, one: Position
) -> Placement:
    slot = next(slot for block in blocks(optimizer) for slot in block if slot.kind == one.kind)
    name = "/".join(weight.path[1:]).removesuffix(":0")
    called = slot.name(optimizer.style)
    path = (
        f"{optimizer.class_name}/{name}/{called}:0"
        if optimizer.style is Style.OLD
        else f"{optimizer.class_name}/{called}/{name}:0"
    )
    source = found.slots.get((weight.source, slot.kind)) if weight.source is not None else None
    if source is not None:
        return _placement(source, path)
    is_unused = optimizer.class_name in ALWAYS_IN_NEW and not optimizer.config.get("momentum")
    if is_unused or not slot.is_factor_of(weight.shape):
        return Placement(path=(path,), shape=one.shape, dtype=weight.dtype, fill=(0.0,))
    raise UnmappedError(f"it does not contain {slot.kind}, which {optimizer.class_name} requires")


def _placement(source: Tensor, name: str) -> Placement:
    return Placement(path=(name,), shape=source.shape or (), dtype=source.dtype, source=source)


def _rate(optimizer: ConvertedOptimizer, found: OptimizerState) -> Placement:
    if found.rate is not None:
        return _placement(found.rate, "learning_rate")
    rate = optimizer.config.get("learning_rate")
    if not isinstance(rate, int | float):
        raise UnmappedError("it does not contain a learning rate")
    return Placement(path=("learning_rate",), shape=(), dtype="float32", fill=(float(rate),))
