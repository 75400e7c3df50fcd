"""
The options of ``inspect`` and ``diff`` that only the command line has: results in Python are whole.
"""

from typing import Annotated, Literal

from policytool.cli.arguments import CacheArguments, ReportArguments
from policytool.cli.declared_options import CommandLineOption
from policytool.commands.arguments.declaration import Group


class InspectCommandLine(CacheArguments):
    """What ``inspect`` shows, of which models."""

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
    """What ``diff`` shows."""

    all: Annotated[
        bool,
        CommandLineOption(
            "Also show equal values, and differences that have no effect.",
            Group.REPORTING,
            essential=True,
        ),
    ] = False
