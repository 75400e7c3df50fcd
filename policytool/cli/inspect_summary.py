"""``policytool inspect --summary``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from policytool.cli import report_option
from policytool.cli.messages import track
from policytool.commands import summary as summaries
from policytool.commands.batch import parallel
from policytool.reports.summaries import PARQUET_REPORTER, SUMMARY_REPORTERS, WITH_ROWS
from policytool.support.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from policytool.cli.arguments import InspectCommandLine
    from policytool.commands.batch.cache import ResultCache
    from policytool.formats.discovery import Input

REPORTERS: Final[tuple[report_option.Renders[Any], ...]] = (*SUMMARY_REPORTERS, PARQUET_REPORTER)


def run(
    inputs: Sequence[Input], how: InspectCommandLine, cache: ResultCache | None
) -> tuple[Mapping[str, int], Sequence[str], Sequence[str]]:
    """
    Print the summary of models, and return the counts of models, the codes of failures, and the
    errors of reports that could not be written.

    :raises UsageError: for a format that is not available for a summary.
    """
    names = [reporter.name for reporter in REPORTERS]
    if missing := how.formats - {*names}:
        raise UsageError(f"--summary has no format {min(missing)}; use one of {', '.join(names)}")
    request = summaries.SummaryRequest(every_release=how.releases == "all")
    results = parallel.run_all(summaries.TASK, inputs, request, how.jobs, cache=cache)
    summary = summaries.summarize(
        track(results, len(inputs), "inspect", verbose=how.verbose),
        request,
        keeps_records=bool(WITH_ROWS & how.formats),
    )
    unwritten = report_option.publish(how, REPORTERS, summary, summary.failures)
    counts = {
        "models": summary.models,
        "failures": len(summary.failures),
        "skipped": summary.passed_over,
    }
    return counts, [failure.code for failure in summary.failures], unwritten
