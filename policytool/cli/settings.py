"""
Settings files: the nearest ``policytool.toml`` or ``[tool.policytool]``, or the one that ``--config`` names.

An option on the command line comes first, then a ``POLICYTOOL_*`` variable, then the file, then the default. A key is an option's name; a key
that no command has is an error.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

import click

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE: Final = "policytool.toml"
_PYPROJECT: Final = "pyproject.toml"
_SOURCE: Final = "policytool.settings_file"
STRUCTURED: Final = "policytool.structured."
"""What stands before a structured key in the context's ``meta``, where a command finds its value."""

GUARDED: Final = {**dict.fromkeys(("python", "trust", "custom_objects"), "decides what code runs"), "limit": "decides how much of a file is read"}
"""
What no file decides that merely lies in a directory above, and why: whoever runs the tool in a checkout of a stranger's would run the stranger's code, or
read the stranger's models without the bounds that are there for them.
"""

_HIDDEN: Final = frozenset({"config", "show_settings", "help", "debug", "list_targets"})

FromFile = Callable[[object, Path], object]
"""Makes a value of what a key has in a file, given the file, to whose directory patterns and paths are relative."""


class Command(click.Command):
    """A command with keys whose values a file does not spell as the command line does, or that no option stands for."""

    structured: ClassVar[Mapping[str, FromFile]] = {}
    """By key, how its value is read."""


def load(context: click.Context, _parameter: click.Parameter, value: str | None) -> None:
    """
    Make the file's values the defaults of the command's options.

    :raises click.UsageError: for two files in one directory, for what is no TOML, and for unknown keys.
    """
    found = None if context.resilient_parsing else _named(Path(value)) if value else _nearest(Path.cwd())  # nothing is run for a shell that completes
    if found is None:
        return
    file, values = found
    structured = _structured(context)
    known = {*_option_names(context), *(key.replace("-", "_") for key in structured)}
    own = {str(parameter.name): parameter for parameter in context.command.params}
    defaults: dict[str, object] = {}
    for key, item in values.items():
        name = key.replace("-", "_")
        if _has_nul([key, item]):
            raise click.UsageError(f"{file} has a NUL character in the key {key!r} or its value; no option takes one")
        if name not in known:
            raise click.UsageError(f"{file} has the unknown key {key!r}; known keys are {', '.join(sorted(name.replace('_', '-') for name in known))}")
        if (plain := key.replace("_", "-")) in structured:
            if isinstance(context.command, Command) and plain in context.command.structured:
                context.meta[STRUCTURED + plain] = defaults[name] = structured[plain](item, file)
            continue
        listed = isinstance(item, list) and name in _repeatable(context) and all(isinstance(one, str) for one in item)
        if not listed and not isinstance(item, str | int | float | bool):
            raise click.UsageError(f"{file} has the key {key!r} with a value that is no text, number or boolean")
        if name in GUARDED and item and not value:
            option = name.replace("_", "-")
            raise click.UsageError(
                f"{file} has the key {key!r}, which {GUARDED[name]}; a file that is only found may not: give --{option}, or name the file with --config"
            )
        if name in own:
            _take(defaults, own[name], item)
    context.default_map = {**(context.default_map or {}), **defaults}
    context.meta[_SOURCE] = file


def _has_nul(value: object) -> bool:
    """Return whether some text in a value has a NUL, on which the system's calls fail that take paths."""
    if isinstance(value, dict):
        return any(map(_has_nul, (*value, *value.values())))
    return any(map(_has_nul, value)) if isinstance(value, list) else isinstance(value, str) and "\0" in value


def _take(defaults: dict[str, object], option: click.Parameter, item: object) -> None:
    """Make a value the option's default; a list of several is nothing to an option of the same name that takes one (``target``)."""
    name = str(option.name)
    if isinstance(item, int | float) and not isinstance(item, bool):
        item = str(item)  # which each option then checks as it checks what stands on the command line
    if isinstance(option, click.Option) and option.multiple:
        defaults[name] = item if isinstance(item, list) else [item]
    elif not isinstance(item, list):
        defaults[name] = item
    elif len(item) == 1:
        defaults[name] = item[0]


