"""
Which ops a graph may hold to run without ``--trust``.

``data/pure_ops.json`` is the reviewed list. An op that is not on it, such as one that a newer
TensorFlow adds, is not pure.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from policytool.releases import data

if TYPE_CHECKING:
    from collections.abc import Mapping


@cache
def _pure() -> frozenset[str]:
    return frozenset(name for group in data.read("pure_ops")["ops"].values() for name in group)


def is_pure_op(name: str) -> bool:
    """
    Return whether an op is on the list, wherever it stands in a graph and whatever its inputs and
    attributes are.
    """
    return name in _pure()


def path_inputs(name: str) -> tuple[int, ...]:
    """
    Return which inputs of an op of TensorFlow's savers and tables hold paths; none for all other
    ops.
    """
    return tuple(data.read("pure_ops")["positions"].get(name, ()))


def attribute_values(name: str) -> Mapping[str, tuple[str, ...]]:
    """
    Return which attributes of an op decide whether it is pure, with the values that they may have;
    nothing for ops whose attributes do not matter.
    """
    return {
        key: tuple(values)
        for key, values in data.read("pure_ops")["attributes"].get(name, {}).items()
    }


@cache
def placed_ops() -> frozenset[bytes]:
    """
    Return the ops that are pure by where they stand, or by their attributes, as graphs have their
    names.
    """
    return frozenset(
        name.encode()
        for name in (*data.read("pure_ops")["positions"], *data.read("pure_ops")["attributes"])
    )


@cache
def calling_ops() -> frozenset[bytes]:
    """Return the pure ops that call functions of the graph, as graphs have their names."""
    return frozenset(name.encode() for name in data.read("pure_ops")["calling"])


def is_placed_op(name: str) -> bool:
    """Return whether an op is one of those."""
    return name.encode() in placed_ops()
