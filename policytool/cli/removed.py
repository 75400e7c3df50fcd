"""Commands and options that were removed, each with what to use instead."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

REMOVED_COMMANDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "rules": "use `policytool explain rules`, or `policytool explain ID` for one rule",
        "policies": (
            "use `policytool explain policies`, or `policytool explain NAME` for one policy"
        ),
        "limits": "use `policytool explain limits`, or `policytool explain NAME` for one limit",
    }
)
"""Command to the end of a sentence with its successor."""

REMOVED_OPTIONS: Final[Mapping[tuple[str, ...], Mapping[str, str]]] = MappingProxyType({})
"""Commands to their removed options, each with the end of a sentence with its successor."""


def removed_option(command: str, option: str) -> str | None:
    """Return what to use instead of an option of a command; None if it never had the option."""
    return next(
        (
            options[option]
            for commands, options in REMOVED_OPTIONS.items()
            if command in commands and option in options
        ),
        None,
    )
