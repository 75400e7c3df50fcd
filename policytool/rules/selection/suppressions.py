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

from policytool.rules.finding import Suppressed, fingerprints
from policytool.rules.selection.patterns import PathPattern  # noqa: TC001  # as above

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from policytool.rules.finding import Audited, Finding

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
        said: list[tuple[str, object]] = [
            ("rules", list(self.words)),
            ("path", self.path and self.path.glob),
            ("layer", self.layer),
            ("reason", self.reason),
        ]
        words = [
            f"{key} = {json.dumps(value, ensure_ascii=False)}"
            for key, value in said
            if value is not None
        ]
        return (
            f"{{ {', '.join([*words, *([f'expires = {self.expires}'] if self.expires else [])])} }}"
        )

    def is_expired(self, today: date) -> bool:
        """Return whether it no longer works."""
        return self.expires is not None and today >= self.expires

    def holds(self, finding: Finding, place: str) -> bool:
        """Return whether it is meant for a finding in the model at an absolute path."""
        if finding.rule not in self.rules or (
            self.path is not None and not self.path.matches(place)
        ):
            return False
        return self.layer is None or (
            finding.path is not None
            and (
                finding.path == self.layer
                or _expression(self.layer).fullmatch(finding.path) is not None
            )
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

    def place(self, audited: Audited) -> str:
        """Return the absolute path of a model."""
        return posixpath.normpath(posixpath.join(self.directory, audited.path))


def suppress(audited: Audited, passing: Suppressions) -> Audited:
    """
    Return a model's result, as it was found, with the findings set apart that are let pass.

    A suppression speaks before the file's ignored rules, and these before the baseline, because it
    has a reason of its own.
    """
    known = Counter(passing.known.get(audited.path, {}))
    counting: list[tuple[Finding, str]] = []
    passed: list[Suppressed] = []
    for finding, fingerprint, found in judge(audited, passing):
        is_known = known[fingerprint] > 0
        known[fingerprint] -= 1
        if found is not None:
            passed.append(replace(found, fingerprint=fingerprint))
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
    place = passing.place(audited)
    for finding, fingerprint in zip(audited.findings, fingerprints(audited.findings), strict=True):
        yield finding, fingerprint, _let_pass(finding, place, passing)


def expired_suppressions(
    suppressions: Iterable[Suppression], today: date
) -> tuple[Suppression, ...]:
    """Return the suppressions that no longer work."""
    return tuple(one for one in suppressions if one.is_expired(today))


def all_of(audited: Audited) -> tuple[Finding, ...]:
    """Return what was found in a model, let pass or not."""
    return (*audited.findings, *(one.finding for one in audited.suppressed))


def _let_pass(finding: Finding, place: str, passing: Suppressions) -> Suppressed | None:
    for one in passing.suppressions:
        if not one.is_expired(passing.today) and one.holds(finding, place):
            return Suppressed(finding=finding, reason=one.reason, by="suppression")
    for ignored in passing.per_file:
        if finding.rule in ignored.rules and ignored.pattern.matches(place):
            return Suppressed(finding=finding, reason=f"matches {ignored}", by="per-file-ignores")
    return None


@functools.lru_cache(maxsize=1024)
def _expression(layer: str) -> re.Pattern[str]:
    return re.compile(layer)
