"""
The options and positional arguments of the command line, created from declarations, and the types
of their values.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.shell_completion import CompletionItem
from msgspec import Struct

from policytool.cli import completion
from policytool.commands.arguments.declaration import DeclaredOption, Kind, Option
from policytool.commands.batch.task import MOST, Shard
from policytool.support import limits
from policytool.support.errors import UsageError, short
from policytool.support.files.remote_path import check_local

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from policytool.commands.arguments.declaration import Arguments
    from policytool.support.limits import Limit

AUTO: Final = "auto"
"""The value of a switch with which the call decides."""

SWITCHED_ON: Final = "true"
"""The value of a switch that may have a value, but has none on the command line."""

STDOUT_IS_RESERVED: Final = "stdout is reserved for a FORMAT without a file; specify a file"

_SHARD: Final = re.compile(r"([0-9]{1,9})/([0-9]{1,9})")
_SIDES: Final = ("source=", "target=")
_BEFORE_SIDE: Final = re.compile(f",(?={'|'.join(_SIDES)})")


class LocalPath(click.Path):
    """A path that is not a URL."""

    def convert(
        self,
        value: Any,  # noqa: ANN401  # as in Click
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> str | bytes | os.PathLike[str]:
        """Return the path."""
        if isinstance(value, str):
            check_local(value, f"{param.opts[0] if param is not None else 'path'} ")
        return super().convert(value, param, ctx)


class Inputs(click.ParamType):  # type: ignore[type-arg]  # generic from Click 8.3 on alone
    """A file, or a function as ``MODULE:FUNCTION``."""

    name = "inputs"

    def convert(
        self, value: str, _param: click.Parameter | None, _ctx: click.Context | None
    ) -> str:
        """Return the text, which is no URL."""
        check_local(value, "--inputs ")
        return value

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Offer files."""
        return completion.files(ctx, param, incomplete)


class ReportFile(Struct, frozen=True, kw_only=True):
    """One further report: its format, and where it goes."""

    format: str
    path: Path
    is_directory: bool = False
    """Whether it becomes several files in this directory, which is created."""

    def __str__(self) -> str:
        return f"{self.format}={self.path}"