def print_all(context: click.Context) -> None:
    """Print each setting of the command with its value and where it comes from."""
    sources = {
        click.core.ParameterSource.DEFAULT_MAP: str(context.meta.get(_SOURCE)),
        click.core.ParameterSource.COMMANDLINE: "command line",
        click.core.ParameterSource.DEFAULT: "default",
    }
    for parameter in context.command.params:
        if isinstance(parameter, click.Option) and parameter.name and parameter.name not in _HIDDEN:
            source = context.get_parameter_source(parameter.name)
            where = sources.get(source, f"${parameter.envvar}") if source else "default"
            click.echo(f"{parameter.name.replace('_', '-')} = {_shown(context.params.get(parameter.name))}  # {where}")
    for key in getattr(context.command, "structured", {}):
        if key.replace("-", "_") not in {parameter.name for parameter in context.command.params} and STRUCTURED + key in context.meta:
            click.echo(f"{key} = {_shown(context.meta[STRUCTURED + key])}  # {context.meta.get(_SOURCE)}")


def _option_names(context: click.Context) -> set[str]:
    """Return the names of the options of all commands: a file serves them all."""
    return {str(option.name) for option in _options(context)}


def _structured(context: click.Context) -> Mapping[str, FromFile]:
    """Return the structured keys of all commands."""
    return {key: read for command in _commands(context) if isinstance(command, Command) for key, read in command.structured.items()}


def _repeatable(context: click.Context) -> set[str]:
    """Return the names of the options that take several values, which a file gives as a list."""
    return {str(option.name) for option in _options(context) if option.multiple}


def _commands(context: click.Context) -> list[click.Command]:
    group = context.find_root().command
    commands = [group.get_command(context, name) for name in group.list_commands(context)] if isinstance(group, click.Group) else [context.command]
    return [command for command in commands if command]


def _options(context: click.Context) -> list[click.Option]:
    return [
        parameter
        for command in _commands(context)
        for parameter in command.params
        if isinstance(parameter, click.Option) and parameter.name and parameter.name not in _HIDDEN
    ]


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(toml() if (toml := getattr(item, 'toml', None)) else _shown(str(item)) for item in value)}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    return json.dumps(str(value), ensure_ascii=False) if isinstance(value, str | Path) else '""'  # Click has a value of its own for "not given"


def _named(file: Path) -> tuple[Path, Mapping[str, Any]]:
    return file, (_tool_table(file) or {}) if file.name == _PYPROJECT else _parsed(file)


def _nearest(directory: Path) -> tuple[Path, Mapping[str, Any]] | None:
    for folder in (directory, *directory.parents):
        own, shared = folder / FILE, folder / _PYPROJECT
        table = _tool_table(shared) if shared.is_file() else None
        if own.is_file() and table is not None:
            raise click.UsageError(f"{own} and [tool.policytool] in {shared} both hold settings; keep one of them")
        if own.is_file():
            return own, _parsed(own)
        if table is not None:
            return shared, table
    return None


def _tool_table(file: Path) -> Mapping[str, Any] | None:
    """Return ``[tool.policytool]`` of a pyproject.toml, None where it has none."""
    tool = _parsed(file).get("tool")
    table = tool.get("policytool") if isinstance(tool, dict) else None
    if table is not None and not isinstance(table, dict):
        raise click.UsageError(f"[tool.policytool] in {file} should be a table")
    return table


def _parsed(file: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise click.UsageError(f"{file} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # what is no UTF-8 or no TOML, a number of thousands of digits, a list in a list in a list
        raise click.UsageError(f"{file} is no valid TOML: {error}") from error
