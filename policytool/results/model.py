"""
The results of ``inspect``, ``audit`` and ``explain``, and the base class of the results of all
functions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeVar

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pandas import DataFrame

    from policytool.commands.audit import Audit as AuditValue
    from policytool.commands.inspect import SelectedInspection
    from policytool.formats.document import Address
    from policytool.model.model import (
        Layer,
        Observation,
        Optimizer,
        Signature,
        Summary,
        Verdict,
        Writer,
    )
    from policytool.model.model import Model as ModelValue
    from policytool.reports.layout import View
    from policytool.reports.page import Page
    from policytool.reports.reporter import Reporter
    from policytool.rules import Rule
    from policytool.rules.base import Audited, Fix, ModelCommand, Severity
    from policytool.rules.base import Finding as FindingValue
    from policytool.troubleshooting.entries import Explanation as ExplanationValue
    from policytool.troubleshooting.entries import Match, TestedModel

Value = TypeVar("Value")

_MOST: Final = 200
"""Maximum number of characters in the ``repr`` of a result."""

_NAME: Final = 60
"""Maximum number of characters for the paths in it."""


class Report(Struct, Generic[Value], frozen=True, kw_only=True):
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


@dataclass(frozen=True, slots=True, repr=False)
class Result(ABC):
    """The base class of results: the value of a command, and its representations."""

    command: str = field(default="", kw_only=True, compare=False)
    """The shell command with the same arguments."""

    _TERMINAL_COLUMNS: ClassVar[frozenset[str]]
    """The columns of the DataFrame that the terminal shows."""

    @abstractmethod
    def _report(self) -> Report[Any]:
        """Return the report of the command."""

    @abstractmethod
    def _line(self) -> tuple[tuple[str, ...], str]:
        """Return the paths of the models, and a summary of the result in one line."""

    @abstractmethod
    def _table(self) -> tuple[Sequence[str], Iterable[Sequence[object]]]:
        """Return the column names and the rows of the DataFrame."""

    def __repr__(self) -> str:
        return in_one_line(type(self).__name__, *self._line())

    def _repr_html_(self) -> str:
        """Return the report as HTML, which notebooks show."""
        return self._report().html()

    def to_dict(self) -> dict[str, Any]:
        """
        Return the JSON report of the command as a dictionary.

        ``docs/reference/json-keys.md`` describes its keys.
        """
        return self._report().values()

    def to_pandas(self, *, full: bool = False) -> DataFrame:
        """
        Return a pandas DataFrame; ``docs/reference/python.md`` lists its rows and columns.

        :param full: whether it has all columns; by default, it has those of the terminal
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
        places = [
            place for place, name in enumerate(columns) if full or name in self._TERMINAL_COLUMNS
        ]
        return pd.DataFrame(
            [[row[place] for place in places] for row in rows],
            columns=[columns[place] for place in places],
        )


