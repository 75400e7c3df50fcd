"""Exit codes, for every command."""

from __future__ import annotations

import errno
from enum import IntEnum
from typing import TYPE_CHECKING, Final

import click

from policytool.support.errors import INTERNAL, USAGE, PolicytoolError, UsageError
from policytool.support.processes import interrupts

if TYPE_CHECKING:
    from collections.abc import Iterable

OF_THE_MACHINE: Final = frozenset(
    getattr(errno, name)
    for name in (
        "ENOSPC",
        "EDQUOT",
        "EFBIG",
        "EIO",
        "EROFS",
        "ESTALE",
        "ENOMEM",
        "EMFILE",
        "ENFILE",
        "EBADF",
        "EAGAIN",
    )
    if hasattr(errno, name)
)
"""
A full or a failing disk below stdout, a stdout that takes no output, a directory that cannot be
searched: not a bug in policytool.
"""


class Exit(IntEnum):
    """
    What the process says when it ends; when several apply: INTERRUPTED, BUG, USAGE, FAILURE,
    FINDINGS, UNDECIDED, NO_MODEL, CLEAN.
    """

    CLEAN = 0
    FINDINGS = 1
    USAGE = 2
    FAILURE = 3
    NO_MODEL = 4
    UNDECIDED = 5
    BUG = 70
    INTERRUPTED = 130


def exit_code_of_failures(codes: Iterable[str]) -> Exit:
    """
    Return the exit code of a run that could not process all files.

    :param codes: the codes of the files' failures; none if only a report could not be written
    """
    failure_codes = frozenset(codes)
    if INTERNAL in failure_codes:
        return Exit.BUG
    return Exit.USAGE if USAGE in failure_codes else Exit.FAILURE


def code_of(error: BaseException) -> int:
    """Return the exit code of a run that an error or a signal ends."""
    if interrupts.is_interrupted():
        return Exit.INTERRUPTED
    match error:
        case click.exceptions.Exit():
            return error.exit_code
        case click.Abort() | KeyboardInterrupt():
            return Exit.INTERRUPTED
        case click.ClickException() | UsageError():
            return Exit.USAGE
        case PolicytoolError():
            return Exit.FAILURE
        case MemoryError() | RecursionError():
            return Exit.FAILURE
        case OSError() if error.errno in OF_THE_MACHINE:
            return Exit.FAILURE
    return Exit.BUG
