"""
``Einsum`` of one tensor or two, as transpositions, sums and a product of matrices: an op layer of
Keras 2 that calls ``tf.einsum`` holds the equation and not the tensors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from policytool.migration.convert.rewrites.operations._building import UnsayableError
from policytool.model.calls import Reference
from policytool.releases import dtypes as names_of_dtypes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from policytool.migration.convert.architecture import Unit
    from policytool.migration.convert.rewrites.operations._building import OperationBuilder
    from policytool.migration.convert.tensor_dtypes import TensorDtypes
    from policytool.model.calls import Argument, Call

CLASS_NAME = "Einsum"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Term:
    """A tensor, and a letter for each axis of it."""

    tensor: Reference
    letters: str


def put_einsum(
    builder: OperationBuilder, unit: Unit, call: Call, dtypes: TensorDtypes
) -> Reference:
    """
    Add the functions that compute what an equation says, and return the result.

    :raises UnsayableError: for an equation that takes more than that
    """
    equation = str(unit.config.get("subscripts")).replace(" ", "")
    before, arrow, result = equation.partition("->")
    letters = before.split(",")
    tensors = [one for one in call.args if isinstance(one, Reference)]
    kinds = {dtypes.of(one) for one in tensors}
    if len(kinds) != 1 or not kinds <= set(names_of_dtypes.FLOATS):
        raise UnsayableError(
            "is an Einsum of tensors that do not share a float dtype, which "
            "policytool does not convert"
        )
    if (
        not arrow
        or "." in equation
        or len(tensors) != len(letters)
        or len(tensors) != len(call.args)
        or len(tensors) not in (1, 2)
        or any(len(set(part)) != len(part) for part in (*letters, result))
    ):
        raise UnsayableError(
            f"is an Einsum with the equation {equation}, which policytool cannot convert to a "
            "product"
        )
    terms = [
        _Term(tensor=tensor, letters=part) for tensor, part in zip(tensors, letters, strict=True)
    ]
    return _arranged(builder, _product(builder, terms, result), result).tensor


def _product(builder: OperationBuilder, terms: Sequence[_Term], result: str) -> _Term:
    """Return the product of two terms, with the axes that each has alone summed before."""
    if len(terms) == 1:
        return _summed(builder, terms[0], set(result))
    first, second = (
        _summed(builder, term, {*result, *other.letters})
        for term, other in zip(terms, reversed(terms), strict=True)
    )
    shared = [one for one in first.letters if one in second.letters]
    batch = "".join(one for one in shared if one in result)
    gone = "".join(one for one in shared if one not in result)
    left = "".join(one for one in first.letters if one not in shared)
    right = "".join(one for one in second.letters if one not in shared)
    if max(len(gone), len(left), len(right)) <= 1:
        return _matrices(builder, (first, second), (batch, left, gone, right))
    if batch:
        raise UnsayableError(
            "is an Einsum with batch axes that is not a plain matrix product; policytool does not "
            "convert this"
        )
    axes: list[Argument] = [[term.letters.index(one) for one in gone] for term in (first, second)]
    found = builder.function("tensordot", first.tensor, {"b": second.tensor, "axes": axes})
    return _Term(tensor=found, letters=left + right)


def _summed(builder: OperationBuilder, term: _Term, kept: set[str]) -> _Term:
    axes = [axis for axis, letter in enumerate(term.letters) if letter not in kept]
    if not axes:
        return term
    total = builder.function("math.reduce_sum", term.tensor, {"axis": [*axes]})
    return _Term(tensor=total, letters="".join(one for one in term.letters if one in kept))


def _matrices(
    builder: OperationBuilder, terms: tuple[_Term, _Term], axes: tuple[str, str, str, str]
) -> _Term:
    """Return a product of matrices; a term without rows or columns gets an axis of one for it."""
    batch, left, gone, right = axes
    sides = []
    for term, ends in zip(terms, ((left, gone), (gone, right)), strict=True):
        arranged = _arranged(builder, term, batch + "".join(ends)).tensor
        if not ends[0]:
            arranged = builder.function("expand_dims", arranged, {"axis": -2 if ends[1] else -1})
        if not ends[1]:
            arranged = builder.function("expand_dims", arranged, {"axis": -1})
        sides.append(arranged)
    found = builder.function("linalg.matmul", sides[0], {"b": sides[1]})
    lone = [axis for axis, letter in ((-2, left), (-1, right)) if not letter]
    if lone:
        found = builder.function("squeeze", found, {"axis": [*lone]})
    return _Term(tensor=found, letters=batch + left + right)


def _arranged(builder: OperationBuilder, term: _Term, letters: str) -> _Term:
    """
    Return a term with its axes in this order.

    :raises UnsayableError: where it has not all of them
    """
    if set(letters) != set(term.letters):
        raise UnsayableError("is an Einsum whose result has an axis that no input has")
    if letters == term.letters:
        return term
    order = [term.letters.index(one) for one in letters]
    turned = builder.function("transpose", term.tensor, {"perm": [*order]})
    return _Term(tensor=turned, letters=letters)
