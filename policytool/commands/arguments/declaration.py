"""How an option is declared, and what its declaration says about values."""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import KW_ONLY
from enum import StrEnum
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    Literal,
    NamedTuple,
    NoReturn,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
)

from policytool.support.errors import UsageError
from policytool.support.files.remote_path import check_local

StrPath = str | os.PathLike[str]


class Group(StrEnum):
    """The groups of options in help, in their order."""

    SELECTION = "Selection"
    POLICY = "Policy"
    FIX = "Fix"
    OUTPUT = "Output"
    SAFETY = "Safety"
    INPUT = "Input"
    MEASUREMENT = "Measurement"
    SEARCH = "Search"
    TENSORFLOW = "TensorFlow"
    REPORTING = "Reporting"
    GENERAL = "General"


class Kind(StrEnum):
    """What a value is if its annotation does not say it: the command line has a type for each."""

    FILE = "file"
    """A local file."""

    LOCAL_OUTPUT = "local output"
    """A local file or directory that need not exist."""

    OUTPUT = "output"
    """The same, or a URL."""

    INPUTS = "inputs"
    """A local file, or a function as ``MODULE:FUNCTION``."""

    LIMITS = "limits"
    """Limits by their names."""

    SIDES = "sides"
    """An interpreter, or one for each side of a conversion."""

    SWITCH_OR_AUTO = "switch or auto"
    """A switch that is None if the call decides."""


_LOCAL: Final = frozenset({Kind.FILE, Kind.LOCAL_OUTPUT, Kind.INPUTS})


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Values:
    """
    A value with annotated attributes, which type checkers see as a frozen dataclass.

    ``dataclasses`` compiles the methods of each class when its module is imported, for which every
    start of the command line would wait.
    """

    _positional: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, *, kw_only: bool = True) -> None:
        """
        Note the attributes of a subclass.

        :param kw_only: whether those that the subclass adds can only be named; if not, they are
            positional up to ``_: KW_ONLY``
        """
        if not kw_only:
            names = (*vars(cls)["__annotations__"], "_")
            cls._positional = names[: names.index("_")]

    def __init__(self, *positional: Any, **values: Any) -> None:  # noqa: ANN401  # those of subclasses
        values |= dict(zip(self._positional, positional, strict=False))
        for name in values:
            if not hasattr(type(self), name) and name not in self._positional:
                raise TypeError(f"{type(self).__name__} has no attribute {name!r}")
        vars(self).update(values)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{type(self).__name__}.{name} cannot be changed")


class Option(Values, kw_only=False):
    """What is declared about an option; its field has the name, the type and the default."""

    help: str
    group: Group
    _: KW_ONLY
    essential: bool = False
    """Whether ``--help`` shows it; ``--help-all`` shows every option."""

    names: tuple[str, ...] = ()
    """Further names on the command line, such as ``-o``."""

    metavar: str | None = None
    minimum: int | None = None
    more_than: float | None = None
    default_text: str | None = None
    """The default in words, if the value does not say it."""

    kind: Kind | None = None
    is_negatable: bool = False
    """Whether a switch has a name that turns it off, such as ``--no-backup``."""

    off_name: str | None = None
    """The name that turns it off, if it is not the name with ``no``."""

    has_variable: bool = False
    """Whether an environment variable can set it."""

    is_setting: bool = True
    """Whether a settings file can set it."""

    is_automatic: bool = False
    """
    Whether an automatically found settings file can set it.

    A user who runs the tool in a stranger's checkout did not choose that file. It may say which
    findings count, how results are shown and computed, and what a new file contains. Other options
    name files to write, replace models, say which code runs, or raise limits.
    """

    is_automatic_value: Callable[[object], bool] | None = None
    """Returns whether such a file can set this value, if it cannot set every value."""

    completion: str | None = None
    """What shells offer: the name of a function in ``policytool.cli.completion``."""


