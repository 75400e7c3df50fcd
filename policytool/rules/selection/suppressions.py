"""
Suppressed findings: by a suppression with a reason, by the ignored rules of a file, or by a
baseline.
"""

from __future__ import annotations

import functools
import json
import posixpath
import re
from collections import Counter
from collections.abc import Mapping  # noqa: TC003  # for the codec
from datetime import date  # noqa: TC003  # as above
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field
from msgspec.structs import replace

from policytool.rules.base import Suppressed, fingerprints
from policytool.support import limits
from policytool.support.errors import UsageError, short
from policytool.support.patterns import matching
from policytool.support.patterns.matching import Matcher, StepsExceededError, check_pattern

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from policytool.rules.base import Audited, Finding


_UP: Final = "../"


class PathPattern(Struct, frozen=True, kw_only=True):
    """
    A glob that matches files below a directory.

    ``*`` and ``?`` match all characters except ``/``, ``**`` matches any number of directories, and
    ``[ab]`` matches one of the characters. A glob without ``/`` matches at any depth. A glob that
    matches a directory matches all files in it, including SavedModels.
    """

    glob: str
    base: str
    """The directory that the glob is relative to: absolute, in POSIX form."""

    def matches(self, path: str, matcher: Matcher) -> bool:
        """
        Return whether the pattern matches a file; the path must be absolute and in POSIX form.

        :raises StepsExceededError: if matching exceeds the limit of steps.
        """
        base, pattern = self._parts()
        return path.startswith(base) and matcher.fullmatch(pattern, path.removeprefix(base))

    def check(self, what: str) -> None:
        """
        Check that the glob is not too long.

        :param what: the owner of the glob, as the start of a sentence
        :raises UsageError: if the glob exceeds the limit ``pattern-size``.
        """
        before = f"{what} has the glob {short(self.glob)!r}, which"
        if exceeded := limits.PATTERN_SIZE.exceeded_message(len(self.glob)):
            raise UsageError(f"{before} has {exceeded}")
        check_pattern(self._parts()[1], before)

    def _parts(self) -> tuple[str, str]:
        """Return the prefix of matching paths, and the regular expression for the rest."""
        glob = self.glob.rstrip("/")
        any_directory = "" if "/" in glob else "(?:.*/)?"
        glob = glob.removeprefix("./")
        base = "" if glob.startswith("/") else f"{self.base.rstrip('/')}/"
        while glob.startswith(_UP):
            glob = glob.removeprefix(_UP)
            base = f"{base[:-1].rpartition('/')[0]}/"
        return base, f"(?s){any_directory}{_translate(glob)}(?:/.*)?"


@functools.lru_cache(maxsize=1024)
def _translate(glob: str) -> str:
    """Return the regular expression of a glob."""
    parts = []
    position = 0
    while position < len(glob):
        for pattern, translation in _TOKENS:
            if match := pattern.match(glob, position):
                parts.append(translation(match))
                position = match.end()
                break
    return "".join(parts)


def _class(match: re.Match[str]) -> str:
    """Return the regular expression of a character class in a glob."""
    content = match[2].replace("\\", r"\\").replace("[", r"\[")
    characters = f"[{'^' if match[1] else ''}{content}]"
    try:
        matching.parse(characters)
    except matching.ExpressionError:  # the end of a range is before its start
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
The tokens of globs, the longest first. A bracket without an end, or with a range whose end is
before its start, matches itself.
"""


KNOWN: Final = "recorded in the baseline"


class Suppression(Struct, frozen=True, kw_only=True):
    """A ``[[suppress]]`` table of a settings file."""

    words: tuple[str, ...]
    """The user's selectors of the rules."""

    rules: frozenset[str]
    """The ids of the rules."""

    reason: str
    path: PathPattern | None = None
    """The affected files; None for all."""

    layer: str | None = None
    """
    The path of a layer, or a regular expression that must match the whole path. None for all
    findings, including those that are not about a layer.
    """

    expires: date | None = None
    """The first day on which the suppression has no effect; None if it never expires."""

    def __str__(self) -> str:
        layer_words = [f"of {self.layer}"] if self.layer is not None else []
        layer_words += [f"in {self.path.glob}"] if self.path is not None else []
        return " ".join([",".join(self.words), *layer_words])

    def toml(self) -> str:
        """Return the suppression in the format of a settings file, in one line."""
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
        """Return whether the suppression has expired on a day."""
        return self.expires is not None and today >= self.expires

    def is_for_layer(self, layer: str | None, matcher: Matcher) -> bool:
        """
        Return whether the suppression applies to a layer, or to the whole model for None.

        :raises StepsExceededError: if matching exceeds the limit of steps.
        """
        return self.layer is None or (
            layer is not None and (layer == self.layer or matcher.fullmatch(self.layer, layer))
        )


