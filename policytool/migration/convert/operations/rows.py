"""
What a row of the correspondence is: one function of TensorFlow and the operation of Keras 3 that
computes the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from policytool.model.calls import Argument


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
    place: Place = Place.CONFIG
    default: Argument | Unset = REQUIRED
    """What TensorFlow takes for an argument that is left out or None."""

    default3: Argument | Unset = REQUIRED
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

    ignored: Mapping[str, tuple[Argument, ...]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    """Further parameters of the function, with the values that change nothing."""

    floats: bool = False
    """Whether both compute the same of floating-point tensors alone."""

    result: str | None = None
    """
    The dtype of the function's result; None for that of its tensors, ``@dtype`` for what an
    argument says, and where its default is None and it says nothing, that of its tensors.
    """

    result3: str | None = None
    """The same of the operation, where it is another."""

    outputs: int = 1
    """How many of its results the dtype is known of; those behind are of :attr:`others`."""

    others: str | None = None

    @property
    def call_arguments(self) -> tuple[Pair, ...]:
        """The arguments of the operation's call, in its order."""
        return tuple(pair for pair in self.pairs if pair.place is Place.CALL)


def tensor(
    tf: str,
    keras3: str = "x",
    *,
    kind: ParameterKind = ParameterKind.TENSOR,
    default: Argument | Unset = REQUIRED,
) -> Pair:
    """Return an argument that both are called with."""
    return Pair(
        tf=tf, keras3=keras3, kind=kind, place=Place.CALL, default=default, default3=default
    )


def option(
    tf: str,
    keras3: str | None = None,
    *,
    default: Argument | Unset = REQUIRED,
    default3: Argument | Unset = REQUIRED,
    kind: ParameterKind = ParameterKind.PLAIN,
) -> Pair:
    """Return an argument that Keras 3 has in the operation's config."""
    return Pair(tf=tf, keras3=keras3 or tf, kind=kind, default=default, default3=default3)


def unary(
    function: str,
    op: str,
    *more: str,
    of: str = "x",
    module: str = "numpy",
    floats: bool = False,
    result: str | None = None,
) -> OperationRow:
    """Return the row of a function of one tensor."""
    return OperationRow(
        functions=(function, *more),
        module=module,
        op=op,
        pairs=(tensor(of),),
        floats=floats,
        result=result,
    )


def binary(
    function: str, op: str, *more: str, floats: bool = False, result: str | None = None
) -> OperationRow:
    """Return the row of a function of two tensors."""
    return OperationRow(
        functions=(function, *more),
        module="numpy",
        op=op,
        pairs=(tensor("x", "x1"), tensor("y", "x2")),
        floats=floats,
        result=result,
    )
