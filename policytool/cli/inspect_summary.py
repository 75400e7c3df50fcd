"""``policytool inspect --summary``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from policytool.cli import options
from policytool.commands import summary as summaries
from policytool.reports.summaries import PARQUET_REPORTER, SUMMARY_REPORTERS, WITH_ROWS
from policytool.support.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from policytool.cli.arguments import InspectCommandLine
    from policytool.cli.fleets import Fleet
    from policytool.formats.discovery import Input

REPORTERS: Final[tuple[options.Renders[Any], ...]] = (*SUMMARY_REPORTERS, PARQUET_REPORTER)


def run(
    fleet: Fleet[Input], terminal: InspectCommandLine
) -> tuple[int, int, Sequence[str], Sequence[str]]:
    """
    Print the summary of models, and return the numbers of models and of skipped files, the codes
    of failures, and the errors of reports that could not be written.

    :raises UsageError: for a format that is not available for a summary.
    """
    names = [reporter.name for reporter in REPORTERS]
    if missing := terminal.formats - {*names}:
        raise UsageError(f"--summary has no format {min(missing)}; use one of {', '.join(names)}")
    request = summaries.SummaryRequest(every_release=terminal.releases == "all")
    summary = summaries.summarize(
        fleet.results(summaries.TASK, request),
        request,
        keeps_records=bool(WITH_ROWS & terminal.formats),
    )
    unwritten = options.publish(terminal, REPORTERS, summary, summary.failures)
    codes = [failure.code for failure in summary.failures]
    return summary.models, summary.passed_over, codes, unwritten
