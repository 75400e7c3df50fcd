"""``policytool completion``."""

from __future__ import annotations

import click

from policytool.cli import completion
from policytool.cli.command import declare_command
from policytool.cli.declared_options import Positional
from policytool.cli.exit_codes import Exit


@declare_command(
    "completion",
    positional=[Positional("shell", "The shell.", type=click.Choice(completion.SHELLS))],
)
def command(*, shell: str) -> int:
    """Print a shell completion script for commands, options, rules, releases and policies."""
    context = click.get_current_context().find_root()
    click.echo(completion.script(context.command, "policytool", shell), nl=False)
    return Exit.CLEAN
