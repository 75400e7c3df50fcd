"""The options of the command line, created from declarations, and its positional arguments."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from policytool.cli import completion
from policytool.cli.value_types import AUTO, click_type
from policytool.commands.arguments.declaration import Kind, Option

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from policytool.commands.arguments.declaration import Arguments, DeclaredOption

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
        shorter = [name for name in declaration.names if not name.startswith("--")]
        longer = [name for name in declaration.names if name.startswith("--")]
        super().__init__([*shorter, names, *longer, declared.name], **attributes | changes)


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
