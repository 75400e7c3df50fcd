"""The reference of commands, from the same definitions as their help."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Final

import click

from policytool.cli import help_pages
from policytool.cli.declared_options import CommandLineOption, DeclaredClickOption, Positional
from policytool.cli.main import COMMANDS, cli
from policytool.reports import topics

if TYPE_CHECKING:
    from collections.abc import Iterator

_CODE: Final = re.compile(r"(?<![\w`-])(?:--?[a-zA-Z][\w-]*(?![\w-])|[A-Z]+=[\w/]+)|`([^`]+)`")
"""Options, values such as ``html=DIR/``, and code between backticks."""

_EXTRA: Final = re.compile(r"  \[([^\[\]]*)\]$")
"""What Click writes after the help of an option: its default, its range, or both."""

COMMON: Final = "Options of every command"
_HEAD: Final = ("| option | meaning | default | also set by |", "| --- | --- | --- | --- |")
_DEFAULT: Final = "default: "
_RANGE: Final = re.compile(r"(?:(?P<low>\d+)(?P<above><=?))?x(?P<side>[<>]=?)(?P<end>\d+)")
_SIDES: Final = {">=": "at least", ">": "more than", "<=": "at most", "<": "less than"}


def commands_page() -> str:
    """Return the reference of all commands as Markdown."""
    lines = [
        "# Commands",
        "",
        "`make docs` generates this page from the help of each command.",
        "",
        (
            "An option on the command line overrides its environment variable, which overrides the "
            "settings file (`policytool.toml`). The last column also names the options that the "
            "[Python function](python.md) of a command accepts, and those that a settings file can "
            "set that was found automatically."
        ),
        (
            "[Settings files found automatically]"
            "(../explanation/security.md#settings-files-found-automatically) can set only some "
            "options. Every command also has `-h` and `--help`. Reports on terminals have colors, "
            "unless the variable NO_COLOR is set. FORCE_COLOR also uses colors in pipes."
        ),
        "",
        "| command | purpose |",
        "| --- | --- |",
        *(
            f"| [`policytool {name}`](#policytool-{name}) | {_markdown(summary)} |"
            for name, (_, summary) in COMMANDS.items()
        ),
    ]
    rows = {name: list(_option_rows(*_command(name))) for name in COMMANDS}
    counts = Counter(row for command_rows in rows.values() for row in command_rows)
    common = [row for row, count in counts.items() if count >= len(COMMANDS) - 1]
    lines += ["", f"## {COMMON}", "", "`completion` has only some of them.", "", *_HEAD, *common]
    for name, command_rows in rows.items():
        lines += ["", *_section(name, [row for row in command_rows if row not in common])]
    return "\n".join(lines) + "\n"


def _command(name: str) -> tuple[click.Command, click.Context]:
    root = click.Context(cli, info_name="policytool")
    command = cli.get_command(root, name)
    if command is None:
        raise LookupError(name)
    context = click.Context(command, info_name=name, parent=root, **command.context_settings)
    return command, context


def _option_rows(command: click.Command, context: click.Context) -> Iterator[str]:
    for options in help_pages.options_by_group(command, context).values():
        for option in options:
            if "--help" not in option.opts:
                yield _option_row(option, context)


def _section(name: str, rows: list[str]) -> Iterator[str]:
    """
    Yield the section of a command.

    :param rows: its options that not every command has
    """
    command, context = _command(name)
    usage = " ".join((context.command_path, *command.collect_usage_pieces(context)))
    yield from (f"## policytool {name}", "", "```text", usage, "```")
    for paragraph in re.split(r"\n\s*\n", command.help or ""):
        yield from ("", _markdown(" ".join(paragraph.split())))
    arguments = [
        f"| {_code_cell(parameter.make_metavar(context))} | {_markdown(parameter.meaning)} |"
        for parameter in command.params
        if isinstance(parameter, Positional)
    ]
    if arguments:
        yield from ("", "| argument | meaning |", "| --- | --- |", *arguments)
    if rows:
        yield from ("", *_HEAD, *rows)
    yield from ("", "Examples:", "", "```console")
    for number, (call, purpose) in enumerate(help_pages.EXAMPLES[name]):
        yield from ([""] * bool(number) + [f"# {purpose}", call])
    yield "```"
    if codes := help_pages.exit_codes(name):
        yield from ("", "| exit code | meaning |", "| --- | --- |")
        yield from (f"| {code} | {_markdown(meaning)} |" for code, meaning in codes)


def _code_cell(text: str) -> str:
    """Return code as the cell of a table has it."""
    return f"`{text}`".replace("|", r"\|")


def _option_row(option: click.Option, context: click.Context) -> str:
    """Return the row of an option, from the same text as its help."""
    record = option.get_help_record(context)
    if record is None:
        raise LookupError(option.name)
    names, meaning = record
    extras: list[str] = []
    while match := _EXTRA.search(meaning):
        meaning = meaning[: match.start()]
        extras = [*match[1].split("; "), *extras]
    default = "; ".join(extra for extra in extras if not _RANGE.fullmatch(extra))
    ranges = (match for extra in extras if (match := _RANGE.fullmatch(extra)))
    cells = (
        _code_cell(names),
        _markdown(" ".join([meaning, *map(_range, ranges)])),
        _markdown(default.removeprefix(_DEFAULT).removeprefix("(").removesuffix(")")),
        ", ".join(_other_places(option)),
    )
    return f"| {' | '.join(cells)} |"


def _other_places(option: click.Option) -> Iterator[str]:
    """Yield what sets an option beside the command line and a settings file that is named."""
    if not isinstance(option, DeclaredClickOption):
        return
    if option.envvar:
        yield f"`{option.envvar}`"
    if not isinstance(option.declared.declaration, CommandLineOption):
        yield "Python"
    if option.declared.declaration.is_automatic:
        yield "automatic file"


def _range(match: re.Match[str]) -> str:
    """Return a range such as ``x>=1`` or ``0<x<=100`` as a sentence."""
    ends = [(match["side"], match["end"])]
    if match["low"]:
        ends.insert(0, (match["above"].replace("<", ">"), match["low"]))
    return f"Must be {' and '.join(f'{_SIDES[side]} {end}' for side, end in ends)}."


def _markdown(text: str) -> str:
    """Return help as Markdown, with options as code."""
    return topics.markdown(_CODE.sub(lambda match: f"``{match[1] or match[0]}``", text))
