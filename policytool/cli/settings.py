"""
Settings: the values in a settings file, which are the defaults of a command's options.

An option on the command line comes first, then a ``POLICYTOOL_*`` variable, then the file, then the
default. A key is an option's name; a key that no command has is an error. A file that nobody named
may be a stranger's, so it sets only the keys of options that are declared as automatic.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from msgspec import Struct

from policytool.cli import messages
from policytool.cli.declared_options import CommandLineOption, DeclaredClickOption
from policytool.cli.removed import removed_option
from policytool.support import limits
from policytool.support.errors import UsageError, short
from policytool.support.files import opening
from policytool.support.text.phrases import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from policytool.cli.declared_options import FromFile
    from policytool.commands.arguments.declaration import Arguments, DeclaredOption


FILE: Final = "policytool.toml"
_PYPROJECT: Final = "pyproject.toml"

_NAMES: Final = 16
"""The maximum number of names in a key; keys of other tools in a pyproject.toml have at most 7."""

_BETWEEN_DOTS: Final = re.compile(
    r'"""(?:\\.|[^\\])*?(?:"{3,5}|\Z)'
    r"|'''.*?(?:'{3,5}|\Z)"
    r'|"(?:\\.|[^"\\\n])*"?'
    r"|'[^'\n]*'?"
    r"|#[^\n]*|[\w \t-]+",
    re.DOTALL,
)
"""
The text between the dots of a key (quoted or bare names and spaces), and comments. The ends are
the same as in tomllib.
"""


class SettingsFile(Struct, frozen=True, kw_only=True):
    """A settings file and its values."""

    path: Path
    values: Mapping[str, Any]
    is_found: bool
    """
    Whether it was found in the working directory or above, and not named by the user. Such a file
    may be from somebody else.
    """

    @property
    def display_path(self) -> str:
        """The path; only the name if the working directory contains the file."""
        return self.path.name if self.path.parent == Path.cwd() else str(self.path)


def named_file(path: Path) -> SettingsFile:
    """
    Return the settings file that the user named.

    :raises UsageError: if the file cannot be read, or is not valid TOML.
    """
    try:
        data = opening.read_user_file(path, limits.SETTINGS_BYTES)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    values = (_tool_table(path, data) or {}) if path.name == _PYPROJECT else _parse_toml(path, data)
    return SettingsFile(path=path, values=values, is_found=False)


def nearest(directory: Path) -> SettingsFile | None:
    """
    Return the settings file of a directory or of the nearest one above it that has any.

    :raises UsageError: for two files in one directory, for one that is not regular, too large or
        cannot be read, and for invalid TOML.
    """
    for folder in (directory, *directory.parents):
        own, shared = folder / FILE, folder / _PYPROJECT
        data, shared_data = _automatic_bytes(own), _automatic_bytes(shared)
        table = _tool_table(shared, shared_data) if shared_data is not None else None
        if data is not None and table is not None:
            raise UsageError(
                f"{own} and [tool.policytool] in {shared} both contain settings; remove one of them"
            )
        if data is not None:
            return SettingsFile(path=own, values=_parse_toml(own, data), is_found=True)
        if table is not None:
            return SettingsFile(path=shared, values=table, is_found=True)
    return None