def in_one_line(name: str, paths: Sequence[str], text: str) -> str:
    """
    Return the ``repr`` of a value in one printable line. Long paths and text are shortened.

    :param name: the name of the class
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
    """Return the number in a column. JSON reports write NaN and infinity as strings."""
    from policytool.reports.rows import value_at

    value = value_at(values, column)
    return None if value is None else float(value)


@dataclass(frozen=True, slots=True, repr=False)
class Model(Result):
    """
    A saved model: its layers with their policies, and the releases that load it.

    Its DataFrame has one row for each layer, with the columns of the CSV report.
    """

    _TERMINAL_COLUMNS = frozenset(
        {"path", "class_name", "policy", "compute_dtype", "variable_dtype", "source"}
    )
    _value: ModelValue

    @property
    def path(self) -> str:
        """The path as reports show it: relative to the working directory if it is in there."""
        return self._value.path

    @property
    def format(self) -> str:
        """The file format: ``h5``, ``keras``, ``savedmodel``, ``json``, ..."""
        return self._value.format

    @property
    def written_by(self) -> str | None:
        """The releases that can have written the file, such as ``tf2.3-2.4``; None if unknown."""
        return self._value.generation

    @property
    def writer(self) -> Writer:
        """The versions that the file contains: ``keras``, ``tensorflow`` and ``backend``."""
        return self._value.writer

    @property
    def layers(self) -> tuple[Layer, ...]:
        """
        All layers in the order of the model, the model itself first.

        A layer has a ``path``, ``name``, ``class_name``, ``policy``, ``compute_dtype``,
        ``variable_dtype``, ``source`` and the other values of a layer in the JSON report.
        """
        return self._value.layers

    @property
    def optimizer(self) -> Optimizer | None:
        """The saved optimizer with its ``class_name`` and ``loss_scale``; None without one."""
        return self._value.optimizer

    @property
    def signatures(self) -> tuple[Signature, ...]:
        """The signatures of a SavedModel."""
        return self._value.signatures

    @property
    def observations(self) -> tuple[Observation, ...]:
        """Notes about the file, each with a ``code`` and a ``message``."""
        return self._value.observations

    @property
    def releases(self) -> Mapping[str, Verdict]:
        """
        Whether each release loads the file, by the name of the release, such as ``keras3.6``.

        A verdict has ``loads`` (bool) and ``reason`` (a sentence, or None). It is empty for files
        that no release loads directly.
        """
        return MappingProxyType({verdict.loader: verdict for verdict in self._value.loaders})

    @property
    def summary(self) -> Summary:
        """Totals: ``layers``, ``parameters``, ``bytes``, and layers by policy in ``policies``."""
        return self._value.summary

    def _selected(self) -> SelectedInspection:
        from policytool.commands.inspect import Inspection, SelectedInspection

        inspection = Inspection(models=(self._value,), failures=())
        return SelectedInspection(inspection=inspection)

    def _report(self) -> Report[SelectedInspection]:
        from policytool.reports.inspection import REPORTERS, page

        return Report(value=self._selected(), page=page, reporters=REPORTERS)

    def _line(self) -> tuple[tuple[str, ...], str]:
        from policytool.reports.inspection import headline

        return (self.path,), headline(self._value)

    def _table(self) -> tuple[Sequence[str], Iterable[Sequence[object]]]:
        from policytool.reports.inspection import ROW_COLUMNS, rows

        names = [column.name for column in ROW_COLUMNS]
        return names, rows(self._value, self._value.layers)


_COLUMNS: Final = (
    *("rule", "name", "severity", "path", "message", "detail", "advice"),
    *("fix.safety", "fix.arguments", "address.part", "address.pointer", "fingerprint"),
)


class Finding(Struct, frozen=True):
    """One problem that a rule found in a model."""

    _value: FindingValue
    _rule: Rule
    _fingerprint: str

    @property
    def rule(self) -> str:
        """The id of the rule, such as ``PT301``."""
        return self._value.rule

    @property
    def name(self) -> str:
        """The name of the rule, such as ``half-variables``."""
        return self._rule.name

    @property
    def severity(self) -> Severity:
        """``error``, ``warning`` or ``note``; it equals the string."""
        return self._value.severity

    @property
    def message(self) -> str:
        """The problem in one sentence."""
        return self._value.message

    @property
    def path(self) -> str | None:
        """The path of the layer; None if the finding is about the model or its optimizer."""
        return self._value.path

    @property
    def detail(self) -> str:
        """What distinguishes it from other findings of the rule in the layer; often empty."""
        return self._value.detail

    @property
    def address(self) -> Address | None:
        """Its ``part`` of the file and the JSON ``pointer`` in it; None if it has no place."""
        return self._value.address

    @property
    def advice(self) -> str | None:
        """What to do if ``migrate`` does not fix it."""
        return self._value.advice

    @property
    def fix_safety(self) -> Fix | None:
        """
        ``safe`` if ``migrate`` fixes it and predictions stay unchanged, ``unsafe`` if it fixes it
        otherwise; None if it does not fix it.
        """
        return self._value.remedy.fix if self._value.remedy is not None else None

    @property
    def fix_arguments(self) -> tuple[str, ...] | None:
        """The arguments after ``policytool migrate PATH`` that fix it; None if it does not."""
        return self._value.remedy.arguments if self._value.remedy is not None else None

    @property
    def fingerprint(self) -> str:
        """Text that is the same for this finding in the next export of the model."""
        return self._fingerprint

    def __repr__(self) -> str:
        paths = (self.path,) if self.path is not None else ()
        return in_one_line("Finding", paths, f"{self.rule} {self.severity}: {self.message}")

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of the finding in the JSON report of ``audit``."""
        from policytool.reports.findings import finding_values

        return finding_values(self._value, self._fingerprint, self._rule)


@dataclass(frozen=True, slots=True, repr=False)
class Audit(Result):
    """
    The findings in one model; iterating over it yields them.

    Its DataFrame has one row for each finding.
    """

    _TERMINAL_COLUMNS = frozenset({"severity", "rule", "path", "message", "fix.arguments"})
    _value: AuditValue

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    @property
    def path(self) -> str:
        """The path of the model, as reports show it."""
        return self._audited.path

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings, in the order of the rules and of the layers."""
        from policytool.rules.base import fingerprints

        rules = {rule.id: rule for rule in self._value.rules}
        audit_findings = self._audited.findings
        return tuple(
            Finding(finding, rules[finding.rule], fingerprint)
            for finding, fingerprint in zip(
                audit_findings, fingerprints(audit_findings), strict=True
            )
        )

    @property
    def commands(self) -> tuple[ModelCommand, ...]:
        """
        For a model with errors or warnings, the ``arguments`` of ``migrate`` whose result passes
        the audit, one for each ``target``; if there are none, ``reason`` explains it.
        """
        return self._audited.commands

    @property
    def releases(self) -> tuple[str, ...]:
        """The releases that the model was checked for: the targets, or the newest Keras."""
        return self._value.releases

    @property
    def _audited(self) -> Audited:
        (audited,) = self._value.audited
        return audited

    def _report(self) -> Report[AuditValue]:
        from policytool.reports.findings import FINDING_REPORTERS, page

        return Report(value=self._value, page=page, reporters=FINDING_REPORTERS)

    def _line(self) -> tuple[tuple[str, ...], str]:
        from policytool.reports.findings import headline

        return (self.path,), headline(self._value)

    def _table(self) -> tuple[Sequence[str], Iterable[Sequence[object]]]:
        from policytool.reports.rows import value_at

        rows = (
            [self.path, *(value_at(values, column) for column in _COLUMNS)]
            for values in (finding.to_dict() for finding in self.findings)
        )
        return ("model.path", *_COLUMNS), rows


_MATCH: Final = ("id", "title", "line", "text", "releases", "cause", "url")


@dataclass(frozen=True, slots=True, repr=False)
class Explanation(Result):
    """
    The entries that explain an error message, the most likely first.

    Its DataFrame has one row for each entry. Iterating yields the matches.
    """

    _TERMINAL_COLUMNS = frozenset({"title", "line", "releases", "cause"})
    _value: ExplanationValue

    @property
    def matches(self) -> tuple[Match, ...]:
        """The entries, each with the ``line`` that matched, the most likely first."""
        return self._value.matches

    @property
    def model(self) -> TestedModel | None:
        """What the release does with the model that was named; None without one."""
        return self._value.model

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
        return _MATCH, ([row[key] for key in _MATCH] for row in rows)
