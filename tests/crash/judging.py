"""
What a run left in its directory, held against what was there before and against what an undisturbed
run leaves.
"""

from __future__ import annotations

import json
import os
import stat
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from policytool.support.files.atomic import ASIDE, SUFFIX

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Held: TypeAlias = "dict[str, tuple[int, bytes]]"
"""Every file and directory by its path: mode and content; what a link leads to."""

LOST: Final = "lost or mixed"


class State(Enum):
    """What stands in a directory under names that are not hidden."""

    ORIGINAL = "original"
    NEW = "new"
    SPARE = "new, the original as NAME.bak"
    """The original of a directory that was to be removed, and is not yet."""

    BETWEEN = "each file original or new"
    """A backup that is there already, or one of several files that is written already."""

    ASIDE = "original as NAME.bak"


def held(directory: Path) -> Held:
    """Return what is in a directory."""
    found: Held = {}
    for parent, folders, files in os.walk(directory):
        for name in (*folders, *files):
            path = os.path.join(parent, name)  # noqa: PTH118  # fast: this runs ten thousand times
            status = os.lstat(path)
            if stat.S_ISLNK(status.st_mode):
                content = os.fsencode(os.readlink(path))  # noqa: PTH115
            elif stat.S_ISREG(status.st_mode):
                with open(path, "rb") as stream:  # noqa: PTH123
                    content = stream.read()
            else:
                content = b""
            found[os.path.relpath(path, directory)] = (status.st_mode, content)
    return found


def visible(found: Held) -> Held:
    """Return what has no hidden name of a draft, and lies in no directory that has one."""
    return {name: value for name, value in found.items() if not _is_hidden(name)}


def hidden(found: Held) -> list[str]:
    """Return the hidden names of drafts."""
    return sorted(
        {
            next(part for part in Path(name).parts if _is_hidden(part))
            for name in found
            if _is_hidden(name)
        }
    )


def state(
    found: Held, before: Held, after: Held, *, backup_goes: bool = False, separate: bool = False
) -> State | str:
    """
    Return what stands there, or a sentence that says what was lost or mixed; ``separate`` files are
    whole each for itself.
    """
    seen = visible(found)
    if seen == after:
        return State.NEW
    if seen == before:
        return State.ORIGINAL
    if _without_spare(seen, before, after) == after:
        return State.SPARE
    is_aside = False
    for top in sorted(
        {name if separate else name.partition(os.sep)[0] for name in (*seen, *before, *after)}
    ):
        now, old, new = (_below(files, top, alone=separate) for files in (seen, before, after))
        original = _below(before, top.removesuffix(ASIDE)) if top.endswith(ASIDE) else {}
        if now in (old, new) or (original and now == original):
            continue
        if _without_backups(now, old) in (_without_backups(old, old), _without_backups(new, old)):
            continue
        if not now and old and _below(seen, top + ASIDE) == old:
            is_aside = True
        elif not (backup_goes and top.endswith(ASIDE) and not now):
            return f"{LOST}: {top} is neither what it was nor what it becomes"
    return State.ASIDE if is_aside else _with_backups(seen, before, after)


def is_whole_report(data: bytes, expected: bytes) -> bool:
    """Return whether something is a whole report of the kind that is expected."""
    try:
        result = json.loads(data)
    except ValueError:
        return False
    return isinstance(result, dict) and result.keys() == json.loads(expected).keys()


def _with_backups(seen: Held, before: Held, after: Held) -> State | str:
    """
    Return that each file is whole, once the originals of those that are new have their backups.
    """
    for name, value in after.items():
        base = name.removesuffix(ASIDE)
        replaced = name.endswith(ASIDE) and base in before and after.get(base) != before[base]
        if replaced and seen.get(base) == after.get(base) and seen.get(name) != value:
            return f"{LOST}: {base} is new, and {name} is not its original"
    return State.BETWEEN


def _without_backups(files: Held, before: Held) -> Held:
    """Return the files of a model but for the backups of some of them beside them."""
    return {
        name: value
        for name, value in files.items()
        if not (name.endswith(ASIDE) and before.get(name.removesuffix(ASIDE)) == value)
    }


def _below(files: Mapping[str, tuple[int, bytes]], top: str, *, alone: bool = False) -> Held:
    """
    Return one file, or a directory with what is in it unless it stands ``alone``, by paths that
    begin at it.
    """
    return {
        name.removeprefix(top): value
        for name, value in files.items()
        if name == top or (not alone and name.startswith(top + os.sep))
    }


def _is_hidden(name: str) -> bool:
    return any(part.startswith(".") and part.endswith(SUFFIX) for part in Path(name).parts)


def _without_spare(found: Held, before: Held, after: Held) -> Held:
    """
    Return what is there but for originals beside what is new: what is interrupted when it was about
    to remove them leaves them, under NAME.bak.
    """

    def is_spare(name: str) -> bool:
        top, _, rest = name.partition(os.sep)
        original = top.removesuffix(ASIDE) + (os.sep + rest if rest else "")
        return top.endswith(ASIDE) and name not in after and found[name] == before.get(original)

    return {name: value for name, value in found.items() if not is_spare(name)}


def wrong(
    said: str, code: int, found: State | str, *, expected: int, killed: bool, separate: bool
) -> Iterator[str]:
    """Yield what is wrong with how a run ended, given what it left."""
    if isinstance(found, str):
        yield found
    if killed:
        if code >= 0:
            yield f"ended with {code}, and not by the signal"
        return
    if (
        "Traceback" in said
        or "is a bug" in said
        or code not in ({0, 1, 2, 3, 130} if found is State.ORIGINAL else {0, 1, 3, 130})
    ):
        yield f"ended with {code}: {said[-300:]}"
    if code == expected and found not in {State.NEW, State.SPARE}:
        yield f"ended with {code} as if done, and left {found}"
    if code == 3 and "nothing was changed" in said and found is not State.ORIGINAL and not separate:
        yield f"said that nothing was changed, and left {found}"
    if (
        code == 3
        and found is not State.ORIGINAL
        and not separate
        and "nothing was changed" not in said
        and "could not be undone" not in said
    ):
        yield f"failed and left {found}: {said[-300:]}"