def _automatic_bytes(path: Path) -> bytes | None:
    """
    Return the content of a settings file that the user did not name, None if there is none. Pipes
    and devices are not read.

    :raises UsageError: for a file that is not regular, too large, or unreadable.
    """
    try:
        return opening.read_bounded(path, limits.SETTINGS_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (IsADirectoryError, opening.NotRegularError) as error:
        raise UsageError(
            f"{path} is not a regular file; remove it, or specify another settings file with "
            "--config"
        ) from error
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error


def _tool_table(path: Path, data: bytes) -> Mapping[str, Any] | None:
    """Return ``[tool.policytool]`` of a pyproject.toml, None if it has none."""
    tool = _parse_toml(path, data).get("tool")
    table = tool.get("policytool") if isinstance(tool, dict) else None
    if table is not None and not isinstance(table, dict):
        raise UsageError(f"[tool.policytool] in {path} must be a table")
    return table


def _parse_toml(path: Path, data: bytes) -> dict[str, Any]:
    import tomllib

    try:
        text = data.decode("utf-8").replace("\r\n", "\n")
        if "." * _NAMES in _BETWEEN_DOTS.sub(
            "", text
        ):  # for a key of n names, tomllib takes n * n steps and bytes
            raise UsageError(
                f"{path} has a key with more than {_NAMES} parts, which is not a valid setting"
            )
        values = tomllib.loads(text)
    except (
        ValueError,
        RecursionError,
    ) as error:
        # text that is not UTF-8 or not TOML, a number of thousands of digits, a list in a list in a
        # list
        raise UsageError(f"{path} is not valid TOML: {error}") from error
    return values


_SOURCE: Final = "policytool.settings_file"
STRUCTURED: Final = "policytool.structured."
"""
The prefix of structured keys in the ``meta`` of the context, from which a command reads the values.
"""

_DEEPEST: Final = 8
"""The maximum depth of lists and tables in a value; ``[[suppress]]`` has three levels."""

_LONGEST: Final = 1_000
"""The maximum number of characters of a command in a message."""


def file_in_effect() -> Path | None:
    """Return the settings file of the running command; None if there is none."""
    context = click.get_current_context(silent=True)
    file: SettingsFile | None = context.meta.get(_SOURCE) if context is not None else None
    return file.path if file is not None else None


def load(context: click.Context, _parameter: click.Parameter, value: str | None) -> None:
    """
    Use the values in the settings file as the defaults of the command's options.

    :raises UsageError: for two files in one directory, for invalid TOML, for unknown keys, and for
        keys that only a file named with --config may set.
    """
    if context.resilient_parsing:  # nothing is run for a shell that completes
        return
    file = named_file(Path(value)) if value else nearest(Path.cwd())
    if file is None:
        return
    structured = _structured_keys(context)
    known = {*_option_names(context), *(key.replace("-", "_") for key in structured)}
    parameters = {str(parameter.name): parameter for parameter in context.command.params}
    defaults: dict[str, object] = {}
    for key, item in file.values.items():
        name, hyphenated = key.replace("-", "_"), key.replace("_", "-")
        _check_key(file, key, known)
        _check(context, file, hyphenated, item)
        if hyphenated in structured:
            if hyphenated in getattr(context.command, "structured", {}):
                context.meta[STRUCTURED + hyphenated] = defaults[name] = structured[hyphenated](
                    item, file.path
                )
            continue
        listed = (
            isinstance(item, list)
            and name in _repeatable(context)
            and all(isinstance(text, str) for text in item)
        )
        if not listed and not isinstance(item, str | int | float | bool):
            raise UsageError(f"{file.path}: the key {key!r} must be a string, number or boolean")
        if name in parameters:
            _take(defaults, parameters[name], item)
    context.default_map = {**(context.default_map or {}), **defaults}
    context.meta[_SOURCE] = file


def _check_key(file: SettingsFile, key: str, known: Collection[str]) -> None:
    """
    Check that a command has an option for a key.

    :param known: the Python names of all options
    :raises UsageError: for another key.
    """
    hyphenated = key.replace("_", "-")
    if key.replace("-", "_") in known:
        return
    if (successor := removed_option(f"--{hyphenated}")) is not None:
        raise UsageError(f"{file.path}: the key {hyphenated} was removed; {successor}")
    names = sorted(name.replace("_", "-") for name in known)
    raise UsageError(
        f"{file.path}: unknown key {short(key)!r}{did_you_mean(key, names)} Known keys: "
        f"{', '.join(names)}"
    )


def _check(context: click.Context, file: SettingsFile, key: str, item: object) -> None:
    """
    Check that a file may set a key to a value.

    :raises UsageError: if it may not.
    """
    if file.is_found and key not in automatic_keys(context):
        raise UsageError(_refusal(context, file, repr(key)))
    if file.is_found and not all(
        declared.declaration.is_automatic_value(item)
        for declared in _declared_options(context)
        if declared.key == key and declared.declaration.is_automatic_value is not None
    ):
        raise UsageError(_refusal(context, file, f"{key} = {_display(item)}"))
    _check_value(file, key, item)


def automatic_keys(context: click.Context) -> frozenset[str]:
    """Return the keys that a settings file may set if it was found automatically."""
    return frozenset(
        declared.key for declared in _declared_options(context) if declared.declaration.is_automatic
    )


def structured_values(context: click.Context, kind: type[Arguments]) -> dict[str, object]:
    """Return the values of a class of arguments that only a settings file can set."""
    return {
        declared.name: context.meta[STRUCTURED + declared.key]
        for declared in kind.options()
        if isinstance(declared.declaration, CommandLineOption)
        and declared.declaration.is_only_setting
        and STRUCTURED + declared.key in context.meta
    }


def automatic_file() -> SettingsFile | None:
    """
    Return the automatically found settings file, if it sets an option of the running command.
    """
    context = click.get_current_context()
    return next(
        (
            file
            for kind in getattr(context.command, "classes", ())
            for declared in kind.options()
            if (file := automatic_source(declared.name)) is not None
        ),
        None,
    )


def automatic_source(name: str) -> SettingsFile | None:
    """
    Return the automatically found settings file, if it sets this key in the running command; None
    if the value has another source.
    """
    file = source_file(name)
    return file if file is not None and file.is_found else None


def source_file(name: str) -> SettingsFile | None:
    """
    Return the settings file, if it sets this key in the running command; None if the value has
    another source.
    """
    context = click.get_current_context()
    file: SettingsFile | None = context.meta.get(_SOURCE)
    structured = STRUCTURED + name.replace("_", "-") in context.meta and name not in context.params
    return (
        file
        if structured
        or context.get_parameter_source(name) is click.core.ParameterSource.DEFAULT_MAP
        else None
    )


def _refusal(context: click.Context, file: SettingsFile, setting: str) -> str:
    """
    Return the reason why a setting is ignored in a file that the user did not name, with a command
    that applies the setting.
    """
    from policytool.reports import layout  # only for this sentence

    name = context.info_name or ""
    words: Sequence[str] = context.find_root().obj or (name,)
    words = words[words.index(name) + 1 :] if name in words else ()
    command = layout.command(("policytool", name, "--config", file.display_path, *words))
    if len(command) > _LONGEST:
        command = f"{layout.command(('policytool', name, '--config', file.display_path))} ..."
    return (
        f"{file.path} sets {setting}, which only a settings file specified with --config may "
        f"set. If you trust the file, run: {command}"
    )


def _check_value(file: SettingsFile, key: str, item: object, depth: int = 0) -> None:
    """
    Check that a value can be processed.

    :raises UsageError: for lists and tables nested too deeply, and for a NUL character, which
        system calls do not accept in paths.
    """
    if depth > _DEEPEST:
        raise UsageError(
            f"{file.path}: the key {short(key)!r} contains lists or tables nested deeper than "
            f"{_DEEPEST} levels"
        )
    if isinstance(item, str) and "\0" in item:
        raise UsageError(
            f"{file.path}: the key {short(key)!r} or its value contains a NUL character, which no "
            "option allows"
        )
    for nested in (
        (*item, *item.values())
        if isinstance(item, dict)
        else item
        if isinstance(item, list)
        else ()
    ):
        _check_value(file, key, nested, depth + 1)


def _take(defaults: dict[str, object], option: click.Parameter, item: object) -> None:
    """
    Make a value the option's default; a list of several is nothing to an option of the same name
    that takes one (``target``).
    """
    name = str(option.name)
    if isinstance(item, int | float) and not isinstance(item, bool):
        item = str(
            item
        )  # which each option then checks as it checks what stands on the command line
    if isinstance(option, click.Option) and option.multiple:
        defaults[name] = item if isinstance(item, list) else [item]
    elif not isinstance(item, list):
        defaults[name] = item
    elif len(item) == 1:
        defaults[name] = item[0]


def print_all(context: click.Context) -> None:
    """Print each setting of the command with its value and where it comes from."""
    sources = {
        click.core.ParameterSource.DEFAULT_MAP: str(file.path)
        if (file := context.meta.get(_SOURCE))
        else "",
        click.core.ParameterSource.COMMANDLINE: "command line",
        click.core.ParameterSource.DEFAULT: "default",
    }
    for parameter in context.command.params:
        if parameter.name and _is_setting(parameter):
            source = context.get_parameter_source(parameter.name)
            origin = sources.get(source, f"${parameter.envvar}") if source else "default"
            _print(parameter.name.replace("_", "-"), context.params.get(parameter.name), origin)
    for key in getattr(context.command, "structured", {}):
        if (
            key.replace("-", "_") not in {parameter.name for parameter in context.command.params}
            and STRUCTURED + key in context.meta
        ):
            _print(
                key, context.meta[STRUCTURED + key], sources[click.core.ParameterSource.DEFAULT_MAP]
            )


def _print(key: str, value: object, source: str) -> None:
    click.echo(messages.escape(f"{key} = {_display(value)}  # {source}"))


def _option_names(context: click.Context) -> set[str]:
    """Return the names of the options of all commands: a file serves them all."""
    return {str(option.name) for option in _options(context)}


def _structured_keys(context: click.Context) -> Mapping[str, FromFile]:
    """Return the structured keys of all commands."""
    return {
        key: read
        for command in _commands(context)
        for key, read in getattr(command, "structured", {}).items()
    }


def _declared_options(context: click.Context) -> Iterator[DeclaredOption]:
    """Yield the declared options of all commands."""
    for command in _commands(context):
        for kind in getattr(command, "classes", ()):
            yield from kind.options()


def _repeatable(context: click.Context) -> set[str]:
    """Return the names of the options that take several values, which a file gives as a list."""
    return {str(option.name) for option in _options(context) if option.multiple}


def _commands(context: click.Context) -> list[click.Command]:
    group = context.find_root().command
    commands = (
        [group.get_command(context, name) for name in group.list_commands(context)]
        if isinstance(group, click.Group)
        else [context.command]
    )
    return [command for command in commands if command]


def _options(context: click.Context) -> list[click.Option]:
    return [
        parameter
        for command in _commands(context)
        for parameter in command.params
        if isinstance(parameter, click.Option) and _is_setting(parameter)
    ]


def _is_setting(parameter: click.Parameter) -> bool:
    """Return whether a settings file can set an option."""
    if isinstance(parameter, DeclaredClickOption):
        return parameter.declared.declaration.is_setting
    return isinstance(parameter, click.Option)


def _display(value: object) -> str:
    if toml := getattr(value, "toml", None):
        return str(toml())
    if isinstance(value, tuple | list):
        items = (
            toml() if (toml := getattr(item, "toml", None)) else _display(str(item))
            for item in value
        )
        return f"[{', '.join(items)}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    return (
        json.dumps(str(value), ensure_ascii=not str(value).isprintable())
        if isinstance(value, str | Path)
        else '""'
    )  # Click has a value of its own for "not given"
