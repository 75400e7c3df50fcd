"""The options of ``migrate``, ``check`` and ``tune`` that only the command line has."""

from pathlib import Path
from typing import Annotated

from policytool.cli.arguments import FleetArguments, ProgressArguments
from policytool.cli.declared_options import CommandLineOption
from policytool.commands.arguments.declaration import Group, Kind


class MigrateCommandLine(FleetArguments):
    """The plans that ``migrate`` applies."""

    plan: Annotated[
        Path | None,
        CommandLineOption(
            "Apply a plan saved with --preview --format json.",
            Group.OUTPUT,
            kind=Kind.FILE,
            metavar="FILE",
        ),
    ] = None


class RunCommandLine(ProgressArguments):
    """What ``check`` and ``tune`` show."""

    all_layers: Annotated[
        bool,
        CommandLineOption(
            "Show all layers instead of only the most important ones.", Group.REPORTING
        ),
    ] = False


class CheckCommandLine(RunCommandLine):
    """The same, and how ``check`` ends."""

    accept_undecided: Annotated[
        bool,
        CommandLineOption(
            "Exit with 0 instead of 5 if the answer is undecided.", Group.MEASUREMENT
        ),
    ] = False
