"""The result of ``policytool.diff``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from policytool.results._result import Report, Result, number_at, value_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from policytool.comparison.result import Comparison as ComparisonValue
    from policytool.comparison.result import (
        ComparisonNote,
        LayerPair,
        Section,
        Side,
        VariablePair,
    )
    from policytool.reports.differences import Differences

_COLUMNS: Final = (
    *("section", "path", "aspect", "key", "a", "b"),
    *("values.verdict", "values.elements", "values.differing", "values.largest"),
)
_NOTHING: Final = [None] * 4
"""The columns of values, in the rows that are not about a variable."""


@dataclass(frozen=True, slots=True, repr=False)
class Comparison(Result):
    """
    Two models, and everything in which they differ.

    Its DataFrame has one row for each difference.
    """

    _value: ComparisonValue

    @property
    def differs(self) -> bool:
        """Whether the models differ in anything that was compared."""
        return self._value.differs

    @property
    def a(self) -> Side:
        """The first model: its ``path``, ``format`` and ``writer``."""
        return self._value.a

    @property
    def b(self) -> Side:
        """The second model."""
        return self._value.b

    @property
    def layers(self) -> tuple[LayerPair, ...]:
        """
        All layers, equal ones included: the paths ``a`` and ``b``, ``differs``, ``differences`` and
        ``variables``.
        """
        return self._value.layers

    @property
    def variables(self) -> tuple[VariablePair, ...]:
        """The variables of all layers: ``a``, ``b``, ``differs`` and ``values``."""
        return self._value.variables

    @property
    def optimizer(self) -> Section | None:
        """The optimizer; None if neither model has one, or one of the formats cannot store it."""
        return self._value.optimizer

    @property
    def signatures(self) -> tuple[Section, ...]:
        """The signatures."""
        return self._value.signatures

    @property
    def format_only(self) -> int:
        """How many values are written differently and have the same meaning."""
        return self._value.spellings

    @property
    def notes(self) -> tuple[ComparisonNote, ...]:
        """What was not compared: a ``code`` and a ``message``."""
        return self._value.notes

    def _report(self) -> Report[Differences]:
        from policytool.commands.diff import DiffOutcome
        from policytool.reports.differences import DIFFERENCE_REPORTERS, Differences, page

        differences = Differences(outcome=DiffOutcome(comparison=self._value))
        return Report(value=differences, page=page, reporters=DIFFERENCE_REPORTERS)

    def _line(self) -> tuple[tuple[str, ...], str]:
        from policytool.reports.differences import headline

        text = headline(self._value)
        return (self.a.path, self.b.path), text if self.differs else f"equal; {text}"

    def _table(self) -> tuple[Sequence[str], Iterable[Sequence[object]]]:
        return _COLUMNS, _rows(self.to_dict()["comparison"])


def _rows(comparison: dict[str, Any]) -> Iterator[list[object]]:
    """Yield a row for each difference in the JSON report."""
    for layer in comparison["layers"]:
        yield from _differences("layer", layer["a"] or layer["b"], layer)
    if comparison["optimizer"] is not None:
        yield from _differences("optimizer", None, comparison["optimizer"])
    for signature in comparison["signatures"]:
        yield from _differences("signature", signature["name"], signature)


def _differences(section: str, path: str | None, entry: dict[str, Any]) -> Iterator[list[object]]:
    if entry["presence"] != "both":
        sides = [entry["presence"] == side for side in ("a", "b")]
        yield [section, path, "presence", None, *sides, *_NOTHING]
        return
    for change in entry["changes"]:
        values = [change.get(side) for side in ("a", "b")]
        yield [section, path, change["aspect"], change["key"], *values, *_NOTHING]
    for variable in entry["variables"]:
        a, b = variable["a"], variable["b"]
        dtypes = [side and side["dtype"] for side in (a, b)]
        counts = [value_at(variable, column) for column in _COLUMNS[6:9]]
        largest = number_at(variable, "values.largest")
        yield [section, path, "variable", (a or b)["name"], *dtypes, *counts, largest]
