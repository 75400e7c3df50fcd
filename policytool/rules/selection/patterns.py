"""Globs for files, relative to a directory."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from policytool.support import limits
from policytool.support.errors import UsageError, short
from policytool.support.patterns import automata
from policytool.support.patterns.matching import check_pattern

if TYPE_CHECKING:
    from policytool.support.patterns.matching import Matcher

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

    def matches(self, path: str, matcher: Matcher) -> bool:
        """
        Return whether the pattern holds for a file, whose path is absolute and in POSIX form.

        :raises StepsExceededError: if matching exceeds the limit of steps.
        """
        base, pattern = self._parts()
        return path.startswith(base) and matcher.fullmatch(pattern, path.removeprefix(base))

    def check(self, what: str) -> None:
        """
        Make sure that the glob is not too long.

        :param what: what has the glob, as a sentence begins with it
        :raises UsageError: for one beyond the limit ``pattern-size``.
        """
        before = f"{what} has the glob {short(self.glob)!r}, which"
        if exceeded := limits.PATTERN_SIZE.exceeded_message(len(self.glob)):
            raise UsageError(f"{before} has {exceeded}")
        check_pattern(self._parts()[1], before)

    def _parts(self) -> tuple[str, str]:
        """Return how paths begin, and the regular expression for the rest of them."""
        glob = self.glob.rstrip("/")
        deep = "" if "/" in glob else "(?:.*/)?"
        glob = glob.removeprefix("./")
        base = "" if glob.startswith("/") else f"{self.base.rstrip('/')}/"
        while glob.startswith(_UP):
            glob = glob.removeprefix(_UP)
            base = f"{base[:-1].rpartition('/')[0]}/"
        return base, f"(?s){deep}{_translate(glob)}(?:/.*)?"


@functools.lru_cache(maxsize=1024)
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
    content = match[2].replace("\\", r"\\").replace("[", r"\[")
    characters = f"[{'^' if match[1] else ''}{content}]"
    try:
        automata.parse(characters)
    except automata.ExpressionError:  # a range that ends before it begins
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