class FormatType(click.ParamType):  # type: ignore[type-arg]  # generic from Click 8.3 on alone
    """``FORMAT`` for the report on stdout, or ``FORMAT=FILE`` for one in a file."""

    name = "format[=file]"
    envvar_list_splitter = os.pathsep

    def __init__(
        self, formats: Sequence[str], directories: Sequence[str], on_stdout: Sequence[str]
    ) -> None:
        """
        Create the type.

        :param formats: the formats of files
        :param directories: those that can be several files in a directory
        :param on_stdout: the formats of stdout
        """
        self._formats, self._directories, self._on_stdout = formats, directories, on_stdout

    def convert(
        self,
        value: str | ReportFile,
        parameter: click.Parameter | None,
        context: click.Context | None,
    ) -> str | ReportFile:
        """Return the format of stdout, or the format and the file."""
        if isinstance(value, ReportFile) or value in self._on_stdout:
            return value
        name, _, file = value.partition("=")
        if name not in self._formats or not file:
            self.fail(
                f"{short(value)!r} does not have the form FORMAT, such as json, or FORMAT=FILE, "
                f"such as json=report.json; FORMAT is one of {', '.join(self._on_stdout)}.",
                parameter,
                context,
            )
        if file == "-":
            self.fail(f"{value!r}: {STDOUT_IS_RESERVED}.", parameter, context)
        check_local(file, f"--format {name}=")
        names_directory = file.endswith(("/", os.sep))  # which Path forgets
        if names_directory and name not in self._directories:
            self.fail(f"{value!r} is a directory; specify a file in it.", parameter, context)
        is_directory = name in self._directories and (names_directory or os.path.isdir(file))  # noqa: PTH112  # which raises nothing
        return ReportFile(format=name, path=Path(file), is_directory=is_directory)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Offer the formats."""
        del ctx, param
        return [CompletionItem(name) for name in self._on_stdout if name.startswith(incomplete)]


class Size(click.ParamType):  # type: ignore[type-arg]  # generic from Click 8.3 on alone
    """A number of bytes: ``8G``, ``512M``, ``100000``."""

    name = "size"
    _units: Final = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}

    def convert(
        self, value: object, parameter: click.Parameter | None, context: click.Context | None
    ) -> int:
        """Return the number of bytes for a text such as ``512M``."""
        match = re.fullmatch(r"([0-9]{1,15})([KMGT]?)(?:i?B)?", str(value).strip(), re.IGNORECASE)
        if match is None or not int(match[1]):
            self.fail(
                (
                    f"{value!r} is not a size; expected a number followed by K, M, G or T, such "
                    "as 8G"
                ),
                parameter,
                context,
            )
        return int(match[1]) * self._units[match[2].upper()]


class Bound(Struct, frozen=True, kw_only=True):
    """What ``--limit`` says."""

    limit: Limit
    value: int

    def toml(self) -> str:
        """Return the bound as a value of a settings file."""
        return f'"{self.limit.name}={self.limit.amount(self.value, gap="")}"'


class BoundOption(click.ParamType):  # type: ignore[type-arg]  # generic from Click 8.3 on alone
    """``NAME=VALUE``: a limit, and the bytes or the number that it is raised to."""

    name = "limit"

    def convert(
        self, value: object, parameter: click.Parameter | None, context: click.Context | None
    ) -> Bound:
        """Return the limit and its new value for a text ``NAME=VALUE``."""
        if isinstance(value, Bound):
            return value
        name, equals, text = str(value).strip().partition("=")
        if not equals:
            self.fail(
                f"{value!r} does not have the form NAME=VALUE; `policytool explain limits` lists "
                "the names",
                parameter,
                context,
            )
        limit = limits.limit_from_name(name)
        if limit.unit == limits.BYTES:
            return Bound(limit=limit, value=limit.check(Size().convert(text, parameter, context)))
        if not re.fullmatch(r"[0-9]{1,18}", text):
            self.fail(f"{text!r} is not a number of {limit.unit}", parameter, context)
        return Bound(limit=limit, value=limit.check(int(text)))


def is_number(value: object) -> bool:
    """Return whether a value, or a text, is a number without a sign."""
    return str(value).isdecimal()


class JobsType(click.ParamType):  # type: ignore[type-arg]  # generic from Click 8.3 on alone
    """A number of processes, or the address of a Dask scheduler."""

    name = "number|address"

    def convert(
        self, value: object, parameter: click.Parameter | None, context: click.Context | None
    ) -> int | str:
        """Return the number, or the address."""
        text = str(value)
        if is_number(text) and int(text):
            return int(text)
        if ":" not in text:
            self.fail(
                f"{short(text)!r} is neither a number of processes nor the address of a Dask "
                "scheduler, such as tcp://10.0.0.5:8786",
                parameter,
                context,
            )
        return text


class ShardOption(click.ParamType):  # type: ignore[type-arg]  # generic from Click 8.3 on alone
    """``I/N``, such as ``3/16``."""

    name = "shard"

    def convert(
        self, value: object, parameter: click.Parameter | None, context: click.Context | None
    ) -> Shard:
        """Return the shard for a text such as 3/16."""
        if isinstance(value, Shard):
            return value
        match = _SHARD.fullmatch(str(value).strip())
        index, count = (int(match[1]), int(match[2])) if match is not None else (0, 0)
        if not 1 <= index <= count <= MOST:
            self.fail(
                f"{value!r} does not have the form I/N with 1 <= I <= N <= {MOST:,}, such as 3/16",
                parameter,
                context,
            )
        return Shard(index=index, count=count)


class Side(click.ParamType):  # type: ignore[type-arg]  # generic from Click 8.3 on alone
    """
    An interpreter for both sides of a conversion, or for one: ``PYTHON``, ``source=PYTHON`` or
    ``target=PYTHON``, or both with a comma between them.
    """

    name = "python"
    envvar_list_splitter = os.pathsep

    def convert(
        self,
        value: str | tuple[tuple[str, str], ...],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> tuple[tuple[str, str], ...]:
        """Return each side, which is empty for both, and its interpreter."""
        if isinstance(value, tuple):
            return value
        if not value.startswith(_SIDES):
            return (("", value),)
        pairs = [part.partition("=") for part in _BEFORE_SIDE.split(value)]
        if not all(python for _, _, python in pairs):
            self.fail(f"{value!r} does not specify an interpreter", param, ctx)
        return tuple((side, python) for side, _, python in pairs)


class SwitchOrAuto(click.types.BoolParamType):
    """A switch that settings and variables may also set to ``auto``."""

    name = "boolean|auto"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:  # noqa: ANN401  # Click's class says bool
        """Return True, False or :data:`AUTO`."""
        return AUTO if value == AUTO else super().convert(value, param, ctx)


class SwitchOrChoice(click.types.BoolParamType):
    """A switch that may also have one of several values."""

    name = "boolean|choice"

    def __init__(self, choices: Sequence[str]) -> None:
        self.choices = tuple(choices)

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:  # noqa: ANN401  # Click's class says bool
        """Return True, False or a choice."""
        if value in self.choices or isinstance(value, bool):
            return value
        if value == SWITCHED_ON:
            return True
        return self.fail(
            f"{short(str(value))!r} is unknown; expected {' or '.join(self.choices)}, or no value.",
            param,
            ctx,
        )

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Offer the choices."""
        del ctx, param
        return [CompletionItem(name) for name in self.choices if name.startswith(incomplete)]


