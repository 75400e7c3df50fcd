"""Nodes that join two values of a random graph."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from tests.random_models.description import Node
from tests.random_models.steps import Value

if TYPE_CHECKING:
    from tests.random_models.drawing import Draw

_EQUAL: Final = ("Add", "Add", "Multiply", "Average", "Maximum", "Minimum", "Subtract")
_OPS: Final = ("add", "subtract", "multiply", "maximum", "greater")


def join(draw: Draw, one: Value, other: Value) -> tuple[Node, Value] | None:
    """Return a node that joins two values, and its result; None if their shapes do not fit."""
    result = _join(draw, one, other)
    return result and (result[0], replace(result[1], origin=one.origin))


def _join(draw: Draw, one: Value, other: Value) -> tuple[Node, Value] | None:
    open_sizes = None in one.shape or None in other.shape
    if open_sizes and one.origin != other.origin:
        return _attend(draw, one, other) if one.rank == 2 == other.rank else None
    if one.shape == other.shape and draw.chance(0.7):
        return _equal(draw, one, other)
    axis = _differing_axis(one, other)
    if axis is not None:
        return _concatenate(draw, one, other, axis)
    return _attend(draw, one, other) if one.rank == 2 == other.rank else None


def _equal(draw: Draw, one: Value, other: Value) -> tuple[Node, Value]:
    refs: tuple[str, ...] = (one.ref, other.ref)
    if draw.joins_ops and draw.chance(0.2):
        name = draw.pick(_OPS)
        return _node(draw, name, refs, one.shape, kind="op")
    if one.rank == 1 and draw.chance(0.1):
        return _node(draw, "Dot", refs, (1,), config={"axes": 1, "normalize": draw.chance(0.5)})
    if one.rank == 2 and None not in one.shape and draw.chance(0.1):
        shape = (one.shape[0], other.shape[0])
        if not draw.joins_ops or draw.chance(0.5):
            return _node(draw, "Dot", refs, shape, config={"axes": 2})
        return _node(draw, "matmul", refs, shape, kind="op")
    what = draw.pick(_EQUAL)
    if what != "Subtract" and draw.chance(0.15):
        refs = (*refs, one.ref)
    return _node(draw, what, refs, one.shape)


def _differing_axis(one: Value, other: Value) -> int | None:
    """Return the axis on which two values can be concatenated."""
    if one.rank != other.rank or not one.rank:
        return None
    differing = [n for n in range(one.rank) if one.shape[n] != other.shape[n]]
    axis = differing[0] if differing else one.rank - 1
    if len(differing) > 1 or one.shape[axis] is None or other.shape[axis] is None:
        return None
    return axis


def _concatenate(draw: Draw, one: Value, other: Value, axis: int) -> tuple[Node, Value]:
    size = (one.shape[axis] or 0) + (other.shape[axis] or 0)
    shape = (*one.shape[:axis], size, *one.shape[axis + 1 :])
    refs = (one.ref, other.ref)
    if axis == one.rank - 1 and draw.joins_ops and draw.chance(0.15):
        return _node(draw, "concat", refs, shape, kind="op")
    result = -1 if axis == one.rank - 1 else axis + 1
    return _node(draw, "Concatenate", refs, shape, config={"axis": result})


def _attend(draw: Draw, one: Value, other: Value) -> tuple[Node, Value] | None:
    """Let one sequence attend to another one."""
    if one.channels is None or other.channels is None:
        return None
    refs = (one.ref, other.ref)
    if one.channels == other.channels and draw.chance(0.4):
        what = draw.pick(("Attention", "AdditiveAttention"))
        return _node(draw, what, refs, one.shape)
    config: dict[str, Any] = {"num_heads": draw.whole(1, 2), "key_dim": draw.whole(2, 4)}
    if draw.chance(0.2):
        config["dropout"] = 0.1
    return _node(draw, "MultiHeadAttention", refs, one.shape, config=config, spread=True)


def _node(
    draw: Draw, what: str, refs: tuple[str, ...], shape: tuple[int | None, ...], **options: Any
) -> tuple[Node, Value]:
    node = Node(id=draw.fresh(), what=what, inputs=refs, **options)
    return node, Value(ref=node.id, shape=shape)
