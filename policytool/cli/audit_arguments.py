"""
The options of ``audit`` that only the command line has: in Python, an audit returns every finding
and changes no file.
"""

from pathlib import Path
from typing import Annotated, Literal

from policytool.cli.arguments import CacheArguments
from policytool.cli.audit_settings import PerFile, read_ignores, read_path, read_suppressions
from policytool.cli.declared_options import CommandLineOption
from policytool.commands.arguments.declaration import Group, Kind
from policytool.rules.selection.suppressions import PerFileIgnore, Suppression


class AuditCommandLine(CacheArguments):
    """Which findings count, what an audit without models is, and what ``--fix`` does."""

    per_file_ignores: Annotated[
        tuple[PerFileIgnore, ...],
        CommandLineOption(
            "Suppress findings of these rules in files that match GLOB.",
            Group.SELECTION,
            type=PerFile(),
            metavar="GLOB:RULES",
            from_file=read_ignores,
            has_variable=True,
            is_automatic=True,
        ),
    ] = ()
    suppress: Annotated[
        tuple[Suppression, ...],
        CommandLineOption(
            "Suppress the findings that a [[suppress]] table describes, with its reason.",
            Group.SELECTION,
            is_only_setting=True,
            from_file=read_suppressions,
            is_automatic=True,
        ),
    ] = ()
    fail_on: Annotated[
        Literal["error", "warning", "note", "never"],
        CommandLineOption(
            "Exit 1 if any finding has this severity or higher.",
            Group.SELECTION,
            essential=True,
            has_variable=True,
            is_automatic=True,
        ),
    ] = "warning"
    no_models_ok: Annotated[
        bool,
        CommandLineOption(
            "Exit 0 instead of 4 if no model is found.", Group.SELECTION, has_variable=True
        ),
    ] = False
    skip_unrecognized: Annotated[
        bool,
        CommandLineOption(
            "Skip named files that are not models, instead of failing with exit code 3.",
            Group.SELECTION,
            has_variable=True,
        ),
    ] = False
    # A program that appends file names to the arguments of a user cannot add -- itself.
    require_separator: Annotated[
        bool,
        CommandLineOption(
            "Fail without -- between the options and the paths, so that no path is an option.",
            Group.SELECTION,
            is_passed=False,
            is_setting=False,
        ),
    ] = False
    show_suppressed: Annotated[
        bool,
        CommandLineOption(
            "Also show suppressed findings, with their reasons.", Group.REPORTING, has_variable=True
        ),
    ] = False
    baseline: Annotated[
        Path | None,
        CommandLineOption(
            "Ignore findings recorded in this baseline.",
            Group.SELECTION,
            essential=True,
            kind=Kind.FILE,
            metavar="FILE",
            from_file=read_path,
            has_variable=True,
            is_automatic=True,
        ),
    ] = None
    write_baseline: Annotated[
        Path | None,
        CommandLineOption(
            "Record all findings in this baseline, and ignore them.",
            Group.SELECTION,
            essential=True,
            kind=Kind.FILE,
            metavar="FILE",
            from_file=read_path,
            has_variable=True,
        ),
    ] = None

    fix: Annotated[
        bool,
        CommandLineOption(
            "Apply safe fixes in place, and keep the original as NAME.bak.",
            Group.FIX,
            essential=True,
            has_variable=True,
        ),
    ] = False
    unsafe_fixes: Annotated[
        bool,
        CommandLineOption(
            "With --fix or --diff, include fixes that change numerics or training.",
            Group.FIX,
            has_variable=True,
        ),
    ] = False
    diff: Annotated[
        bool,
        CommandLineOption(
            "Show the changes that --fix would make, without writing them.",
            Group.FIX,
            essential=True,
            has_variable=True,
        ),
    ] = False
    backup: Annotated[
        bool,
        CommandLineOption(
            "With --fix, keep the original as NAME.bak.",
            Group.SAFETY,
            is_negatable=True,
            has_variable=True,
        ),
    ] = True
