"""
What is known of TensorFlow's ops: which lists of automatic mixed precision they stand on, which
dtypes they have whatever their attributes say, and which numbers they take.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from policytool.releases import data

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

ALLOW: Final = "allow"
"""
The list of ops that are faster in 16 bits: matrix products, convolutions, and RNN kernels. They
determine the traced dtype of a layer.
"""


class _Ops(Struct, frozen=True, kw_only=True):
    """The package's data by the name of the op."""

    amp: Mapping[str, Mapping[str, str]]
    fixed: Mapping[str, Sequence[str]]
    held: Mapping[str, Sequence[str]]
    defaults: Mapping[str, Mapping[str, Sequence[str]]]
    int32: frozenset[str]
    later: Mapping[str, str]


def moves_values(op: str) -> bool:
    """Return whether an op only passes values on, shapes them or stores them."""
    return "moves_values" in _facts(op)


def multiplies_bytes(op: str) -> bool:
    """Return whether an op multiplies matrices of any dtype, also of integers of 8 bits."""
    return "multiplies_bytes" in _facts(op)


def path_inputs(op: str, inputs: Sequence[str]) -> Sequence[str]:
    """Return the inputs of an op that must be paths for its result to be a path."""
    input_positions = _facts(op).get("path_inputs")
    if input_positions is None:
        return ()
    return {"first": inputs[:1], "all": inputs, "all_but_first": inputs[1:]}[input_positions]


def amp_list(op: str, dtype: str) -> str | None:
    """
    Return the list of automatic mixed precision that contains the op: a list for bfloat16 if the op
    computes in bfloat16, otherwise a list for float16; None if no list contains the op.

    Source: tensorflow/core/grappler/optimizers/auto_mixed_precision_lists.h, by
    fixtures/graph_ops.py.
    """
    return _ops().amp["bfloat16" if dtype == "bfloat16" else "float16"].get(op)


def dtypes(op: str, attributes: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """
    Return the float dtypes of an op's inputs and outputs.

    Attributes that no input or output uses do not count, and attributes that are missing in the
    file have their defaults.

    :param attributes: the float dtypes that each attribute names; empty for every other attribute
        in the file.
    """
    ops = _ops()
    unused_attributes = ops.held.get(op, ())
    float_dtypes = {
        dtype
        for key, named_dtypes in attributes.items()
        if key not in unused_attributes
        for dtype in named_dtypes
    }
    float_dtypes.update(ops.fixed.get(op, ()))
    float_dtypes.update(
        dtype
        for key, named_dtypes in ops.defaults.get(op, {}).items()
        if key not in attributes
        for dtype in named_dtypes
    )
    return tuple(sorted(float_dtypes))


def accepts(op: str, number: float, dtypes: Collection[str]) -> bool:
    """
    Return whether a number, which becomes a tensor of float32 or int32, can be an input of an op.

    :param dtypes: the dtypes that attributes of the op name, such as ``int64``
    """
    if isinstance(number, float):
        return "float32" in (*dtypes, *_ops().fixed.get(op, ()))
    takes_integers = any("int" in dtype for dtype in dtypes)
    return not takes_integers or "int32" in dtypes or op in _ops().int32


def newest_without(op: str) -> str | None:
    """Return the newest tested release of TensorFlow that lacks an op; None if all have it."""
    return _ops().later.get(op)


@cache
def _ops() -> _Ops:
    facts = data.read("graph_ops")
    return _Ops(
        amp=facts["amp"],
        fixed=facts["fixed"],
        held=facts["held"],
        defaults=facts["defaults"],
        int32=frozenset(facts["int32"]),
        later=facts["later"],
    )


def _facts(op: str) -> Mapping[str, Any]:
    facts: Mapping[str, Any] = data.read("graph_op_facts")["ops"].get(op, {})
    return facts
