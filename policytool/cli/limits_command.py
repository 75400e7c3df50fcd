"""``policytool limits``."""

from __future__ import annotations

import click

from policytool.cli import options
from policytool.cli.exit_codes import Exit
from policytool.reports.json_writing import json_text
from policytool.reports.layout import wrap
from policytool.support.limits import BYTES, LIMITS


@click.command("limits", context_settings={"help_option_names": ["-h", "--help"]})
@options.format_option(["table", "json"])
@options.common
def command(
    format: str,  # the option's name
    *,
    verbose: bool,  # there is no more to say
    quiet: bool,
    debug: bool,
    color: str,
    progress: str,
) -> int:
    """
    List the bounds on what is read of a file, with the reason of each; --limit NAME=VALUE sets
    another.
    """
    view = options.view(color)
    if format == "json":
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
            f"{limit.reason} Cannot be raised: it is {limit.fixed}."
            if limit.fixed
            else limit.reason
        )
        click.echo(
            "\n".join(
                wrap(f"{limit.name:{longest}}  {amounts[limit.name]:{widest}}  ", reason, view)
            ),
            color=color != "never",
        )
    return Exit.CLEAN
