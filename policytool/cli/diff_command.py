"""``policytool diff``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from policytool.cli import (
    completion,
    messages,
    options,
    report_option,
    settings,
)
from policytool.cli.exit_codes import Exit, of_failures
from policytool.commands import diff as comparison
from policytool.reports.differences import DIFFERENCE_REPORTERS, Differences

if TYPE_CHECKING:
    from policytool.cli.report_option import ReportFile


@settings.command("diff")
@click.argument("a", metavar="A", shell_complete=completion.files)
@click.argument("b", metavar="B", shell_complete=completion.files)
@click.option(
    "--layer",
    metavar="PATTERN",
    help="Compare only layers whose path equals PATTERN or fully matches it as a regular "
    "expression.",
)
@click.option(
    "--all",
    "all",
    is_flag=True,
    help="Also show equal values, and differences that have no effect.",
)
@click.option(
    "--values/--no-values",
    default=True,
    show_default=True,
    help="Read and compare the stored values.",
)
@options.format_option([reporter.name for reporter in DIFFERENCE_REPORTERS])
@report_option.option(DIFFERENCE_REPORTERS)
@options.limit_option
@options.common_without_progress
def command(
    a: str,
    b: str,
    layer: str | None,
    format: str,  # the option's name
    report: tuple[ReportFile, ...],
    *,
    all: bool,  # the option's name
    values: bool,
    verbose: bool,
    quiet: bool,
    debug: bool,  # main() looks for it
    color: str,
) -> int:
    """
    Show the differences between the models A and B, and exit 1 if they differ.

    A and B are paths or URLs. They may have different file formats and may come from different
    releases. Values that are written differently but have the same meaning count as equal. A note
    lists the parts that one of the file formats cannot store.
    """
    report_option.check(report, comparison.inputs(a, b))
    found = Differences(
        outcome=comparison.try_diff(a, b, values=values, layer=layer), everything=all
    )
    unwritten = report_option.write_reports(report, DIFFERENCE_REPORTERS, found)
    report_option.print_report(DIFFERENCE_REPORTERS, format, found, options.view(color), color)
    options.troubles(found.outcome.failures, unwritten)
    compared = found.outcome.comparison
    if compared is not None and verbose and not quiet:
        messages.note(
            f"compared {len(compared.layers)} layers and {len(compared.variables)} variables"
        )
    if compared is None or unwritten:
        return of_failures(one.code for one in found.outcome.failures)
    return Exit.FINDINGS if compared.differs else Exit.CLEAN
