"""``policytool merge``."""

from __future__ import annotations

from pathlib import Path

from policytool.cli import completion, messages, options
from policytool.cli.arguments import MergeCommandLine
from policytool.cli.command import declare_command
from policytool.cli.declared_options import Positional
from policytool.cli.exit_codes import Exit
from policytool.cli.fleets import LineWriter
from policytool.commands import merge as merging
from policytool.reports import json_lines
from policytool.reports.fields import json_text
from policytool.support.errors import UsageError
from policytool.support.files.remote_path import check_local


@declare_command(
    "merge",
    MergeCommandLine,
    positional=[
        Positional(
            "reports",
            "Files that `--format jsonl --shard I/N` wrote, or - for a list of paths on stdin.",
            nargs=-1,
            metavar="REPORT...",
            shell_complete=completion.files,
        )
    ],
)
def command(terminal: MergeCommandLine, *, reports: tuple[str, ...]) -> int:
    """
    Join the JSON Lines reports of all shards into the report of one run.

    REPORT is a file that `--format jsonl --shard I/N` wrote, or - for a list of paths on stdin.
    The order does not matter. The exit code is that of one run.
    """
    paths = list(options.expand_stdin(reports))
    if not paths:
        raise UsageError("no report is specified; specify the reports of all shards")
    for path in paths:
        check_local(path, "report ")
    merged = merging.merge([Path(path) for path in paths])
    with LineWriter(json_text(merged.header, unicode=False)) as writer:
        for line in merged.lines():
            writer.write(line)
        writer.write(json_lines.end(merged.counts, merged.exit_code), last=True)
    if merged.exit_code == Exit.NO_MODEL:
        messages.error("no model found")
    return merged.exit_code
