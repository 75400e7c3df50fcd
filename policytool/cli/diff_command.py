"""``policytool diff``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from policytool.cli import completion, options, report_option
from policytool.cli.exit_codes import Exit
from policytool.commands import diff as comparison
from policytool.reports.differences import DIFFERENCE_REPORTERS, Differences

if TYPE_CHECKING:
    from policytool.cli.report_option import ReportFile


@click.command("diff", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("a", metavar="A", shell_complete=completion.files)
@click.argument("b", metavar="B", shell_complete=completion.files)
@click.option(
    "--layer",
    metavar="PATTERN",
    help="Compare layers of this path, or whose path this regular expression matches in full.",
)
@click.option(
    "--all",
    "all",
    is_flag=True,
    help="Show what is equal too, and what is only spelled differently.",
)
@click.option(
    "--values/--no-values",
    default=True,
    show_default=True,
    help="Whether to read and compare stored values.",
)
@options.format_option([reporter.name for reporter in DIFFERENCE_REPORTERS])
@report_option.option(DIFFERENCE_REPORTERS)
@options.limit_option
@options.common
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
    progress: str,
) -> int:
    """
    Show what changed from the saved model A to the saved model B, and exit 1 if they differ.

    A and B may be of different formats and generations: what both mean the same is no difference,
    however they spell it, and what one format cannot hold is not compared, and said.
    """
    report_option.check(report, comparison.inputs(a, b))
    found = Differences(
        outcome=comparison.try_diff(a, b, values=values, layer=layer), everything=all
    )
    unwritten = report_option.write_reports(report, DIFFERENCE_REPORTERS, found)
    click.echo(
        report_option.render_report(DIFFERENCE_REPORTERS, format, found, options.view(color)),
        nl=False,
        color=color != "never",
    )
    options.troubles(found.outcome.failures, unwritten)
    compared = found.outcome.comparison
    if compared is not None and verbose and not quiet:
        click.echo(
            f"policytool: {len(compared.layers)} layers and {len(compared.variables)} variables "
            "were compared",
            err=True,
        )
    if compared is None or unwritten:
        return Exit.FAILURE
    return Exit.FINDINGS if compared.differs else Exit.CLEAN
