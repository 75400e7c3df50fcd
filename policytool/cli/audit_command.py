"""``policytool audit``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from policytool import discovery
from policytool.cli import options, report_option
from policytool.cli.exit_codes import Exit
from policytool.cli.progress import counted
from policytool.finding import Severity, worst
from policytool.operations import auditing
from policytool.planning.targets import target as named_target
from policytool.reports._layout import clean
from policytool.reports.findings import FINDING_REPORTERS
from policytool.rules import Device, Question

if TYPE_CHECKING:
    from policytool.cli.report_option import ReportFile

_NEVER: Final = "never"


@click.command("audit", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option("--target", multiple=True, metavar="LOADER", help="A loader that is to take the models, such as keras3 or tf2.15; repeatable.")
@click.option("--device", type=click.Choice([one.value for one in Device]), help="Where the models are to run.")
@click.option("--weights", is_flag=True, help="Read the stored values too.")
@click.option(
    "--fail-on",
    type=click.Choice([*(one.value for one in Severity), _NEVER]),
    default=Severity.WARNING.value,
    show_default=True,
    envvar="POLICYTOOL_FAIL_ON",
    help="The least severity that makes the exit code 1.",
)
@options.formatted([reporter.name for reporter in FINDING_REPORTERS])
@report_option.option(FINDING_REPORTERS)
@click.option("-0", "--null", is_flag=True, help="Paths on stdin end in NUL instead of newlines.")
@options.common
def command(
    *,
    paths: tuple[str, ...],
    target: tuple[str, ...],
    device: str | None,
    fail_on: str,
    format: str,  # the option's name
    report: tuple[ReportFile, ...],
    weights: bool,
    null: bool,
    verbose: bool,
    quiet: bool,
    debug: bool,  # main() looks for it
    color: str,
    progress: str,
) -> int:
    """
    Find what will not load, will not train as before, or will compute wrongly, and say how to mend it.

    PATH is what inspect takes. Nothing is written.
    """
    question = Question(
        targets=tuple(dict.fromkeys(named_target(name) for name in target)), device=Device(device) if device is not None else None, weights=weights
    )
    listed = list(options.listed(paths, null=null))
    found = list(discovery.inputs(listed)) if listed or not paths else []  # an empty list on stdin means no file, not every file
    report_option.check(report, found)
    audit = auditing.gathered(counted(auditing.audit_all(found, question), len(found), progress, "audit"))
    unwritten = report_option.written(report, FINDING_REPORTERS, audit)
    reporter = next(reporter for reporter in FINDING_REPORTERS if reporter.name == format)
    click.echo(reporter.render(audit, options.view(color)), nl=False, color=color != "never")
    for failure in audit.failures:
        click.echo(f"policytool: {clean(failure.path)} {clean(failure.message)} [{failure.code}]", err=True)
    for sentence in unwritten:
        click.echo(f"policytool: {sentence}", err=True)
    if audit.passed_over and not quiet:
        click.echo(f"policytool: {audit.passed_over} files that are no models were passed over", err=True)
    if audit.failures or unwritten:
        return Exit.FAILURE
    found_worst = worst(finding for audited in audit.audited for finding in audited.findings)
    if fail_on != _NEVER and found_worst is not None and found_worst.rank <= Severity(fail_on).rank:
        return Exit.FINDINGS
    if not audit.audited:
        click.echo("policytool: no model found", err=True)
        return Exit.NO_MODEL
    return Exit.CLEAN
