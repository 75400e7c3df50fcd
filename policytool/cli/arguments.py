"""
Options that only the command line has, because they are about many models, reports in files, the
terminal or settings files.
"""

from pathlib import Path
from typing import Annotated, Final, Literal

import click

from policytool.cli import settings
from policytool.cli.declared_options import (
    CommandLineOption,
    JobsType,
    LocalPath,
    ReportFile,
    ShardOption,
    check_cache,
    is_number,
)
from policytool.commands.arguments.declaration import Arguments, Group, Kind, LimitArguments
from policytool.commands.batch.task import Shard

TABLE: Final = "table"
"""The format of stdout if none is specified."""


def bound_jobs(
    _context: click.Context, _parameter: click.Parameter, value: int | str | None
) -> int | str | None:
    """
    Return the number of processes: at most that of the processors if an automatically found
    settings file sets it.
    """
    if not isinstance(value, int) or settings.automatic_source("jobs") is None:
        return value
    from policytool.commands.batch import parallel  # only for such a file

    return min(value, parallel.processors())


class TerminalArguments(Arguments):
    """The options of all commands."""

    verbose: Annotated[
        bool | None,
        CommandLineOption(
            "Show more: all layers (check, tune), suppressed findings (audit), and progress, notes "
            "and tracebacks on stderr. With -q, print only errors on stderr.",
            Group.REPORTING,
            names=("-v/-q",),
            is_negatable=True,
            off_name="quiet",
            is_setting=False,
        ),
    ] = None
    config: Annotated[
        str | None,
        CommandLineOption(
            "Use this settings file instead of the nearest policytool.toml.",
            Group.GENERAL,
            type=LocalPath(),
            callback=settings.load,
            is_eager=True,
            is_passed=False,
            is_setting=False,
            has_variable=True,
        ),
    ] = None
    show_settings: Annotated[
        bool,
        CommandLineOption(
            "Print the settings in effect and exit.", Group.GENERAL, is_setting=False
        ),
    ] = False


def names_no_file(formats: object) -> bool:
    """Return whether a value of ``format`` in a settings file only sets the format of stdout."""
    listed = formats if isinstance(formats, list) else [formats]
    return not any("=" in str(text) for text in listed)


class ReportArguments(TerminalArguments):
    """The options for the output of results."""

    format: Annotated[
        tuple[str | ReportFile, ...],
        CommandLineOption(
            "Print the report as FORMAT, or write it to FILE.",
            Group.REPORTING,
            essential=True,
            metavar="FORMAT[=FILE]",
            has_variable=True,
            is_automatic=True,
            is_automatic_value=names_no_file,
        ),
    ] = (TABLE,)

    @property
    def stdout_format(self) -> str:
        """The format of the report on stdout."""
        return next((report for report in self.format if isinstance(report, str)), TABLE)

    @property
    def report_files(self) -> tuple[ReportFile, ...]:
        """The reports in files."""
        return tuple(report for report in self.format if not isinstance(report, str))

    @property
    def formats(self) -> frozenset[str]:
        """The formats of all reports."""
        return frozenset({self.stdout_format, *(file.format for file in self.report_files)})


class MergeCommandLine(LimitArguments, TerminalArguments):
    """The options of ``merge``, which exists only for fleets."""


class FleetArguments(ReportArguments):
    """The options of commands that process many models."""

    jobs: Annotated[
        int | str | None,
        CommandLineOption(
            "Number of processes that read or rewrite files, or the address of a Dask scheduler "
            "whose workers do so, such as tcp://10.0.0.5:8786.",
            Group.GENERAL,
            metavar="N|ADDRESS",
            type=JobsType(),
            callback=bound_jobs,
            default_text="one process per CPU if there are several files",
            has_variable=True,
            is_automatic=True,
            is_automatic_value=is_number,
        ),
    ] = None
    shard: Annotated[
        Shard | None,
        CommandLineOption(
            "Process only part I of N of the models, such as 3/16. `policytool merge` joins the "
            "JSON Lines reports of all parts.",
            Group.SELECTION,
            type=ShardOption(),
            metavar="I/N",
            has_variable=True,
        ),
    ] = None


class CacheArguments(FleetArguments):
    """The options of commands that read many models and write none."""

    cache: Annotated[
        str | None,
        CommandLineOption(
            "Keep results in DIR, and read only models that changed since the last run.",
            Group.GENERAL,
            metavar="DIR",
            callback=check_cache,
            has_variable=True,
            completion="directories",
        ),
    ] = None


class MigrateCommandLine(FleetArguments):
    """The options of ``migrate`` that Python does not have."""

    plan: Annotated[
        Path | None,
        CommandLineOption(
            "Apply a plan saved with --preview --format json.",
            Group.OUTPUT,
            kind=Kind.FILE,
            metavar="FILE",
        ),
    ] = None


class CheckCommandLine(ReportArguments):
    """The options of ``check`` that Python does not have."""

    accept_undecided: Annotated[
        bool,
        CommandLineOption(
            "Exit with 0 instead of 5 if the answer is undecided.", Group.MEASUREMENT
        ),
    ] = False


class InspectCommandLine(CacheArguments):
    """The options of ``inspect`` that Python does not have."""

    summary: Annotated[
        bool,
        CommandLineOption(
            "Show one summary of all models: formats, releases, policies, sizes and possible "
            "savings. CSV and Parquet have one row for each model.",
            Group.REPORTING,
            essential=True,
        ),
    ] = False
    layer: Annotated[
        str | None,
        CommandLineOption(
            "Show only layers whose path equals PATTERN or fully matches it as a regular "
            "expression.",
            Group.SELECTION,
            essential=True,
            metavar="PATTERN",
        ),
    ] = None
    only: Annotated[
        str | None,
        CommandLineOption(
            "Show only layers with a deprecated policy format, a mixed policy, or the policy "
            "POLICY.",
            Group.SELECTION,
            essential=True,
            metavar="deprecated|mixed|POLICY",
            completion="policies",
        ),
    ] = None
    variables: Annotated[
        bool,
        CommandLineOption(
            "Show the stored variables of each layer. JSON always lists them; CSV only counts "
            "them.",
            Group.REPORTING,
            essential=True,
        ),
    ] = False
    depth: Annotated[
        int | None,
        CommandLineOption(
            "Show only N levels below the model.",
            Group.SELECTION,
            essential=True,
            metavar="N",
            minimum=0,
        ),
    ] = None
    releases: Annotated[
        Literal["current", "all"],
        CommandLineOption(
            "Show compatibility with the newest Keras and tf_keras, or with all releases.",
            Group.REPORTING,
            essential=True,
        ),
    ] = "current"


class DiffCommandLine(ReportArguments):
    """The options of ``diff`` that Python does not have."""

    all: Annotated[
        bool,
        CommandLineOption(
            "Also show equal values, and differences that have no effect.",
            Group.REPORTING,
            essential=True,
        ),
    ] = False
