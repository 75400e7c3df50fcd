"""
The public interface as text: options, exit codes, rules, JSON reports, environment variables and
Python names. ``tests/test_public_api.py`` compares it with ``tests/golden/public_api.txt``.
"""

from __future__ import annotations

import inspect
import json
import re
from typing import TYPE_CHECKING, Any, Final

import click

import policytool
from policytool.cli.exit_codes import Exit
from policytool.cli.main import COMMANDS, cli
from policytool.rules import RULES
from tests.helpers.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_SCHEMAS: Final = ROOT / "policytool/reports/schemas"
_OTHER_VARIABLES: Final = ("COLUMNS", "FORCE_COLOR", "NO_COLOR", "POLICYTOOL_COPY", "TERM")
"""Variables that no option has."""


def public_api() -> str:
    """Return the public interface, one thing per line, so that a diff shows each change."""
    parts = {
        "Commands": _command_lines(),
        "Exit codes": (f"{code.value} {code.name}" for code in Exit),
        "Rules": (f"{rule.id} {rule.name}" for rule in RULES),
        "Environment variables": _variables(),
        "JSON reports": _schema_lines(),
        "Python": _python_lines(),
    }
    return "\n".join(
        f"# {title}\n\n" + "".join(f"{line}\n" for line in lines) for title, lines in parts.items()
    )


def commands() -> Iterator[tuple[str, click.Command]]:
    """Yield each command by its name."""
    for name in COMMANDS:
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        yield name, command


def _command_lines() -> Iterator[str]:
    for name, command in commands():
        yield f"policytool {name}"
        for parameter in command.params:
            yield f"  {_parameter(parameter)}"


def _parameter(parameter: click.Parameter) -> str:
    """Return the names, the type and the default of an option or an argument."""
    if isinstance(parameter, click.Option):
        names = "|".join((*parameter.opts, *parameter.secondary_opts))
    else:
        names = str(parameter.name).upper()
    flag = isinstance(parameter, click.Option) and parameter.is_flag
    default = "" if flag and not parameter.secondary_opts else _default(parameter.default)
    several = (isinstance(parameter, click.Option) and parameter.multiple) or parameter.nargs == -1
    return "".join(
        (
            names,
            "" if flag else f" {_type(parameter.type)}",
            " (repeatable)" if several else "",
            " (required)" if parameter.required else "",
            default,
        )
    )


def _type(kind: click.ParamType[Any]) -> str:
    """Return a type as its choices, its range or its name."""
    match kind:
        case click.Choice():
            return "|".join(map(str, kind.choices))
        case click.IntRange() | click.FloatRange():
            low, high = ("" if end is None else end for end in (kind.min, kind.max))
            return f"{kind.name.partition(' ')[0]} {low}..{high}"
    return kind.name


def _default(value: object) -> str:
    """Return a default; Click writes that there is none in a way that differs by version."""
    absent = value is None or value == () or "UNSET" in repr(value).upper() or callable(value)
    return "" if absent else f" = {value}"


def _variables() -> list[str]:
    actual = {
        parameter.envvar
        for _, command in commands()
        for parameter in command.params
        if isinstance(parameter.envvar, str)
    }
    return sorted({*actual, *_OTHER_VARIABLES})


def _schema_lines() -> Iterator[str]:
    for path in sorted(_SCHEMAS.glob("*.json")):
        schema = json.loads(path.read_text(encoding="utf-8"))
        name = path.name.partition(".")[0]
        first = schema if "properties" in schema else schema["$defs"]["header"]
        yield f"{name} version {first['properties']['version']['const']}"
        for place, definition in {"report": schema, **schema["$defs"]}.items():
            if "properties" in definition:
                yield f"  {place}"
                yield from (f"    {line}" for line in _properties(definition))


def _properties(definition: Mapping[str, Any]) -> Iterator[str]:
    """Yield each key of an object, with its fixed values, and whether it is optional."""
    for key, value in definition["properties"].items():
        values = "|".join(map(str, value.get("enum", ())))
        optional = "" if key in definition.get("required", ()) else " (optional)"
        yield f"{key}{optional}{f' = {values}' if values else ''}"


def _python_lines() -> Iterator[str]:
    for name in policytool.__all__:
        public = getattr(policytool, name)
        if inspect.isfunction(public):
            yield from _function(name, public)
        elif isinstance(public, type):
            bases = ", ".join(_class_name(base) for base in public.__bases__ if base is not object)
            yield f"class {name}({bases})" if bases else f"class {name}"
            yield from (f"  {line}" for line in _attributes(public))
        else:
            yield f"{name}: {type(public).__name__}"


def _class_name(base: type) -> str:
    """Return the public name of a class, if it has one."""
    public = {getattr(policytool, name): name for name in policytool.__all__}
    return public.get(base, base.__name__)


def _function(name: str, function: Any) -> Iterator[str]:
    signature = inspect.signature(function)
    yield f"{name}() -> {signature.return_annotation}"
    for parameter in signature.parameters.values():
        kind = "" if parameter.kind is parameter.KEYWORD_ONLY else " (positional)"
        default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
        yield f"  {parameter.name}: {parameter.annotation}{default}{kind}"


def _attributes(public: type) -> Iterator[str]:
    """Yield the public attributes of a class and of its bases in policytool."""
    actual = {
        name: value
        for base in reversed(public.__mro__)
        if base.__module__.startswith("policytool.")
        for name, value in vars(base).items()
        if not name.startswith("_")
    }
    for name, value in sorted(actual.items()):
        if isinstance(value, property):
            yield f"{name}: {inspect.signature(value.fget).return_annotation}"  # type: ignore[arg-type]
        elif inspect.isfunction(value):
            signature = re.sub(r"\(self(?:, )?", "(", str(inspect.signature(value)))
            yield f"{name}{signature.replace(chr(39), '')}"
        elif not inspect.isclass(value):
            yield name
