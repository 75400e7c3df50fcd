"""Counts over all models of an audit, updated as each result arrives."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from policytool.rules.base import fingerprints, worst
from policytool.rules.selection.suppressions import all_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from policytool.rules.base import Audited, Severity
    from policytool.rules.selection.suppressions import Suppression, Suppressions


@dataclass(kw_only=True, slots=True, eq=False)
class AuditTally:
    """The counts so far."""

    passing: Suppressions
    models: int = 0
    worst: Severity | None = None
    suppressed: Counter[str] = field(default_factory=Counter)
    """How many findings each kind of suppression hides."""

    unmatched: list[tuple[str, str]] = field(default_factory=list)
    """
    The models to which not all suppressions could be applied, each with the reason as the end of a
    sentence.
    """

    _used: set[int] = field(default_factory=set)
    """The numbers of the suppressions that are meant for a finding."""

    _seen: set[str] = field(default_factory=set)
    """The models that the baseline knows."""

    _outdated: int = 0

    def add(self, audited: Audited) -> None:
        """Count a model whose suppressed findings are already separated."""
        self.models += 1
        severities = [
            severity for severity in (self.worst, worst(audited.findings)) if severity is not None
        ]
        self.worst = min(severities, key=lambda severity: severity.rank, default=None)
        self.suppressed.update(suppressed.by for suppressed in audited.suppressed)
        every = all_of(audited)
        suppressions = self.passing.of_model(audited)
        for finding in every:
            self._used.update(suppressions.meant_for(finding))
        if suppressions.exceeded:
            self.unmatched.append((audited.path, suppressions.exceeded))
        known = self.passing.known.get(audited.path)
        if known is not None and audited.path not in self._seen:
            self._seen.add(audited.path)
            self._outdated += (Counter(known) - Counter(fingerprints(every))).total()

    def idle(self) -> tuple[Suppression, ...]:
        """Return the active suppressions that match no finding."""
        return tuple(
            suppression
            for number, suppression in enumerate(self.passing.suppressions)
            if number not in self._used and not suppression.is_expired(self.passing.today)
        )

    def outdated_count(self, exists: Callable[[str], bool]) -> int:
        """
        Return how many findings of a baseline no longer occur, as far as these models and the files
        that are gone tell.
        """
        return self._outdated + sum(
            Counter(known).total()
            for path, known in self.passing.known.items()
            if path not in self._seen and not exists(path)
        )


def tally_of(every: Iterable[Audited], passing: Suppressions) -> AuditTally:
    """Return the counts of models whose suppressed findings are already separated."""
    tally = AuditTally(passing=passing)
    for audited in every:
        tally.add(audited)
    return tally
