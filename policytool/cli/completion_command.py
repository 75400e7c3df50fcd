"""``policytool completion``."""

from __future__ import annotations

import click

from policytool.cli import completing
from policytool.cli.exit_codes import Exit


@click.command("completion", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("shell", type=click.Choice(completing.SHELLS))
def command(shell: str) -> int:
    r"""
    Print what makes a shell complete commands, options, rules, loaders and policies.

    \b
    bash: eval "$(policytool completion bash)" in ~/.bashrc
    zsh:  eval "$(policytool completion zsh)" in ~/.zshrc, after compinit
    fish: policytool completion fish > ~/.config/fish/completions/policytool.fish
    """
    context = click.get_current_context().find_root()
    click.echo(completing.script(context.command, "policytool", shell), nl=False)
    return Exit.CLEAN
