"""What the results of all functions have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pandas import DataFrame

    from policytool.reports.layout import View
    from policytool.reports.page import Page
    from policytool.reports.reporter import Reporter

Value = TypeVar("Value")

_MOST: Final = 200
"""Characters of a line that describes a result."""

_NAME: Final = 60
"""Characters of a path in such a line."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Report(Generic[Value]):
    """The report of a command about one value."""

    value: Value
    page: Callable[[Value, View], Page]
    reporters: Sequence[Reporter[Value]]

    def html(self) -> str:
        """Return the page as an element for a notebook."""
        from policytool.reports import View, html  # jinja2, for notebooks only

        return html.fragment(self.page(self.value, View()))

    def values(self) -> dict[str, Any]:
        """Return the JSON report as Python values."""
        import json

        from policytool.reports import View

        (reporter,) = (reporter for reporter in self.reporters if reporter.name == "json")
        report_values: dict[str, Any] = json.loads(reporter.render(self.value, View()))
        return report_values


class Result(ABC):
    """A value that a function returned, and the ways to show it."""

    __slots__ = ()

    @abstractmethod
    def _report(self) -> Report[Any]:
        """Return the report of the command."""

    @abstractmethod
    def _line(self) -> tuple[tuple[str, ...], str]:
        """Return the paths that the result is about, and what is true of them."""

    @abstractmethod
    def _table(self) -> tuple[Sequence[str], Iterable[Sequence[object]]]:
        """Return the names of the columns of a table, and its rows."""

    def __repr__(self) -> str:
        return in_one_line(type(self).__name__, *self._line())

    def _repr_html_(self) -> str:
        """Return the report as HTML, which notebooks show."""
        return self._report().html()

    def to_dict(self) -> dict[str, Any]:
        """
        Return the JSON report of the command as a dictionary.

        ``docs/reference/json.md`` describes its keys.
        """
        return self._report().values()

    def to_pandas(self) -> DataFrame:
        """
        Return a pandas DataFrame; ``docs/reference/python.md`` lists its rows and columns.

        :raises policytool.MissingPackageError: if pandas is not installed
        """
        try:
            import pandas as pd
        except ImportError as error:
            from policytool.support.errors import MissingPackageError

            raise MissingPackageError(
                "to_pandas() needs pandas, which is not installed; run `pip install pandas`"
            ) from error
        columns, rows = self._table()
        return pd.DataFrame([list(row) for row in rows], columns=list(columns))


def in_one_line(name: str, paths: Sequence[str], text: str) -> str:
    """
    Return a value of a class in one printable line; paths and text that are too long are shortened.

    :param name: the class
    :param paths: the files or layers that the value is about
    """
    from policytool.reports.layout import View, shorten

    view = View(unicode=False)
    room = _NAME // max(1, len(paths))
    names = " and ".join(
        f"'{shorten(view.printable(path), room, view, middle=True)}'" for path in paths
    )
    start = f"<policytool.{name} {names}{': ' if names else ''}"
    return f"{start}{shorten(view.printable(text), _MOST - len(start) - 1, view)}>"


def number_at(values: dict[str, Any], column: str) -> float | None:
    """Return the number that a column names: JSON reports write NaN and infinity as strings."""
    from policytool.reports.rows import value_at

    value = value_at(values, column)
    return None if value is None else float(value)
