"""
The contract that every run of the tool keeps, on any bytes.

Exit code 0, 1, 3 or 4 (2 only where the bytes are the user's own: settings, plans, baselines),
never 70; what went wrong in sentences, one a line, each with the tool's name before it; no
traceback; no character that a terminal obeys; JSON that is JSON; no file that was not asked for.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

from tests.conftest import Ended, run

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

ENDINGS: Final = frozenset({0, 1, 3, 4})
USAGE: Final = 2
_TOLD: Final = re.compile(r"error: \S.* \[([a-z0-9-]+)\]")
_CONTROL: Final = re.compile(r"(?!\r\n)[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
SECONDS: Final = 30
BYTES: Final = 2**30


class BrokenError(Exception):
    """A run that did not keep the contract."""


def judged(ended: Ended, arguments: Sequence[str | Path], *, usage: bool = False) -> str:
    """
    Return how a run ended, in a word: ``read``, ``findings``, ``none``, ``usage``, or the code of
    the first failure.

    :raises BrokenError: where it did not keep the contract.
    """
    shown = f"{' '.join(map(str, arguments))}\n{ended.err[-2000:]}"
    if ended.code not in ENDINGS | ({USAGE} if usage else set()):
        raise BrokenError(f"exit code {ended.code}: {shown}")
    for stream in (ended.out, ended.err):
        if "Traceback (most recent call last)" in stream:
            raise BrokenError(f"a traceback: {shown}")
        if found := _CONTROL.search(stream):
            raise BrokenError(
                f"the control character {found[0]!r} after "
                f"{stream[max(0, found.start() - 80) : found.start()]!r}: {shown}"
            )
    lines = ended.err.splitlines()
    if ended.code != USAGE and any(
        not line.startswith(("error: ", "warning: ", "note: ")) for line in lines
    ):
        raise BrokenError(f"a line on stderr that is no sentence of the tool's: {shown}")
    if "json" in arguments and ended.out:
        _check_json(ended.out, shown)
    if ended.code == 3:
        return _reason(ended, lines, shown)
    return {0: "read", 1: "findings", 4: "none"}.get(ended.code, "usage")


def _reason(ended: Ended, lines: Sequence[str], shown: str) -> str:
    """Return the code of the failure that a run ended for, which it has to tell."""
    actual = [found[1] for line in lines if (found := _TOLD.fullmatch(line))]
    if not actual and not ended.out and not lines:
        raise BrokenError(f"exit code 3 without a word: {shown}")
    return actual[0] if actual else "refused"


def _check_json(out: str, shown: str) -> None:
    try:
        json.loads(out, parse_constant=_no_constant)
    except ValueError as error:
        raise BrokenError(f"a JSON report that is none ({error}): {shown}") from error


def _no_constant(name: str) -> None:
    raise ValueError(f"it has {name}")


def command(*arguments: str | Path, usage: bool = False) -> str:
    """
    Run the command line in this process, and return how it ended.

    :raises BrokenError: where it did not keep the contract.
    """
    try:
        ended = run(*arguments, "-v")
    except BrokenError:
        raise
    except Exception as error:  # with -v a bug is raised as it is, with the place where it happened
        raise BrokenError(f"exit code 70: {' '.join(map(str, arguments))}") from error
    return judged(ended, [str(argument) for argument in arguments], usage=usage)
