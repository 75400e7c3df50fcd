"""Exit codes, for every command (design section 6)."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """
    What the process says when it ends; when several apply: INTERRUPTED, USAGE, FAILURE, FINDINGS,
    NO_MODEL, CLEAN.
    """

    CLEAN = 0
    FINDINGS = 1
    USAGE = 2
    FAILURE = 3
    NO_MODEL = 4
    BUG = 70
    INTERRUPTED = 130
