"""
Settings files: the nearest ``policytool.toml`` or ``[tool.policytool]``, or the one that ``--config`` names.

An option on the command line comes first, then a ``POLICYTOOL_*`` variable, then the file, then the default. A key is an option's name; a key
that no command has is an error.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE: Final = "policytool.toml"
_PYPROJECT: Final = "pyproject.toml"
_SOURCE: Final = "policytool.settings_file"
_HIDDEN: Final = frozenset({"config", "show_settings", "help", "debug"})


def load(context: click.Context, _parameter: click.Parameter, value: str | None) -> None:
    """
    Make the file's values the defaults of the command's options.

    :raises click.UsageError: for two files in one directory, for what is no TOML, and for unknown keys.
    """
    found = _named(Path(value)) if value else _nearest(Path.cwd())
    if found is None:
        return
    file, values = found
    options = {parameter.name: parameter for parameter in context.command.params if isinstance(parameter, click.Option)}
    defaults = {}
    for key, item in values.items():
        name = key.replace("-", "_")
        if name not in options or name in _HIDDEN:
            known = ", ".join(sorted(name.replace("_", "-") for name in options if name not in _HIDDEN and name))
            raise click.UsageError(f"{file} has the unknown key {key!r}; known keys are {known}")
        if not isinstance(item, str | int | float | bool):
            raise click.UsageError(f"{file} has the key {key!r} with a value that is no text, number or boolean")
        defaults[name] = item
    context.default_map = {**(context.default_map or {}), **defaults}
    context.meta[_SOURCE] = file


def show(context: click.Context, _parameter: click.Parameter, value: bool) -> None:  # noqa: FBT001  # Click's callback signature
    """Print each setting with its value and where it comes from, and exit."""
    if not value or context.resilient_parsing:
        return
    for parameter in context.command.params:
        if isinstance(parameter, click.Option) and parameter.name and parameter.name not in _HIDDEN:
            setting, source = parameter.consume_value(context, {})
            where = source.name.lower().replace("_", " ")
            if where == "default map":
                where = str(context.meta.get(_SOURCE))
            if where == "environment":
                where = f"${parameter.envvar}"
            if parameter.name in context.params and context.get_parameter_source(parameter.name) is click.core.ParameterSource.COMMANDLINE:
                setting, where = context.params[parameter.name], "command line"
            click.echo(f"{parameter.name.replace('_', '-')} = {_shown(setting)}  # {where}")
    context.exit()


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return '""' if value is None else str(value) if isinstance(value, int) else f'"{value}"'


def _named(file: Path) -> tuple[Path, Mapping[str, Any]]:
    values = _parsed(file)
    return file, values.get("tool", {}).get("policytool", {}) if file.name == _PYPROJECT else values


def _nearest(directory: Path) -> tuple[Path, Mapping[str, Any]] | None:
    for folder in (directory, *directory.parents):
        own, shared = folder / FILE, folder / _PYPROJECT
        table = _parsed(shared).get("tool", {}).get("policytool") if shared.is_file() else None
        if own.is_file() and table is not None:
            raise click.UsageError(f"{own} and [tool.policytool] in {shared} both hold settings; keep one of them")
        if own.is_file():
            return own, _parsed(own)
        if table is not None:
            return shared, table
    return None


def _parsed(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise click.UsageError(f"{file} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{file} is no valid TOML: {error}") from error
