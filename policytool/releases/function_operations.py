"""
The functions of TensorFlow and the operations of Keras 3 that compute the same, one row each.

``data/function_operations.json`` has the rows, and the dtypes of results that no row says; its
schema describes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from policytool.releases import data

if TYPE_CHECKING:
    from collections.abc import Mapping

Scalar: TypeAlias = "bool | int | float | str | None"


class Unset(Enum):
    """No value, where None is one."""

    REQUIRED = "required"


REQUIRED: Final = Unset.REQUIRED
"""The default of a parameter that has none."""


class Place(StrEnum):
    """Where Keras 3 has an argument."""

    CALL = "call"
    CONFIG = "config"


class ParameterKind(StrEnum):
    """What an argument is."""

    TENSOR = "tensor"
    """A tensor, an array or a number, which is promoted with the others."""

    TENSORS = "tensors"
    """A list of such."""

    FREE = "free"
    """A tensor, an array or a number of a dtype of its own: a condition, an index."""

    PLAIN = "plain"
    """Numbers, words and lists of them."""

    DTYPE = "dtype"
    SHAPE = "shape"
    """A list of numbers, of which one may be a tensor: it is what is left over."""

    AXES = "axes"
    """
    One axis or several: TensorFlow's ``reverse`` wants a list, Keras 3.0 and 3.3 one number where
    there is one.
    """

    LIST = "list"
    """One axis or several, of which Keras 3.0 and 3.3 want a list."""

    SPLITS = "splits"
    """A number of parts; or TensorFlow's sizes, which are Keras 3's places of the cuts."""

    MODE = "mode"
    """A word that TensorFlow has in capitals."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """One argument on both sides."""

    tf: str
    keras3: str
    kind: ParameterKind = ParameterKind.PLAIN
    place: Place = Place.CALL
    default: Scalar | Unset = REQUIRED
    """What TensorFlow takes for an argument that is left out or None."""

    default3: Scalar | Unset = REQUIRED
    """The same of Keras 3."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OperationRow:
    """One function and one operation."""

    functions: tuple[str, ...]
    """
    Names that TensorFlow's op layers write, the one that is written here first; the first pair is
    the function's first parameter.
    """

    module: str
    """Of Keras 3: ``numpy``, ``nn``, ``math``, ``core``, ``image``, ``linalg``."""

    op: str
    pairs: tuple[Pair, ...]
    """In the order of the operation's call; the arguments of its constructor behind them."""

    ignored: Mapping[str, tuple[Scalar, ...]]
    """Further parameters of the function, with the values that change nothing."""

    floats: bool
    """Whether both compute the same of floating-point tensors alone."""

    result: str | None
    """
    The dtype of the function's result; None for that of its tensors, ``@dtype`` for what an
    argument says, and where its default is None and it says nothing, that of its tensors.
    """

    result3: str | None
    """The same of the operation, where it is another."""

    others: str | None
    """The dtype of all results but the first, where it is another."""

    @property
    def call_arguments(self) -> tuple[Pair, ...]:
        """The arguments of the operation's call, in its order."""
        return tuple(pair for pair in self.pairs if pair.place is Place.CALL)


@cache
def operation_rows() -> tuple[OperationRow, ...]:
    """Return all rows."""
    return tuple(map(_row, data.read("function_operations")["rows"]))


@cache
def rows_by_function() -> Mapping[str, OperationRow]:
    """Return the first row of each function."""
    return MappingProxyType(
        {name: row for row in reversed(operation_rows()) for name in row.functions}
    )


@cache
def rows_by_operation() -> Mapping[tuple[str, str], OperationRow]:
    """Return the first row of each operation, by its module and its class."""
    return MappingProxyType({(row.module, row.op): row for row in reversed(operation_rows())})


def operation_results() -> Mapping[str, str | None]:
    """
    Return the result dtypes of operations that are not in the operation table, unless the result
    has the float dtype of their tensors: ``first`` for the dtype of the first argument, None if it
    depends on more.
    """
    results: Mapping[str, str | None] = data.read("function_operations")["operation_results"]
    return results


def function_result(function: str, arguments: Mapping[str, object]) -> tuple[str | None, bool]:
    """
    Return the result dtype, if it is always the same, of a function that is not in the operation
    table, and whether that is the dtype of the first argument.
    """
    result = data.read("function_operations")["function_results"].get(function)
    if isinstance(result, dict):
        takes_first = any(arguments.get(key) in values for key, values in result["first"].items())
        return (None if takes_first else result["dtype"]), takes_first
    return (None, True) if result == "first" else (result, False)


def _row(entry: Mapping[str, Any]) -> OperationRow:
    module, _, op = entry["operation"].partition(".")
    return OperationRow(
        functions=tuple(entry["functions"]),
        module=module,
        op=op,
        pairs=tuple(map(_pair, entry["arguments"])),
        ignored=MappingProxyType(
            {name: tuple(values) for name, values in entry.get("ignored", {}).items()}
        ),
        floats=entry.get("floats", False),
        result=entry.get("result"),
        result3=entry.get("operation_result"),
        others=entry.get("further_results"),
    )


def _pair(entry: Mapping[str, Any]) -> Pair:
    return Pair(
        tf=entry["function"],
        keras3=entry.get("operation", entry["function"]),
        kind=ParameterKind(entry.get("kind", "plain")),
        place=Place.CONFIG if entry.get("constructor") else Place.CALL,
        default=entry.get("default", REQUIRED),
        default3=entry.get("operation_default", REQUIRED),
    )
