"""
How many dimensions a layer's input has, as far as the layers before it prove it; an axis counted
from the end is known only then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.comparison import normalization
from policytool.model.tree import INPUT_CLASS
from policytool.releases.layer_classes import layer_facts

if TYPE_CHECKING:
    from policytool.comparison.sides import ComparedLayer, ComparedModel
    from policytool.support.text.jsontext import Json

_SEQUENTIAL: Final = "Sequential"
_STEPS: Final = 64
"""How far the way back is followed; models have a convolution or an input sooner."""


def is_same_axis(
    one: Json,
    other: Json,
    sides: tuple[tuple[ComparedModel, ComparedLayer], tuple[ComparedModel, ComparedLayer]],
) -> bool:
    """Return whether two values of ``axis`` are proven to be the same."""
    first, second = (
        _resolve_axes(value, subject, held)
        for value, (subject, held) in zip((one, other), sides, strict=True)
    )
    return first is not None and first == second


def of_input(subject: ComparedModel, held: ComparedLayer) -> int | None:
    """Return how many dimensions a layer's input has; None where nothing proves it."""
    for _ in range(_STEPS):
        parent = subject.layers[held.parent] if held.parent is not None else None
        in_sequence = parent is not None and parent.layer.class_name == _SEQUENTIAL
        if in_sequence and held.before is None:
            return _shape_rank(held)
        source = (
            held.before
            if in_sequence
            else held.inputs[0]
            if held.inputs is not None and len(held.inputs) == 1
            else None
        )
        if not isinstance(source, int):
            return None
        held = subject.layers[source]
        if held.layer.opaque:
            return None
        if held.layer.class_name == INPUT_CLASS:
            return _shape_rank(held)
        rank = layer_facts(held.layer.class_name).rank
        if rank != "input":
            return rank
    return None


def _shape_rank(held: ComparedLayer) -> int | None:
    shape = normalization.keys(held.config or {}).get("batch_shape", ("", None, None))[2]
    return len(shape) if isinstance(shape, list) else None


def _resolve_axes(
    value: Json, subject: ComparedModel, held: ComparedLayer
) -> tuple[int, ...] | None:
    """Return axes counted from the start; None where that cannot be known."""
    axes = normalization.normal(value)
    numbers = [
        axis
        for axis in (axes if isinstance(axes, list) else [axes])
        if isinstance(axis, int) and not isinstance(axis, bool)
    ]
    if not numbers or (isinstance(axes, list) and len(numbers) != len(axes)):
        return None
    if min(numbers) >= 0:
        return tuple(numbers)
    rank = of_input(subject, held)
    return (
        tuple(axis % rank for axis in numbers)
        if rank is not None and all(-rank <= axis < rank for axis in numbers)
        else None
    )
