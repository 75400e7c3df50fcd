"""
Findings that were looked at and are let pass: by a suppression with a reason, for a file's sake, or
because a baseline knows them.
"""

from __future__ import annotations

import functools
import json
import posixpath
import re
from collections import Counter
from collections.abc import Mapping  # noqa: TC003  # for the codec
from dataclasses import dataclass, field, replace
from datetime import date  # noqa: TC003  # as above
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from policytool.rules.base import Suppressed, fingerprints
from policytool.support import limits
from policytool.support.errors import UsageError, short
from policytool.support.patterns import matching
from policytool.support.patterns.matching import Matcher, StepsExceededError, check_pattern

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from policytool.rules.base import Audited, Finding


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
        matching.parse(characters)
    except matching.ExpressionError:  # a range that ends before it begins
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


KNOWN: Final = "recorded in the baseline"


@dataclass(frozen=True, kw_only=True, slots=True)
class Suppression:
    """One ``[[suppress]]`` of a settings file."""

    words: tuple[str, ...]
    """The rules as the user calls them."""

    rules: frozenset[str]
    """Their ids."""

    reason: str
    path: PathPattern | None = None
    """The files it holds for; None for all."""

    layer: str | None = None
    """
    A layer's path, or a regular expression that one matches in full; None for all, and for what is
    about no layer.
    """

    expires: date | None = None
    """From this day on it no longer works."""

    def __str__(self) -> str:
        where = [f"of {self.layer}"] if self.layer is not None else []
        where += [f"in {self.path.glob}"] if self.path is not None else []
        return " ".join([",".join(self.words), *where])

    def toml(self) -> str:
        """Return it as a settings file spells it, in one line."""
        values: list[tuple[str, object]] = [
            ("rules", list(self.words)),
            ("path", self.path and self.path.glob),
            ("layer", self.layer),
            ("reason", self.reason),
        ]
        words = [
            f"{key} = {json.dumps(value, ensure_ascii=False)}"
            for key, value in values
            if value is not None
        ]
        return (
            f"{{ {', '.join([*words, *([f'expires = {self.expires}'] if self.expires else [])])} }}"
        )

    def is_expired(self, today: date) -> bool:
        """Return whether it no longer works."""
        return self.expires is not None and today >= self.expires

    def is_for_layer(self, layer: str | None, matcher: Matcher) -> bool:
        """
        Return whether it is meant for a layer; None stands for the model as a whole.

        :raises StepsExceededError: if matching exceeds the limit of steps.
        """
        return self.layer is None or (
            layer is not None and (layer == self.layer or matcher.fullmatch(self.layer, layer))
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class PerFileIgnore:
    """Rules that do not count in some files."""

    pattern: PathPattern
    words: tuple[str, ...]
    rules: frozenset[str]

    def __str__(self) -> str:
        return f"{self.pattern.glob}:{','.join(self.words)}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Suppressions:
    """What lets findings pass, in the order in which it is asked."""

    directory: str
    """The working directory, which paths in reports are relative to: absolute, in POSIX form."""

    today: date
    suppressions: tuple[Suppression, ...] = ()
    per_file: tuple[PerFileIgnore, ...] = ()
    known: Mapping[str, Mapping[str, int]] = field(default_factory=lambda: MappingProxyType({}))
    """By a file's path as reports show it, how often a baseline has each fingerprint."""

    def of_model(self, audited: Audited) -> ModelSuppressions:
        """Return those of one model."""
        return ModelSuppressions(
            self, posixpath.normpath(posixpath.join(self.directory, audited.path))
        )


class ModelSuppressions:
    """
    What lets the findings of one model pass.

    Beyond the limit of steps for its patterns, no finding is suppressed any more: too many names,
    or patterns that are too complex, hide nothing.
    """

    def __init__(self, passing: Suppressions, place: str) -> None:
        self._passing = passing
        self._place = place
        self._matcher = Matcher()
        self._by_rule: dict[str, tuple[list[int], list[PerFileIgnore]]] = {}
        self.exceeded = ""
        """Why not all patterns were matched, as the end of a sentence; empty if all were."""

    def suppressing(self, finding: Finding) -> Suppressed | None:
        """Return what lets a finding pass, baselines left out; None if nothing does."""
        for number in list(self.meant_for(finding)):
            suppression = self._passing.suppressions[number]
            if not suppression.is_expired(self._passing.today):
                return Suppressed(finding=finding, reason=suppression.reason, by="suppression")
        for ignored in self._for_rule(finding.rule)[1]:
            return Suppressed(finding=finding, reason=f"matches {ignored}", by="per-file-ignores")
        return None

    def meant_for(self, finding: Finding) -> Iterator[int]:
        """Yield the numbers of the suppressions that are meant for a finding, expired or not."""
        for number in self._for_rule(finding.rule)[0]:
            try:
                is_meant = self._passing.suppressions[number].is_for_layer(
                    finding.path, self._matcher
                )
            except StepsExceededError as error:
                self._stop(error)
                return
            if is_meant:
                yield number

    def _for_rule(self, rule: str) -> tuple[list[int], list[PerFileIgnore]]:
        """Return the suppressions and ignored rules of this model that are meant for a rule."""
        if self.exceeded:
            return [], []
        if rule not in self._by_rule:
            try:
                numbers = [
                    number
                    for number, entry in enumerate(self._passing.suppressions)
                    if rule in entry.rules and self._is_here(entry.path)
                ]
                ignored = [
                    entry
                    for entry in self._passing.per_file
                    if rule in entry.rules and self._is_here(entry.pattern)
                ]
            except StepsExceededError as error:
                self._stop(error)
                return [], []
            self._by_rule[rule] = numbers, ignored
        return self._by_rule[rule]

    def _is_here(self, pattern: PathPattern | None) -> bool:
        return pattern is None or pattern.matches(self._place, self._matcher)

    def _stop(self, error: StepsExceededError) -> None:
        self.exceeded = str(error)


def suppress(audited: Audited, passing: Suppressions) -> Audited:
    """
    Return a model's result, as it was found, with the findings set apart that are let pass.

    A suppression speaks before the file's ignored rules, and these before the baseline, because it
    has a reason of its own.
    """
    known = Counter(passing.known.get(audited.path, {}))
    counting: list[tuple[Finding, str]] = []
    passed: list[Suppressed] = []
    for finding, fingerprint, suppression in judge(audited, passing):
        is_known = known[fingerprint] > 0
        known[fingerprint] -= 1
        if suppression is not None:
            passed.append(replace(suppression, fingerprint=fingerprint))
        elif is_known:
            passed.append(
                Suppressed(finding=finding, reason=KNOWN, by="baseline", fingerprint=fingerprint)
            )
        else:
            counting.append((finding, fingerprint))
    return replace(
        audited,
        findings=tuple(finding for finding, _ in counting),
        fingerprints=tuple(mark for _, mark in counting),
        suppressed=tuple(passed),
    )


def judge(
    audited: Audited, passing: Suppressions
) -> Iterator[tuple[Finding, str, Suppressed | None]]:
    """
    Yield each finding of a model, as it was found, with its fingerprint and what lets it pass,
    baselines left out.
    """
    applicable = passing.of_model(audited)
    for finding, fingerprint in zip(audited.findings, fingerprints(audited.findings), strict=True):
        yield finding, fingerprint, applicable.suppressing(finding)


def expired_suppressions(
    suppressions: Iterable[Suppression], today: date
) -> tuple[Suppression, ...]:
    """Return the suppressions that no longer work."""
    return tuple(suppression for suppression in suppressions if suppression.is_expired(today))


def all_of(audited: Audited) -> tuple[Finding, ...]:
    """Return what was found in a model, let pass or not."""
    return (*audited.findings, *(entry.finding for entry in audited.suppressed))