_TYPES: Final[Mapping[Kind, click.ParamType[Any]]] = {
    Kind.FILE: LocalPath(path_type=Path),
    Kind.LOCAL_OUTPUT: LocalPath(readable=False),
    Kind.OUTPUT: click.Path(readable=False),
    Kind.INPUTS: Inputs(),
    Kind.LIMITS: BoundOption(),
    Kind.SIDES: Side(),
    Kind.SWITCH_OR_AUTO: SwitchOrAuto(),
}


def click_type(declared: DeclaredOption) -> click.ParamType[Any]:
    """Return the type of an option's values on the command line."""
    declaration = declared.declaration
    if declaration.kind is Kind.SWITCH_OR_CHOICE:
        return SwitchOrChoice(declared.choices)
    if declaration.kind is not None:
        return _TYPES[declaration.kind]
    if declared.choices:
        return click.Choice(declared.choices)
    if bool in declared.types:
        return click.BOOL
    if int in declared.types and str not in declared.types:
        minimum = declaration.minimum
        return click.INT if minimum is None else click.IntRange(min=minimum)
    if declared.types == (float,):
        return click.FLOAT
    return click.STRING


def _limits(bounds: tuple[Bound, ...]) -> dict[str, int]:
    return {bound.limit.name: bound.value for bound in bounds}


def _by_side(values: tuple[tuple[tuple[str, str], ...], ...]) -> dict[str, str]:
    """
    Return interpreters by side, which is empty for both.

    :raises UsageError: for two interpreters of one side.
    """
    pairs = [pair for value in values for pair in value]
    sides = dict(pairs)
    if len(sides) != len(pairs):
        raise UsageError(
            "--python specifies an interpreter twice: use PYTHON, source=PYTHON and "
            "target=PYTHON at most once each"
        )
    return sides


_PYTHON_VALUES: Final[Mapping[Kind, Callable[[Any], object]]] = {
    Kind.LIMITS: _limits,
    Kind.SIDES: _by_side,
    Kind.SWITCH_OR_AUTO: lambda value: None if value == AUTO else value,
}


def python_value(declared: DeclaredOption, value: object) -> object:
    """Return the value that the Python function has for a value of the command line."""
    kind = declared.declaration.kind
    convert = _PYTHON_VALUES.get(kind) if kind is not None else None
    return value if convert is None else convert(value)


def check_cache(
    _context: click.Context, _parameter: click.Parameter, value: str | None
) -> str | None:
    """
    Return the directory.

    :raises UsageError: for an empty name, and a URL.
    """
    if value is not None and not value:
        raise UsageError("--cache has an empty value; specify a directory")
    if value is not None:
        check_local(value, "--cache ")
    return value


