"""The declaration of options, and the validation of their values."""

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
    Protocol,
    Self,
    Union,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
)

from policytool.support.errors import UsageError
from policytool.support.files.remote_path import check_local

StrPath = str | os.PathLike[str]


class LiveModel(Protocol):
    """A ``keras.Model`` of the calling program."""

    name: str

    def save(self, filepath: str) -> object:
        """Save the model."""


class ArrayValues(Protocol):
    """
    Arrays of the calling program: one, a list in the order of the inputs, a dict by name, or
    batches of them, such as a ``tf.data.Dataset`` or a generator.
    """


class Group(StrEnum):
    """The groups of options in help, in their order."""

    SELECTION = "Selection"
    POLICY = "Policy"
    FIX = "Fix"
    OUTPUT = "Output"
    INPUT = "Input"
    MEASUREMENT = "Measurement"
    SEARCH = "Search"
    TENSORFLOW = "TensorFlow"
    SAFETY = "Safety"
    REPORTING = "Reporting"
    GENERAL = "General"


class Kind(StrEnum):
    """The kind of a value that its annotation does not show; the command line has a type for it."""

    FILE = "file"
    """A local file."""

    LOCAL_OUTPUT = "local output"
    """A local file or directory, which may not exist."""

    OUTPUT = "output"
    """A local file or directory, which may not exist, or a URL."""

    INPUTS = "inputs"
    """A local file, or a function as ``MODULE:FUNCTION``."""

    LIMITS = "limits"
    """Values of limits, by name."""

    SIDES = "sides"
    """An interpreter, or one for each side of a conversion."""

    SWITCH_OR_AUTO = "switch or auto"
    """A switch, or None for automatic selection."""

    SWITCH_OR_CHOICE = "switch or choice"
    """A switch, or one of the choices: ``--in-place`` or ``--in-place=no-backup``."""


