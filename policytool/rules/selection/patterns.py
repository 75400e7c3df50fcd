"""Globs for files, relative to a directory."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Final

_UP: Final = "../"


@dataclass(frozen=True, kw_only=True, slots=True)
class PathPattern:
    """
    Files below a directory.

    ``*`` and ``?`` stand for anything but ``/``, ``**`` for any number of directories, ``[ab]`` for
    one of the characters. A glob without ``/`` is looked for at any depth. A directory's pattern
    holds for all that lies in it, so a SavedModel is one file among others.
    """

    glob: str
    base: str
    """The directory that the glob is relative to: absolute, in POSIX form."""

    def matches(self, path: str) -> bool:
        """Return whether the pattern holds for a file, whose path is absolute and in POSIX form."""
        return _expression(self.glob, self.base).fullmatch(path) is not None


@functools.lru_cache(maxsize=1024)
def _expression(glob: str, base: str) -> re.Pattern[str]:
    wanted = glob.rstrip("/")
    deep = "" if "/" in wanted else "(?:.*/)?"
    wanted = wanted.removeprefix("./")
    if wanted.startswith("/"):
        return re.compile(f"{_translate(wanted)}(?:/.*)?", re.DOTALL)
    while wanted.startswith(_UP):
        wanted, base = wanted.removeprefix(_UP), base.rpartition("/")[0]
    return re.compile(
        f"{re.escape(base.rstrip('/'))}/{deep}{_translate(wanted)}(?:/.*)?", re.DOTALL
    )


def _translate(glob: str) -> str:
    """Return the regular expression of a glob."""
    parts = []
    position = 0
    while position < len(glob):
        for pattern, make in _TOKENS:
            if match := pattern.match(glob, position):
                parts.append(make(match))
                position = match.end()
                break
    return "".join(parts)


def _class(match: re.Match[str]) -> str:
    held = match[2].replace("\\", r"\\").replace("[", r"\[")
    characters = f"[{'^' if match[1] else ''}{held}]"
    try:
        re.compile(characters)
    except re.error:  # a range that ends before it begins
        return re.escape(match[0])
    return f"(?!/){characters}"


_TOKENS: Final = (
    (re.compile(r"\*\*/"), lambda _: "(?:.*/)?"),
    (re.compile(r"\*\*"), lambda _: ".*"),
    (re.compile(r"\*"), lambda _: "[^/]*"),
    (re.compile(r"\?"), lambda _: "[^/]"),
    (re.compile(r"\[([!^]?)([^\]/][^\]/]*)\]"), _class),
    (re.compile(r"(?s)."), lambda match: re.escape(match[0])),
)
"""
The longer ones first; a bracket that is never closed, or has a range that ends before it begins,
stands for itself.
"""