FromFile = Callable[[object, Path], object]
"""
Converts the value of a key in a settings file. The second argument is the file; patterns and paths
are relative to its directory.
"""


class CommandLineOption(Option):
    """The declaration of an option that only the command line has."""

    type: click.ParamType[Any] | None = None
    """The type of its values, if the annotation does not determine it."""

    callback: Callable[[click.Context, click.Parameter, Any], object] | None = None
    """Converts the value that Click parsed."""

    is_eager: bool = False
    is_passed: bool = True
    """Whether the command gets the value."""

    from_file: FromFile | None = None
    """Reads the value in a settings file, if it has another form than on the command line."""

    is_only_setting: bool = False
    """Whether it is only a key of settings files, and not an option of the command line."""


class DeclaredClickOption(click.Option):
    """An option of the command line that was created from a declaration."""

    def __init__(self, declared: DeclaredOption, **changes: Any) -> None:  # noqa: ANN401  # as in Click
        declaration = declared.declaration
        self.declared = declared
        names = f"--{declared.key}"
        if declaration.is_negatable:
            names += f"/--{declaration.off_name or f'no-{declared.key}'}"
        attributes: dict[str, Any] = {
            "type": click_type(declared),
            "multiple": declared.is_repeatable,
            "metavar": declaration.metavar,
            "envvar": declared.variable,
            "help": _help(declaration),
            **_default(declared),
        }
        if declared.types == (bool,) and not declaration.is_negatable:
            attributes |= {"is_flag": True}
            del attributes["type"]
        if declaration.completion is not None:
            attributes["shell_complete"] = getattr(completion, declaration.completion)
        if isinstance(declaration, CommandLineOption):
            attributes |= {
                "callback": declaration.callback,
                "is_eager": declaration.is_eager,
                "expose_value": declaration.is_passed,
            }
            if declaration.type is not None:
                attributes["type"] = declaration.type
        short_names = [name for name in declaration.names if not name.startswith("--")]
        long_names = [name for name in declaration.names if name.startswith("--")]
        super().__init__([*short_names, names, *long_names, declared.name], **attributes | changes)


class Positional(click.Argument):
    """A positional argument with help, which only newer releases of Click support."""

    def __init__(self, name: str, meaning: str, **attributes: Any) -> None:  # noqa: ANN401  # Click's
        super().__init__([name], **attributes)
        self.meaning = meaning


def _help(declaration: Option) -> str:
    if declaration.default_text is None:
        return declaration.help
    return f"{declaration.help}  [default: {declaration.default_text}]"


def _default(declared: DeclaredOption) -> dict[str, Any]:
    """Return the Click attributes for the default; empty if it is None, empty or off."""
    if declared.declaration.kind is Kind.SWITCH_OR_AUTO:
        return {"default": AUTO}
    if declared.declaration.kind is Kind.SWITCH_OR_CHOICE:
        return {"default": declared.default}
    if declared.declaration.off_name is not None:
        return {"default": None}
    if not declared.default:
        return {}
    is_shown = declared.declaration.default_text is None
    return {"default": declared.default, "show_default": is_shown}


def click_options(
    classes: Sequence[type[Arguments]], changes: Mapping[str, Mapping[str, Any]]
) -> Iterator[DeclaredClickOption]:
    """
    Yield the options that classes of arguments declare, in their order.

    :param changes: the Click attributes that a command sets, by the name of the option
    """
    for declared in (declared for each in classes for declared in each.options()):
        declaration = declared.declaration
        if not (isinstance(declaration, CommandLineOption) and declaration.is_only_setting):
            yield DeclaredClickOption(declared, **changes.get(declared.name, {}))


def structured_keys(classes: Sequence[type[Arguments]]) -> dict[str, FromFile]:
    """Return the functions that read keys whose values have another form in a file, by key."""
    return {
        declared.key: declared.declaration.from_file
        for each in classes
        for declared in each.options()
        if isinstance(declared.declaration, CommandLineOption)
        and declared.declaration.from_file is not None
    }
