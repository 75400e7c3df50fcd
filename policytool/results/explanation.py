"""The result of ``policytool.explain``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from policytool.results._result import Report, Result, value_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from policytool.troubleshooting.matching import Explanation as ExplanationValue
    from policytool.troubleshooting.matching import Match

_MATCH: Final = ("id", "title", "confidence", "line", "text", "releases", "cause", "url")


@dataclass(frozen=True, slots=True, repr=False)
class Explanation(Result):
    """
    The entries that explain an error message, the most likely first.

    Its DataFrame has one row for each entry. Iterating yields the matches.
    """

    _value: ExplanationValue

    @property
    def matches(self) -> tuple[Match, ...]:
        """The entries, each with a ``confidence`` from 0 to 1 and the ``line`` that matched."""
        return self._value.matches

    def __iter__(self) -> Iterator[Match]:
        return iter(self.matches)

    def _report(self) -> Report[ExplanationValue]:
        from policytool.reports.explanations import EXPLANATION_REPORTERS, page

        return Report(value=self._value, page=page, reporters=EXPLANATION_REPORTERS)

    def _line(self) -> tuple[tuple[str, ...], str]:
        from policytool.reports.explanations import headline

        return (), headline(self._value)

    def _table(self) -> tuple[Sequence[str], Iterable[Sequence[object]]]:
        rows = self.to_dict()["matches"]
        return _MATCH, ([value_at(row, key) for key in _MATCH] for row in rows)
