"""``policytool completion``."""

from __future__ import annotations

from typing import Final

import click

from policytool.cli import completion
from policytool.cli.exit_codes import Exit

_WHERE: Final = """\b
Where it goes:
  bash  ~/.bashrc: eval "$(policytool completion bash)"
  zsh   ~/.zshrc, after compinit: eval "$(policytool completion zsh)"
  fish  policytool completion fish > ~/.config/fish/completions/policytool.fish
"""


@click.command(
    "completion", context_settings={"help_option_names": ["-h", "--help"]}, epilog=_WHERE
)
@click.argument("shell", type=click.Choice(completion.SHELLS))
def command(shell: str) -> int:
    """Print what makes a shell complete commands, options, rules, loaders and policies."""
    context = click.get_current_context().find_root()
    click.echo(completion.script(context.command, "policytool", shell), nl=False)
    return Exit.CLEAN