class PerFileIgnore(Struct, frozen=True, kw_only=True):
    """Rules that are ignored in some files."""

    pattern: PathPattern
    words: tuple[str, ...]
    rules: frozenset[str]

    def __str__(self) -> str:
        return f"{self.pattern.glob}:{','.join(self.words)}"


class Suppressions(Struct, frozen=True, kw_only=True):
    """All sources of suppressions, in the order of precedence."""

    directory: str
    """The working directory in absolute POSIX form; paths in reports are relative to it."""

    today: date
    entries: tuple[Suppression, ...] = ()
    per_file: tuple[PerFileIgnore, ...] = ()
    known: Mapping[str, Mapping[str, int]] = field(default_factory=lambda: MappingProxyType({}))
    """The number of each fingerprint in the baseline, by the path of the file in reports."""

    def of_model(self, audited: Audited) -> ModelSuppressions:
        """Return the suppressions that apply to a model."""
        return ModelSuppressions(
            self, posixpath.normpath(posixpath.join(self.directory, audited.path))
        )


class ModelSuppressions:
    """
    The suppressions of a model.

    After the limit of steps for patterns is exceeded, no further finding is suppressed, so that too
    many names or too complex patterns cannot hide findings.
    """

    def __init__(self, suppressions: Suppressions, place: str) -> None:
        self._suppressions = suppressions
        self._place = place
        self._matcher = Matcher()
        self._by_rule: dict[str, tuple[list[int], list[PerFileIgnore]]] = {}
        self.exceeded = ""
        """The reason why some patterns were not matched, as the end of a sentence; or empty."""

    def suppressing(self, finding: Finding) -> Suppressed | None:
        """Return the suppression of a finding, ignoring baselines; None if there is none."""
        for number in list(self.meant_for(finding)):
            suppression = self._suppressions.entries[number]
            if not suppression.is_expired(self._suppressions.today):
                return Suppressed(finding=finding, reason=suppression.reason, by="suppression")
        _, ignores = self._for_rule(finding.rule)
        for ignored in ignores:
            return Suppressed(finding=finding, reason=f"matches {ignored}", by="per-file-ignores")
        return None

    def meant_for(self, finding: Finding) -> Iterator[int]:
        """Yield the numbers of the suppressions that apply to a finding, including expired ones."""
        numbers, _ = self._for_rule(finding.rule)
        for number in numbers:
            try:
                is_meant = self._suppressions.entries[number].is_for_layer(
                    finding.path, self._matcher
                )
            except StepsExceededError as error:
                self._stop(error)
                return
            if is_meant:
                yield number

    def _for_rule(self, rule: str) -> tuple[list[int], list[PerFileIgnore]]:
        """
        Return the numbers of the suppressions, and the per-file ignores, that apply to a rule in
        this model.
        """
        if self.exceeded:
            return [], []
        if rule not in self._by_rule:
            try:
                numbers = [
                    number
                    for number, entry in enumerate(self._suppressions.entries)
                    if rule in entry.rules and self._is_here(entry.path)
                ]
                ignored = [
                    entry
                    for entry in self._suppressions.per_file
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


def suppress(audited: Audited, suppressions: Suppressions) -> Audited:
    """
    Return the result of a model with suppressed findings moved to a separate list.

    A suppression takes precedence over the ignored rules of a file, and these over the baseline,
    because a suppression has a reason.
    """
    known = Counter(suppressions.known.get(audited.path, {}))
    unsuppressed: list[tuple[Finding, str]] = []
    passed: list[Suppressed] = []
    for finding, fingerprint, suppression in judge(audited, suppressions):
        is_known = known[fingerprint] > 0
        known[fingerprint] -= 1
        if suppression is not None:
            passed.append(replace(suppression, fingerprint=fingerprint))
        elif is_known:
            passed.append(
                Suppressed(finding=finding, reason=KNOWN, by="baseline", fingerprint=fingerprint)
            )
        else:
            unsuppressed.append((finding, fingerprint))
    return replace(
        audited,
        findings=tuple(finding for finding, _ in unsuppressed),
        fingerprints=tuple(mark for _, mark in unsuppressed),
        suppressed=tuple(passed),
    )


def judge(
    audited: Audited, suppressions: Suppressions
) -> Iterator[tuple[Finding, str, Suppressed | None]]:
    """
    Yield each finding of a model with its fingerprint and its suppression, ignoring baselines.
    """
    applicable = suppressions.of_model(audited)
    for finding, fingerprint in zip(audited.findings, fingerprints(audited.findings), strict=True):
        yield finding, fingerprint, applicable.suppressing(finding)


def expired_suppressions(
    suppressions: Iterable[Suppression], today: date
) -> tuple[Suppression, ...]:
    """Return the expired suppressions."""
    return tuple(suppression for suppression in suppressions if suppression.is_expired(today))


def all_of(audited: Audited) -> tuple[Finding, ...]:
    """Return all findings in a model, including suppressed findings."""
    return (*audited.findings, *(entry.finding for entry in audited.suppressed))
