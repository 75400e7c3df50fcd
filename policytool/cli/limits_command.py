"""``policytool limits``."""

from __future__ import annotations

import click

from policytool.cli import options
from policytool.cli.arguments import ReferenceArguments
from policytool.cli.command import declare_command
from policytool.cli.exit_codes import Exit
from policytool.reports.fields import json_text
from policytool.reports.layout import wrap
from policytool.support.limits import BYTES, LIMITS


@declare_command(
    "limits", ReferenceArguments, changes={"format": {"type": click.Choice(["table", "json"])}}
)
def command(terminal: ReferenceArguments) -> int:
    """
    List the limits for reading files and the reason for each limit.

    Raise a limit with --limit NAME=VALUE.
    """
    view = options.view(terminal.color)
    if terminal.format == "json":
        rows = [
            {
                "name": limit.name,
                "value": limit.default,
                "unit": limit.unit,
                "reason": limit.reason,
                "fixed": limit.fixed or None,
            }
            for limit in LIMITS.values()
        ]
        click.echo(json_text({"version": 1, "limits": rows}, unicode=view.unicode), nl=False)
        return Exit.CLEAN
    amounts = {
        limit.name: limit.amount(limit.default) + ("" if limit.unit == BYTES else f" {limit.unit}")
        for limit in LIMITS.values()
    }
    longest, widest = max(map(len, amounts)), max(map(len, amounts.values()))
    for limit in LIMITS.values():
        reason = (
            f"{limit.reason} This limit cannot be raised because it is {limit.fixed}."
            if limit.fixed
            else limit.reason
        )
        click.echo(
            "\n".join(
                wrap(f"{limit.name:{longest}}  {amounts[limit.name]:{widest}}  ", reason, view)
            ),
            color=terminal.color != "never",
        )
    return Exit.CLEAN
