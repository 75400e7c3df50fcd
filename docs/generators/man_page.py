"""The man page, made from the help of the commands."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import click

from policytool.cli.exit_codes import Exit
from policytool.cli.main import COMMANDS, cli
from policytool.support import project
from policytool.support.project import VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_MEANINGS: Final = {
    Exit.CLEAN: "Success; no findings or differences.",
    Exit.FINDINGS: "Findings or differences, or an objective that is not met.",
    Exit.USAGE: "Invalid usage, or an invalid settings file.",
    Exit.FAILURE: "A file could not be read or written, or a required extra is not installed.",
    Exit.NO_MODEL: "No model found.",
    Exit.UNDECIDED: "Undecided: the inputs cannot show whether predictions change.",
    Exit.BUG: "A bug in policytool.",
    Exit.INTERRUPTED: "Interrupted.",
}


class _RoffFormatter(click.HelpFormatter):
    """Writes the help of a command as the source of a man page."""

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        """Write a heading with the command, and its synopsis below."""
        del prefix
        self.write(f".SS {prog}\n.B {_escaped(prog)}\n{_escaped(args)}\n")

    def write_heading(self, heading: str) -> None:
        """Write the heading of a group of options."""
        self.write(f".PP\n.B {_escaped(heading)}:\n")

    def write_paragraph(self) -> None:
        """Write nothing: headings and texts begin paragraphs."""

    def write_text(self, text: str) -> None:
        """Write paragraphs."""
        for paragraph in text.split("\n\n"):
            self.write(f".PP\n{_lines(paragraph)}\n")

    def write_dl(
        self, rows: Sequence[tuple[str, str]], col_max: int = 30, col_spacing: int = 2
    ) -> None:
        """Write terms with their descriptions."""
        del col_max, col_spacing
        for term, description in rows:
            self.write(f".TP\n.B {_escaped(term)}\n{_lines(description)}\n")

    @contextmanager
    def section(self, name: str) -> Iterator[None]:
        """Write a heading; examples keep their lines."""
        self.write_heading(name)
        start = len(self.buffer)
        yield
        if name == "Examples":
            lines = "".join(self.buffer[start:]).splitlines()
            self.buffer[start:] = [
                ".PP\n.nf\n.RS\n",
                *(f"{_escaped(line.strip())}\n" for line in lines),
                ".RE\n.fi\n",
            ]


def man_page() -> str:
    """Return the source of policytool(1)."""
    context = click.Context(cli, info_name="policytool", help_option_names=["-h", "--help"])
    formatter = _RoffFormatter()
    for name, command in _commands():
        command.format_help(click.Context(command, info_name=name, parent=context), formatter)
    codes = "".join(f".TP\n.B {code.value}\n{_lines(_MEANINGS[code])}\n" for code in Exit)
    return f"""\
.\\" `make docs` generates this page from the help of the commands.
.TH POLICYTOOL 1 "" "policytool {VERSION}" "User Commands"
.SH NAME
policytool \\- inspect, audit and convert dtype policies of saved Keras models
.SH SYNOPSIS
.B policytool
.I COMMAND
[OPTIONS] [ARGUMENTS]
.SH DESCRIPTION
{_lines(str(cli.help))}
.SH COMMANDS
{formatter.getvalue()}.SH EXIT STATUS
Each command lists its exit codes. These codes are the same in all commands:
{codes}.PP
If several apply, the exit code is the first of 130, 70, 2, 3, 1, 5, 4 and 0.
.SH ENVIRONMENT
These variables set the defaults of options:
{_variables()}.TP
.B NO_COLOR
Disables colors if it is not empty.
.TP
.B FORCE_COLOR
Uses colors also in pipes if it is not empty and NO_COLOR is not set.
.SH FILES
.TP
.B policytool.toml
Settings, from the nearest directory at or above the working directory.
.B {_escaped("policytool audit --show-settings")}
prints the settings in effect.
.SH SEE ALSO
.I {_escaped(project.links()["Documentation"])}
"""


def _commands() -> Iterator[tuple[str, click.Command]]:
    for name in COMMANDS:
        command = cli.get_command(click.Context(cli), name)
        if command is not None:
            yield name, command


def _variables() -> str:
    """Return each environment variable with its option and the commands that have it."""
    found: dict[tuple[str, str], list[str]] = {}
    for name, command in _commands():
        for option in command.params:
            if isinstance(option, click.Option) and isinstance(option.envvar, str):
                found.setdefault((option.envvar, option.opts[-1]), []).append(name)
    return "".join(
        f".TP\n.B {variable}\n{_escaped(option)} of {', '.join(names)}\n"
        for (variable, option), names in sorted(found.items())
    )


def _lines(text: str) -> str:
    """Return a paragraph with each line escaped."""
    return _escaped(" ".join(text.split()))


def _escaped(text: str) -> str:
    """Return a text whose characters have no meaning for roff."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    escaped = escaped.replace("`", "\\(ga").replace("^", "\\(ha").replace("~", "\\(ti")
    return f"\\&{escaped}" if escaped.startswith(".") else escaped
