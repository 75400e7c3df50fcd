"""Commands whose options are declared by classes of arguments."""

from __future__ import annotations

import inspect
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import click

from policytool.cli import settings
from policytool.cli.declared_options import (
    SWITCHED_ON,
    SwitchOrChoice,
    click_options,
    python_value,
    structured_keys,
)
from policytool.cli.exit_codes import Exit
from policytool.commands.arguments.declaration import LimitArguments
from policytool.support import limits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from policytool.cli.declared_options import Positional
    from policytool.commands.arguments.declaration import Arguments

_IS_BRIEF: Final = "policytool.is_brief_help"
_NO_CHANGES: Final[Mapping[str, Mapping[str, Any]]] = MappingProxyType({})


class Command(click.Command):
    """
    A command whose options are declared. Its help has two levels: the options that most runs need,
    and all options in groups.
    """

    def __init__(
        self,
        name: str,
        classes: Sequence[type[Arguments]],
        **attributes: Any,  # noqa: ANN401  # Click's
    ) -> None:
        super().__init__(
            name, context_settings={"help_option_names": ["-h", "--help"]}, **attributes
        )
        self.classes = tuple(classes)
        self.structured = structured_keys(classes)
        """The function that reads the value of each settings key with another form in a file."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line; a switch that may have a value has it after ``=``."""
        switches = {
            name
            for option in self.params
            if isinstance(option.type, SwitchOrChoice)
            for name in option.opts
        }
        end = args.index("--") if "--" in args else len(args)
        valued = [f"{word}={SWITCHED_ON}" if word in switches else word for word in args[:end]]
        return super().parse_args(ctx, [*valued, *args[end:]])

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the parameters, and the options that print help."""
        del ctx  # Click's own help option depends on it
        return [
            *self.params,
            _help_option(["-h", "--help"], "Show the most used options and exit.", is_brief=True),
            _help_option(["--help-all"], "Show all options and exit.", is_brief=False),
        ]

    def format_help_text(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the description of the command; only the first paragraph in brief help."""
        from policytool.cli import help_pages  # not for a run

        help_pages.write_text(self, formatter, is_brief=_IS_BRIEF in context.meta)

    def format_options(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the arguments, and the options."""
        from policytool.cli import help_pages  # not for a run

        help_pages.write_arguments(self, formatter)
        help_pages.write_options(self, context, formatter, is_brief=_IS_BRIEF in context.meta)

    def format_epilog(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write examples and exit codes."""
        from policytool.cli import help_pages  # not for a run

        help_pages.write_epilog(self, formatter, is_brief=_IS_BRIEF in context.meta)


def _help_option(names: list[str], text: str, *, is_brief: bool) -> click.Option:
    def show(context: click.Context, _parameter: click.Parameter, value: bool) -> None:  # noqa: FBT001  # Click's
        if value and not context.resilient_parsing:
            if is_brief:
                context.meta[_IS_BRIEF] = True
            click.echo(context.get_help(), color=context.color)
            context.exit()

    return click.Option(
        names, is_flag=True, is_eager=True, expose_value=False, callback=show, help=text
    )


def declare_command(
    name: str,
    *classes: type[Arguments],
    positional: Sequence[Positional] = (),
    changes: Mapping[str, Mapping[str, Any]] = _NO_CHANGES,
    cls: type[Command] = Command,
) -> Callable[[Callable[..., int]], Command]:
    """
    Return the decorator that creates a command from a function. The function receives an instance
    of each class in their order, and the positional arguments by name.

    The limits in the options apply while the function runs.

    :param changes: the Click attributes that this command sets, by the name of the option
    """

    def decorate(function: Callable[..., int]) -> Command:
        def call(*, show_settings: bool = False, **values: Any) -> int:  # noqa: ANN401  # as parsed
            context = click.get_current_context()
            if show_settings:
                settings.print_all(context)
                return Exit.CLEAN
            arguments = [_arguments(each, values, context) for each in classes]
            raised = [each.limit for each in arguments if isinstance(each, LimitArguments)]
            with limits.override((raised[0] if raised else None) or {}):
                return function(*arguments, **values)

        return cls(
            name,
            classes,
            params=[*positional, *click_options(classes, changes)],
            callback=call,
            help=inspect.cleandoc(function.__doc__ or ""),
        )

    return decorate


def _arguments(kind: type[Arguments], values: dict[str, Any], context: click.Context) -> Arguments:
    """Return the arguments of a class, and remove their values from the parsed values."""
    return kind(
        **{
            declared.name: python_value(declared, values.pop(declared.name))
            for declared in kind.options()
            if declared.name in values
        },
        **settings.structured_values(context, kind),
    )
