"""The options of commands that do not run models: inspect, audit, diff and explain."""

from collections.abc import Iterable
from typing import Annotated, Literal

from policytool.commands.arguments.declaration import Group, LimitArguments, Option, StrPath


class InspectArguments(LimitArguments):
    """The options of ``inspect``."""


class AuditArguments(LimitArguments):
    """The options of ``audit``."""

    select: Annotated[
        Iterable[str] | None,
        Option(
            "Run only these rules: rule IDs, prefixes such as PT1, names, or ALL.",
            Group.SELECTION,
            essential=True,
            metavar="RULES",
            has_variable=True,
            is_automatic=True,
            completion="rules",
        ),
    ] = None
    ignore: Annotated[
        Iterable[str] | None,
        Option(
            "Skip these rules. If --select also names a rule, the more specific selector wins.",
            Group.SELECTION,
            essential=True,
            metavar="RULES",
            has_variable=True,
            is_automatic=True,
            completion="rules",
        ),
    ] = None
    target: Annotated[
        str | Iterable[str] | None,
        Option(
            "Check compatibility with this release, such as keras3 or tf2.15; repeatable.",
            Group.SELECTION,
            essential=True,
            metavar="RELEASE",
            has_variable=True,
            is_automatic=True,
            completion="targets",
        ),
    ] = None
    device: Annotated[
        Literal["cpu", "gpu"] | None,
        Option(
            "Check kernels and speed on this device.",
            Group.SELECTION,
            essential=True,
            has_variable=True,
            is_automatic=True,
        ),
    ] = None
    weights: Annotated[
        bool,
        Option(
            "Also read and check the stored values.",
            Group.SELECTION,
            essential=True,
            has_variable=True,
        ),
    ] = False


class DiffArguments(LimitArguments):
    """The options of ``diff``."""

    layer: Annotated[
        str | None,
        Option(
            "Compare only layers whose path equals PATTERN or fully matches it as a regular "
            "expression.",
            Group.SELECTION,
            essential=True,
            metavar="PATTERN",
        ),
    ] = None
    values: Annotated[
        bool,
        Option(
            "Read and compare the stored values.",
            Group.MEASUREMENT,
            essential=True,
            is_negatable=True,
        ),
    ] = True


class ExplainArguments(LimitArguments):
    """The options of ``explain``."""

    model: Annotated[
        StrPath | None,
        Option(
            "Test the answer against this model.",
            Group.SELECTION,
            essential=True,
            is_setting=False,
            metavar="PATH",
        ),
    ] = None