_LOCAL: Final = frozenset({Kind.FILE, Kind.LOCAL_OUTPUT, Kind.INPUTS})


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Values:
    """
    The base of classes with annotated attributes, which type checkers see as frozen dataclasses.

    It replaces ``dataclasses``, which compiles the methods of each class at import and would make
    each start of the command line slower.
    """

    _positional: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, *, kw_only: bool = True) -> None:
        """
        Record which attributes of a subclass are positional.

        :param kw_only: whether all attributes are keyword-only; if not, the attributes before
            ``_: KW_ONLY`` are positional
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

    def with_values(self, **values: object) -> Self:
        """Return a copy with other values."""
        return type(self)(**(vars(self) | values))


class Option(Values, kw_only=False):
    """The declaration of an option. The field has the name, the type and the default."""

    help: str
    group: Group
    _: KW_ONLY
    essential: bool = False
    """Whether ``--help`` shows the option; ``--help-all`` shows every option."""

    names: tuple[str, ...] = ()
    """Additional names on the command line, such as ``-o``."""

    metavar: str | None = None
    minimum: int | None = None
    default_text: str | None = None
    """The description of the default in help; None if the value itself describes it."""

    kind: Kind | None = None
    is_negatable: bool = False
    """Whether a switch has a name that turns it off, such as ``--no-backup``."""

    off_name: str | None = None
    """The name that turns the switch off, if it is not the name with ``no``."""

    has_variable: bool = False
    """Whether an environment variable can set the option."""

    is_setting: bool = True
    """Whether a settings file can set the option."""

    is_automatic: bool = False
    """
    Whether an automatically found settings file can set the option.

    A user who runs policytool in the checkout of someone else did not choose that file. It may
    select findings, the display and computation of results, and the content of new files. It must
    not set options that name files to write, replace models, select code to run, or raise limits.
    """

    is_automatic_value: Callable[[object], bool] | None = None
    """Returns whether such a file can set a value; None if it can set all values."""

    completion: str | None = None
    """The name of a function in ``policytool.cli.completion`` that completes values in shells."""


class DeclaredOption(NamedTuple):
    """An option with its name, type, default and declaration."""

    name: str
    """The Python name. The command line and settings files use hyphens instead of underscores."""

    annotation: object
    default: object
    declaration: Option

    @property
    def key(self) -> str:
        """The name in settings files, and after ``--`` on the command line."""
        return self.name.replace("_", "-")

    @property
    def variable(self) -> str | None:
        """The environment variable that sets the option; None if there is none."""
        return f"POLICYTOOL_{self.name.upper()}" if self.declaration.has_variable else None

    @property
    def types(self) -> tuple[object, ...]:
        """The types of the option's values, without None."""
        is_union = get_origin(self.annotation) in {Union, UnionType}
        parts = get_args(self.annotation) if is_union else (self.annotation,)
        return tuple(part for part in parts if part is not NoneType)

    @property
    def choices(self) -> tuple[str, ...]:
        """The allowed values of a choice, or of the items of a list; empty for other options."""
        parts = (item for part in self.types for item in (part, *get_args(part)))
        return next((get_args(part) for part in parts if get_origin(part) is Literal), ())

    @property
    def is_repeatable(self) -> bool:
        """Whether the option can be used several times on the command line."""
        return any(
            get_origin(part) in {Collection, Iterable, Mapping, tuple} for part in self.types
        )

    def words(self, value: object) -> list[str]:
        """Return the words of the command line that set a value; none for the default."""
        option, off = f"--{self.key}", self.declaration.off_name or f"no-{self.key}"
        if isinstance(value, bool) or value is None:
            return [] if value == self.default else [option if value else f"--{off}"]
        if self.declaration.kind is Kind.SWITCH_OR_CHOICE:
            return [f"{option}={value}"]
        texts = (os.fspath(value),) if isinstance(value, os.PathLike) else as_texts(value)  # type: ignore[arg-type]  # check() has accepted it
        if value == self.default:
            return []
        return [
            word
            for text in texts
            for word in ((f"{option}={text}",) if text.startswith("-") else (option, text))
        ]

    def check(self, value: object) -> None:
        """
        Check that the command line would also accept a value from Python.

        :raises UsageError: if the value is not one of the choices, is out of range, or has another
            type.
        """
        if value is None and self.default is None:
            return
        if self.choices and not (isinstance(value, bool) and bool in self.types):
            self._check_choice(value)
        if isinstance(value, str) and self.is_repeatable and str not in self.types:
            raise UsageError(f"{self.name} is the string {value!r}; expected a list of strings")
        if self.types == (str,) and not isinstance(value, str):
            raise UsageError(f"{self.name} is {value!r}; expected a string")
        if {*self.types} <= {bool, int, float} and not self._has_type(value):
            names = " or ".join(getattr(part, "__name__", str(part)) for part in self.types)
            raise UsageError(f"{self.name} is {value!r}; expected {names}")
        least = self.declaration.minimum
        if isinstance(value, int | float) and least is not None and value < least:
            raise UsageError(f"{self.name} {value} must be at least {least}")
        if self.declaration.kind in _LOCAL and isinstance(value, str):
            check_local(value, f"{self.name} ")

    def _check_choice(self, value: object) -> None:
        """
        Check that a value, or each item of a list, is one of the choices.

        :raises UsageError: if it is not.
        """
        items: Collection[object] = (value,)
        if self.is_repeatable:
            if isinstance(value, str) or not isinstance(value, Collection):
                raise UsageError(f"{self.name} is {value!r}; expected a list")
            items = value
        for item in items:
            if item not in self.choices:
                switch = ("True",) if bool in self.types else ()
                expected = " or ".join((*switch, *self.choices))
                raise UsageError(f"unknown {self.name} {item!r}; expected {expected}")

    def _has_type(self, value: object) -> bool:
        """Return whether the option supports the type of a number; an int is also a float."""
        if isinstance(value, int) and not isinstance(value, bool):
            return not {int, float}.isdisjoint(self.types)
        return type(value) in self.types


class Arguments(Values):
    """
    The values of the options of a call. Each annotation of a subclass declares an option, and the
    value of the attribute is its default.
    """

    @classmethod
    def options(cls) -> Iterator[DeclaredOption]:
        """Yield the declared options: first those of the class itself, and then of its bases."""
        for each in cls.__mro__:
            for name, annotation in vars(each).get("__annotations__", {}).items():
                if get_origin(annotation) is Annotated:
                    kind, declaration = get_args(annotation)
                    yield DeclaredOption(name, kind, vars(each)[name], declaration)

    def validate(self) -> None:
        """
        Check that the command line would also accept all values.

        :raises UsageError: for the first value that is not valid.
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


def as_path(value: StrPath | ArrayValues | None) -> Path | None:
    """Return a text as a path; None for None. Arrays were saved to a file before."""
    return Path(cast("StrPath", value)) if value is not None else None


def as_texts(value: Mapping[str, object] | Iterable[str] | float | None) -> tuple[str, ...]:
    """Return values as arguments of the command line: ``NAME=VALUE`` for an item of a mapping."""
    if value is None:
        return ()
    if isinstance(value, Mapping):
        return tuple(f"{name}={item}" for name, item in value.items())
    return (str(value),) if isinstance(value, str | int | float) else tuple(value)
