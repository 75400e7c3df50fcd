"""Which variables of two layers belong together, and how their values compare."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from policytool.comparison.result import ComparisonVerdict, ValueComparison, VariablePair

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from policytool.formats.document import Tensor
    from policytool.formats.stored_values import Values as Stored
    from policytool.model.model import Variable

    Named = tuple[Variable, Tensor]

UNREAD: Final = "values were not read"


@dataclass(frozen=True, kw_only=True, slots=True)
class Opened:
    """
    The values of both models; None for one that stores none, or whose values were not asked for.
    """

    a: Stored | None = None
    b: Stored | None = None
    reason: str = UNREAD
    """Why values are not compared where one is None."""


def pairs(a: Sequence[Named], b: Sequence[Named], opened: Opened) -> tuple[VariablePair, ...]:
    """
    Pair the variables of two layers: those of A in their order, then those that are only in B.
    """
    matched = _pair_variables(a, b, opened)
    at = {id(named_a): (named_b, by) for named_a, named_b, by in matched}
    taken = {id(named_b) for _, named_b, _ in matched}
    result = []
    for named_a in a:
        named_b, by = at.get(id(named_a), (None, None))
        values = compare_variables(named_a, named_b, opened) if named_b is not None else _missing()
        result.append(
            VariablePair(
                a=named_a[0],
                b=named_b[0] if named_b is not None else None,
                values=values,
                paired=by,
            )
        )
    return (
        *result,
        *(
            VariablePair(a=None, b=named_b[0], values=_missing())
            for named_b in b
            if id(named_b) not in taken
        ),
    )


def paired_by_slot(a: Named | None, b: Named | None, opened: Opened) -> VariablePair:
    """Return two variables that mean the same, or one that is in one file only."""
    if a is None or b is None:
        return VariablePair(a=a[0] if a else None, b=b[0] if b else None, values=_missing())
    return VariablePair(a=a[0], b=b[0], values=compare_variables(a, b, opened), paired="slot")


def partners(a: Sequence[Named], b: Sequence[Named], opened: Opened) -> dict[Tensor, Tensor]:
    """Return the stored variables of a layer, each with its counterpart in another layer."""
    return {named_a[1]: named_b[1] for named_a, named_b, _ in _pair_variables(a, b, opened)}


def one_sided(
    a: Sequence[Named], b: Sequence[Named], reason: str | None = None
) -> tuple[VariablePair, ...]:
    """
    Return variables that are in one file; with a reason they are not compared, as the other could
    not hold them.
    """
    values = (
        ValueComparison(verdict=ComparisonVerdict.NOT_COMPARED, reason=reason)
        if reason
        else _missing()
    )
    return (
        *(VariablePair(a=variable, b=None, values=values) for variable, _ in a),
        *(VariablePair(a=None, b=variable, values=values) for variable, _ in b),
    )


def compare_variables(a: Named, b: Named, opened: Opened) -> ValueComparison:
    """Compare the values of two variables."""
    (variable_a, tensor_a), (variable_b, tensor_b) = a, b
    if variable_a.shape != variable_b.shape:
        return ValueComparison(verdict=ComparisonVerdict.DIFFERENT, reason="shapes differ")
    if opened.a is None or opened.b is None:
        return ValueComparison(verdict=ComparisonVerdict.NOT_COMPARED, reason=opened.reason)
    from policytool.comparison import numbers

    return numbers.compare_streams(
        opened.a.blocks(tensor_a), opened.b.blocks(tensor_b), (variable_a.dtype, variable_b.dtype)
    )


def _missing() -> ValueComparison:
    return ValueComparison(verdict=ComparisonVerdict.DIFFERENT, reason="only in one file")


def _pair_variables(
    a: Sequence[Named], b: Sequence[Named], opened: Opened
) -> list[tuple[Named, Named, str]]:
    """
    Pair variables by name. Since one file may have numbers as names, pair the rest by their order
    among the variables of the same shape.
    """
    by_name = _pair_by(a, b, "name", lambda named: named[0].name)
    left_a, left_b = _left(a, b, by_name)
    if not left_a or not left_b:
        return by_name
    return [
        *by_name,
        *_pair_by(
            _in_layer_order(left_a, opened.a),
            _in_layer_order(left_b, opened.b),
            "order",
            lambda named: named[0].shape,
        ),
    ]


def _in_layer_order(named: Sequence[Named], values: Stored | None) -> Sequence[Named]:
    """Return variables in the order in which their layer created them, if the file stores it."""
    if values is None:
        return named
    by_tensor: dict[Tensor, list[Named]] = defaultdict(list)
    for variable in named:
        by_tensor[variable[1]].append(variable)
    return [
        by_tensor[tensor].pop(0) for tensor in values.in_order(tuple(tensor for _, tensor in named))
    ]


def _pair_by(
    a: Sequence[Named], b: Sequence[Named], what: str, key: Callable[[Named], Hashable]
) -> list[tuple[Named, Named, str]]:
    """Pair, in their order, the variables of each key that both layers have equally often."""
    groups: dict[Hashable, tuple[list[Named], list[Named]]] = defaultdict(lambda: ([], []))
    for side, named in ((0, a), (1, b)):
        for variable in named:
            groups[key(variable)][side].append(variable)
    same = (group for group in groups.values() if len(group[0]) == len(group[1]))
    return [
        (named_a, named_b, what)
        for group_a, group_b in same
        for named_a, named_b in zip(group_a, group_b, strict=True)
    ]


def _left(
    a: Sequence[Named], b: Sequence[Named], matched: list[tuple[Named, Named, str]]
) -> tuple[list[Named], list[Named]]:
    taken = {id(named) for named_a, named_b, _ in matched for named in (named_a, named_b)}
    return [variable for variable in a if id(variable) not in taken], [
        variable for variable in b if id(variable) not in taken
    ]
