"""Which dtypes the operations of a graph take and make, as their class and config say it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.migration.result_dtypes import (
    CalledClass,
    result_dtypes,
)
from policytool.model.calls import Call, Constant, Reference
from policytool.releases import dtypes
from policytool.releases.layer_classes import operation_facts

if TYPE_CHECKING:
    from policytool.migration.result_dtypes import DtypeOf
    from policytool.model.calls import Argument
    from policytool.model.layer_graph import GraphNode

_CAST: Final = "Cast"

_JOINS: Final = frozenset({"Concat", "ConcatV2", "Pack"})
"""Ops of TensorFlow that put several tensors into one."""


def result_dtype(node: GraphNode, dtype_of: DtypeOf) -> frozenset[str] | None:
    """Return the dtypes of an operation's results; None if no rule covers the operation."""
    calls = node.calls or (Call(args=tuple(Reference(layer=name) for name in node.parents)),)
    called = _called_class(node)
    results = {dtype for call in calls for dtype in result_dtypes(called, call, dtype_of)}
    return (
        frozenset(dtype for dtype in results if dtype is not None) if None not in results else None
    )


def decides_dtype(node: GraphNode) -> bool:
    """Return whether an operation makes floats of a dtype that its inputs do not decide."""
    row = _called_class(node).row
    fixed = result_dtype(node, lambda _: None)
    return fixed is not None and (
        not fixed.isdisjoint(dtypes.FLOATS) or row is None or row.op == _CAST
    )


def parents_of_one_dtype(node: GraphNode, *, is_operation: bool) -> tuple[tuple[str, ...], bool]:
    """
    Return the nodes whose dtypes have to be one where an operation of Keras 3 promotes nothing, and
    whether they have to be float32.
    """
    facts = operation_facts(node.class_name)
    if not is_operation or (facts.promotes and facts.half_kernels):
        return (), False
    return node.parents, not facts.half_kernels or len(node.parents) == 1


def has_kernels_for(node: GraphNode, met: frozenset[str]) -> bool:
    """Return whether an operation without 16-bit kernels gets none: float64 it has kernels for."""
    return is_wide(node) and "float16" not in met and "bfloat16" not in met


def is_wide(node: GraphNode) -> bool:
    """Return whether a node is an operation of Keras 3 that has no 16-bit kernel."""
    return node.site is None and not operation_facts(node.class_name).half_kernels


def joins_tensors(node: GraphNode) -> bool:
    """Return whether an operation puts several tensors into one as they are."""
    called = _called_class(node)
    if called.row is not None:
        return operation_facts(called.row.op).joins is not None
    definition = node.config.get("node_def")
    return isinstance(definition, dict) and definition.get("op") in _JOINS


def begins_with_constant(node: GraphNode) -> bool:
    """
    Return whether an op's first argument is a number, which Keras 2 makes a float32 tensor of.
    """
    pending: list[Argument] = [call.args[0] for call in node.calls if call.args]
    while pending:
        value = pending.pop()
        if isinstance(value, list):
            pending += value
        elif isinstance(value, Constant) and isinstance(value.value, float):
            return True
    return False


def _called_class(node: GraphNode) -> CalledClass:
    module = operation_facts(node.class_name).module or "" if node.site is None else None
    return CalledClass(class_name=node.class_name, config=node.config, module=module)
