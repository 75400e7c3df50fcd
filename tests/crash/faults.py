"""
The faults that are put into a run, one for each call of the system that an undisturbed run makes in
the directory.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import cycle, islice
from typing import TYPE_CHECKING, Final

from tests.crash.runs import Fault

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.crash.tracing import Call

SIGNALS: Final = ("KILL", "INT", "TERM")
ERRORS: Final = ("ENOSPC", "EDQUOT", "EIO", "EROFS", "ESTALE", "EINTR", "EPERM", "EOPNOTSUPP")
"""
A full disk, a full quota, a failing disk, one that became read-only, a server that lost the file,
an interruption, a file system that does not do it.
"""

_LASTING: Final = " from then on"
LASTING: Final = tuple(f"{error}{_LASTING}" for error in ("EIO", "EROFS", "ENOSPC"))
"""What every later call meets too, those that take back among them."""

_OPENING: Final = {"open", "openat", "openat2", "creat"}
_NEEDING_ROOM: Final = frozenset(
    {
        "write",
        "pwrite64",
        "ftruncate",
        "fallocate",
        "mkdir",
        "link",
        "linkat",
        "symlink",
        "symlinkat",
        "rename",
        "copy_file_range",
        "fsetxattr",
    }
)
"""What a full disk refuses; it lets names be taken away."""

_TAKING_BACK: Final = (
    "rename",
    "renameat2",
    "unlink",
    "unlinkat",
    "rmdir",
    "link",
    "linkat",
    "fsync",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One fault at one call."""

    kind: str
    fault: Fault
    at: Call | None = None
    """The call that meets it; None for limits."""

    killed: bool = False
    may_leave: bool = False
    """
    Whether a draft may stay under its hidden name: the process was killed, or what removes drafts
    was made to fail.
    """


def at_writing_calls(
    own: Sequence[Call],
    every: Sequence[Call],
    kinds: Sequence[str],
    among: Sequence[Call] | None = None,
) -> Iterator[Case]:
    """
    Yield a case for each kind at each call that writes in the directory, or at those ``among``
    them.

    ``own`` are all calls in the directory, ``every`` all of the run. A kind is a signal, an error,
    or an error that lasts (``EIO from then on``).
    """
    for call in own if among is None else among:
        for kind in kinds if call.writes else ():
            yield case(call, own, every, kind)


def in_turn(
    own: Sequence[Call], every: Sequence[Call], kinds: Sequence[str], count: int
) -> Iterator[Case]:
    """
    Yield a case for so many of the kinds, others each time, at some of the calls that write: each
    name on each file.
    """
    turn = cycle(kinds)
    for call in thinned([call for call in own if call.writes]):
        for kind in islice(turn, count):
            yield case(call, own, every, kind)


def case(call: Call, own: Sequence[Call], every: Sequence[Call], kind: str) -> Case:
    """Return one kind of fault at one call."""
    if kind in SIGNALS:
        return Case(
            kind=f"SIG{kind}",
            fault=_one(call, f"signal={kind}"),
            at=call,
            killed=kind == "KILL",
            may_leave=kind == "KILL",
        )
    if kind.endswith(_LASTING):
        return Case(
            kind=kind,
            fault=_from(call, own, every, kind.removesuffix(_LASTING)),
            at=call,
            may_leave=True,
        )
    return Case(
        kind=kind,
        fault=_one(call, f"error={kind}"),
        at=call,
        may_leave=call.name in {"unlink", "unlinkat", "rmdir"},
    )


def at_reading_calls(own: Sequence[Call], kind: str) -> Iterator[Case]:
    """Yield an error at calls that read in the directory, or ask about it."""
    for call in thinned([call for call in own if not call.writes]):
        yield Case(kind=f"{kind} while reading", fault=_one(call, f"error={kind}"), at=call)


def thinned(calls: Sequence[Call]) -> list[Call]:
    """Return, of calls of one name on one file, the first, the last and every tenth between."""
    groups: defaultdict[tuple[str, str], list[Call]] = defaultdict(list)
    for call in calls:
        place = re.search(r"[<\"](/[^>\"]*)[>\"]", call.text.replace("AT_FDCWD<", "("))
        groups[call.name, place[1] if place else ""].append(call)
    chosen = {id(call) for group in groups.values() for call in (*group[::10], group[-1])}
    return [call for call in calls if id(call) in chosen]


def short_writes(largest: int, count: int) -> Iterator[Case]:
    """Yield limits to the size of a file, which the system answers with short writes first."""
    for part in range(count):
        yield Case(kind="short writes", fault=Fault(largest=1 + largest * part // count))


def _one(call: Call, what: str) -> Fault:
    return Fault(inject=(f"{call.name}:{what}:when={call.number}",))


def _from(call: Call, own: Sequence[Call], every: Sequence[Call], error: str) -> Fault:
    """
    Return an error at a call and at each later one that writes.

    strace counts each name for itself. Of calls that do other things as well, which load modules
    and write to stdout, the one alone fails.
    """
    before: Counter[str] = Counter()
    for other in every:
        if other is call:
            break
        before[other.name] += 1
    last = {other.name: other.number for other in own if other.writes}
    expressions = []
    for name in sorted({*last, *_TAKING_BACK} - _OPENING):
        if error == "ENOSPC" and name not in _NEEDING_ROOM:
            continue
        first = before[name] + 1
        if name != "write":
            expressions.append(f"{name}:error={error}:when={first}+")
    if call.name in _OPENING or call.name == "write":
        expressions.append(f"{call.name}:error={error}:when={call.number}")
    return Fault(inject=tuple(expressions))