class DeclaredOption(NamedTuple):
    """An option with what its field says."""

    name: str
    """The Python name; that of the command line and of settings files has hyphens."""

    annotation: object
    default: object
    declaration: Option

    @property
    def key(self) -> str:
        """The name in settings files, and after ``--`` on the command line."""
        return self.name.replace("_", "-")

    @property
    def variable(self) -> str | None:
        """The environment variable that sets it; None if there is none."""
        return f"POLICYTOOL_{self.name.upper()}" if self.declaration.has_variable else None

    @property
    def types(self) -> tuple[object, ...]:
        """The types of its values, without None."""
        is_union = get_origin(self.annotation) in {Union, UnionType}
        parts = get_args(self.annotation) if is_union else (self.annotation,)
        return tuple(part for part in parts if part is not NoneType)

    @property
    def choices(self) -> tuple[str, ...]:
        """The values of a choice, or of the items of a list; nothing for other options."""
        parts = (item for part in self.types for item in (part, *get_args(part)))
        return next((get_args(part) for part in parts if get_origin(part) is Literal), ())

    @property
    def is_repeatable(self) -> bool:
        """Whether the command line can have it several times."""
        return any(
            get_origin(part) in {Collection, Iterable, Mapping, tuple} for part in self.types
        )

    def check(self, value: object) -> None:
        """
        Make sure that a value from Python is one that the command line accepts.

        :raises UsageError: for another choice, a number outside the range, and another type.
        """
        if value is None and self.default is None:
            return
        if self.choices:
            self._check_choice(value)
        if isinstance(value, str) and self.is_repeatable and str not in self.types:
            raise UsageError(f"{self.name} is the string {value!r}; expected a list of strings")
        if self.types == (str,) and not isinstance(value, str):
            raise UsageError(f"{self.name} is {value!r}; expected a string")
        if {*self.types} <= {bool, int, float} and not self._has_type(value):
            names = " or ".join(getattr(part, "__name__", str(part)) for part in self.types)
            raise UsageError(f"{self.name} is {value!r}; expected {names}")
        least, bound = self.declaration.minimum, self.declaration.more_than
        if isinstance(value, int | float) and least is not None and value < least:
            raise UsageError(f"{self.name} {value} must be at least {least}")
        if isinstance(value, int | float) and bound is not None and not value > bound:
            raise UsageError(f"{self.name} {value} must be more than {bound:g}")
        if self.declaration.kind in _LOCAL and isinstance(value, str):
            check_local(value, f"{self.name} ")

    def _check_choice(self, value: object) -> None:
        """
        Make sure that a value, or each item of a list, is one of the choices.

        :raises UsageError: if it is not.
        """
        items: Collection[object] = (value,)
        if self.is_repeatable:
            if isinstance(value, str) or not isinstance(value, Collection):
                raise UsageError(f"{self.name} is {value!r}; expected a list")
            items = value
        for item in items:
            if item not in self.choices:
                expected = " or ".join(self.choices)
                raise UsageError(f"unknown {self.name} {item!r}; expected {expected}")

    def _has_type(self, value: object) -> bool:
        """Return whether a number is of a type of the option, of which int is also a float."""
        if isinstance(value, int) and not isinstance(value, bool):
            return not {int, float}.isdisjoint(self.types)
        return type(value) in self.types


class Arguments(Values):
    """
    The values of the options of a call: each annotation of a subclass is an argument, whose default
    is the value of the attribute.
    """

    @classmethod
    def options(cls) -> Iterator[DeclaredOption]:
        """Yield the declared options: first those of the class itself, then those of its bases."""
        for each in cls.__mro__:
            for name, annotation in vars(each).get("__annotations__", {}).items():
                if get_origin(annotation) is Annotated:
                    kind, declaration = get_args(annotation)
                    yield DeclaredOption(name, kind, vars(each)[name], declaration)

    def validate(self) -> None:
        """
        Make sure that every value is one that the command line accepts.

        :raises UsageError: for the first that is not.
        """
        for declared in self.options():
            declared.check(getattr(self, declared.name))


class LimitArguments(Arguments):
    """Limits that a call sets."""

    limit: Annotated[
        Mapping[str, int] | None,
        Option(
            "Set a limit, such as json-bytes=1GiB; `policytool explain limits` lists all limits.",
            Group.SAFETY,
            kind=Kind.LIMITS,
            metavar="NAME=VALUE",
            has_variable=True,
            completion="limits",
        ),
    ] = None


def as_path(value: StrPath | None) -> Path | None:
    """Return a path; None for None."""
    return Path(value) if value is not None else None


def as_texts(value: Mapping[str, object] | Iterable[str] | float | None) -> tuple[str, ...]:
    """Return values as the texts that the command line has: ``NAME=VALUE`` for a mapping."""
    if value is None:
        return ()
    if isinstance(value, Mapping):
        return tuple(f"{name}={item}" for name, item in value.items())
    return (str(value),) if isinstance(value, str | int | float) else tuple(value)
