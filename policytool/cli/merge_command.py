"""``policytool merge``."""

from __future__ import annotations

from pathlib import Path

import click

from policytool.cli import completion, messages, options, settings
from policytool.cli.exit_codes import Exit
from policytool.cli.lines_report import LineWriter
from policytool.cli.local_paths import check_local
from policytool.commands import merge as merging
from policytool.reports import json_lines
from policytool.support.errors import UsageError


@settings.command("merge")
@click.argument("reports", nargs=-1, metavar="REPORT...", shell_complete=completion.files)
@click.option(
    "-0", "--null", is_flag=True, help="Expect NUL instead of newlines between paths on stdin."
)
@options.limit_option
@options.display
def command(
    reports: tuple[str, ...],
    *,
    null: bool,
    debug: bool,  # main() looks for it
    color: str,
) -> int:
    """
    Join the JSON Lines reports of all shards into the report of one run.

    REPORT is a file that `--format jsonl --shard I/N` wrote, or - for a list of paths on stdin.
    The order does not matter. The exit code is that of one run.
    """
    paths = list(options.expand_stdin(reports, null=null))
    if not paths:
        raise UsageError("no report is specified; specify the reports of all shards")
    for path in paths:
        check_local(path, "report ")
    merged = merging.merge([Path(path) for path in paths])
    with LineWriter(json_lines.merged_header(merged.header)) as writer:
        for line in merged.lines():
            writer.write(line)
        writer.write(json_lines.end(merged.counts, merged.exit_code), last=True)
    if merged.exit_code == Exit.NO_MODEL:
        messages.error("no model found")
    return merged.exit_code
