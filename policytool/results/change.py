"""The results of ``diff``, ``check``, ``migrate`` and ``tune``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from policytool.results.model import Report, Result, number_at
from policytool.support.files.remote_path import RemotePath, local

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from policytool.commands.migrate import Migration as MigrationValue
    from policytool.commands.migrate import Status
    from policytool.comparison.result import Comparison as ComparisonValue
    from policytool.comparison.result import ComparisonNote, LayerPair, Section, Side, VariablePair
    from policytool.migration.plan import Note, Plan, Refusal
    from policytool.numerics.check_results.checks import Check as CheckValue
    from policytool.numerics.check_results.checks import CheckNote, CheckRun, CheckSide
    from policytool.numerics.check_results.verdicts import Advice, Answer
    from policytool.numerics.tuning.results import CurvePoint, Ending, Trial, TunedLayer
    from policytool.numerics.tuning.results import Tuning as TuningValue
    from policytool.reports.checks import Checks
    from policytool.reports.differences import Differences
    from policytool.reports.plans import Migrations
    from policytool.reports.tuning import Tunings
    from policytool.support.files.remote_path import AnyPath


_COLUMNS: Final = (
    *("section", "path", "aspect", "key", "a", "b"),
    *("values.verdict", "values.elements", "values.differing", "values.largest"),
)
_NOTHING: Final = [None] * 4
"""The values columns of rows that are not about a variable."""


@dataclass(frozen=True, slots=True, repr=False)
class Comparison(Result):
    """
    Two models, and everything in which they differ.

    Its DataFrame has one row for each difference.
    """

    _TERMINAL_COLUMNS = frozenset({"section", "path", "aspect", "key", "a", "b", "values.largest"})
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
    from policytool.reports.rows import value_at

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


_RUN: Final = ("device.name", "signature")
_CALL: Final = (
    *("path", "number", "class_name", "compute_reference", "compute_candidate", "is_model"),
    "verdict.outcome",
)
_VERDICT: Final = ("verdict.error", "verdict.tolerance")
_ERRORS: Final = ("isolated.relative", "accumulated.relative")


@dataclass(frozen=True, slots=True, repr=False)
class Check(Result):
    """
    A reference and a candidate, and the errors of the candidate.

    Its DataFrame has one row for each call of a layer.
    """

    _TERMINAL_COLUMNS = frozenset(
        {"path", "class_name", "compute_reference", "compute_candidate", *_VERDICT, *_ERRORS}
    )
    _value: CheckValue

    @property
    def answer(self) -> Answer:
        """Whether predictions stay the same: ``safe``, ``not-safe`` or ``undecided``."""
        return self._value.answer

    @property
    def reference(self) -> CheckSide:
        """The reference: its ``path``, ``policy``, ``library``, ..."""
        return self._value.reference

    @property
    def candidate(self) -> CheckSide:
        """The candidate."""
        return self._value.candidate

    @property
    def versions(self) -> Mapping[str, str]:
        """The versions of TensorFlow and Keras that ran the models."""
        return self._value.versions

    @property
    def runs(self) -> tuple[CheckRun, ...]:
        """One run for each device and signature, with ``outputs``, ``calls`` and a ``verdict``."""
        return self._value.runs

    @property
    def notes(self) -> tuple[CheckNote, ...]:
        """Notes about the check, each with a ``code`` and a ``message``."""
        return self._value.notes

    @property
    def advice(self) -> Advice | None:
        """
        The ``layers`` that must stay in float32, found in ``trials`` runs; None if no layers were
        tried. Each run contains the origin of its error.
        """
        return self._value.advice

    def _report(self) -> Report[Checks]:
        from policytool.reports.checks import CHECK_REPORTERS, Checks, page

        return Report(value=Checks(check=self._value), page=page, reporters=CHECK_REPORTERS)

    def _line(self) -> tuple[tuple[str, ...], str]:
        from policytool.reports.checks import headline

        return (), headline(self._value)

    def _table(self) -> tuple[Sequence[str], Iterable[Sequence[object]]]:
        return (*_RUN, *_CALL, *_VERDICT, *_ERRORS), _call_rows(self.to_dict()["check"])


def _call_rows(check: dict[str, Any]) -> Iterator[list[object]]:
    """Yield a row for each call in the JSON report."""
    from policytool.reports.rows import value_at

    for run in check["runs"]:
        of_run = [value_at(run, column) for column in _RUN]
        for call in run["calls"]:
            errors = [_largest([call], column) for column in _VERDICT]
            errors += [_largest(call["outputs"], column) for column in _ERRORS]
            yield [*of_run, *(value_at(call, column) for column in _CALL), *errors]


def _largest(rows: Sequence[dict[str, Any]], column: str) -> float | None:
    """Return the largest number of a column; None if none was measured."""
    return max(
        (number for values in rows if (number := number_at(values, column)) is not None),
        default=None,
    )


_WITH_OUTPUT: Final = frozenset({"planned", "written", "skipped"})


@dataclass(frozen=True, slots=True, repr=False)
class Migration(Result):
    """
    The plan for one model, and its outcome.

    Its DataFrame has one row for each layer that changes, and one for the optimizer if it does.
    """

    _TERMINAL_COLUMNS = frozenset({"path", "before", "after", "reason"})
    _value: MigrationValue

    @property
    def path(self) -> str:
        """The path of the original, as reports show it."""
        return self._value.plan.path

    @property
    def status(self) -> Status:
        """
        How it ended, equal to a string.

        ``unchanged`` (nothing to change), ``planned`` (with ``preview``), ``written``, ``blocked``
        (see ``blockers``) or ``missed`` (predictions differ). Nothing is written for the last two.
        """
        return self._value.status

    @property
    def output(self) -> Path | str | None:
        """
        The file or directory that was written, or would be; None if there is none.

        A remote one is the text of its URL.
        """
        target = self._target()
        return target.shown if isinstance(target, RemotePath) else target

    @property
    def backup(self) -> Path | None:
        """The copy of the original that ``in_place`` keeps; None without one."""
        return self._value.written.backup if self._value.written is not None else None

    @property
    def plan(self) -> Plan:
        """Every change: ``edits`` of config values, ``casts`` of variables, ``conversion``, ..."""
        return self._value.plan

    @property
    def blockers(self) -> tuple[Refusal, ...]:
        """Why nothing was written: a ``code``, a ``message``, and the ``path`` of the layer."""
        return self._value.plan.refusals

    @property
    def notes(self) -> tuple[Note, ...]:
        """What is lost or kept: ``severity``, ``code``, ``message`` and the ``path`` of a layer."""
        return self._value.plan.notes

    @property
    def is_verified(self) -> bool:
        """Whether TensorFlow compared the predictions of both models, and they agree."""
        return self._value.comparison is not None and self.status == "written"

    @property
    def not_verified(self) -> str | None:
        """Why predictions were not compared, if that is the default; else None."""
        return self._value.not_verified

    def _target(self) -> AnyPath | None:
        return self._value.target if self.status in _WITH_OUTPUT else None

    def _report(self) -> Report[Migrations]:
        from policytool.reports.plans import PLAN_REPORTERS, Migrations, page

        migrations = Migrations(migrations=(self._value,), failures=())
        return Report(value=migrations, page=page, reporters=PLAN_REPORTERS)

    def _line(self) -> tuple[tuple[str, ...], str]:
        from policytool.formats.discovery import display_path
        from policytool.reports.plans import headline

        target = self._target()
        shown_path = display_path(target) if target is not None else self.path
        return (shown_path,), headline(self._value)

    def _table(self) -> tuple[Sequence[str], Iterable[Sequence[object]]]:
        from policytool.reports.plans import LayerChange, layer_changes

        rows = ([self.path, *change] for change in layer_changes(self._value))
        return ("model.path", *LayerChange._fields), rows


_LAYER: Final = (
    *("path", "class_name", "kept", "rule", "error", "is_finite", "largest", "headroom"),
    *("flushed", "excess_if_converted", "excess_by_itself", "decides"),
)


@dataclass(frozen=True, slots=True, repr=False)
class Tuning(Result):
    """
    The layers to keep in float32, the search that found them, and the model that was written.

    Its DataFrame has one row for each layer that could be converted.
    """

    _TERMINAL_COLUMNS = frozenset({"path", "class_name", "kept", "rule", "error", "headroom"})
    _value: TuningValue
    _migration: MigrationValue | None = None

    @property
    def path(self) -> str:
        """The path of the model, as reports show it."""
        return self._value.reference.path

    @property
    def passed(self) -> bool:
        """Whether a set of layers was found that meets the objective."""
        return self._value.passed

    @property
    def answer(self) -> Answer:
        """
        Whether predictions stay the same in rows that the search did not use: ``safe``,
        ``undecided`` for synthetic inputs and too few rows, or ``not-safe``.
        """
        return self._value.answer

    @property
    def kept(self) -> tuple[str, ...]:
        """The paths of the layers to keep in float32."""
        return tuple(layer.path for layer in self._value.kept)

    @property
    def layers(self) -> tuple[TunedLayer, ...]:
        """The layers that could be converted, with what was measured of each."""
        return self._value.layers

    @property
    def output(self) -> Path | None:
        """The file or directory that was written, or would be; None if there is none."""
        if self._migration is None or self._migration.target is None:
            return None
        return local(self._migration.target)

    @property
    def training_code(self) -> str | None:
        """
        Python code that sets the same policies before the model is created for training; None if no
        set was found.
        """
        from policytool.reports.tuning import training_code

        return training_code.code_of(self._value)

    @property
    def best(self) -> Trial | None:
        """The trial of the set that was found; None if none was found."""
        return self._value.best

    @property
    def trials(self) -> tuple[Trial, ...]:
        """Every set that was tried."""
        return self._value.trials

    @property
    def curve(self) -> tuple[CurvePoint, ...]:
        """The smallest error for each number of converted layers."""
        return self._value.curve

    @property
    def ending(self) -> Ending:
        """
        Why the search ended, equal to a string: ``minimal``, ``impossible`` (the objective is not
        met even in float32), ``trials``, ``time`` or ``interrupted``.
        """
        return self._value.ending

    def _report(self) -> Report[Tunings]:
        from policytool.reports.tuning import TUNE_REPORTERS, Tunings, page

        value = Tunings(tuning=self._value, migration=self._migration)
        return Report(value=value, page=page, reporters=TUNE_REPORTERS)

    def _line(self) -> tuple[tuple[str, ...], str]:
        from policytool.reports.tuning import headline

        return (self.path,), headline(self._value)

    def _table(self) -> tuple[Sequence[str], Iterable[Sequence[object]]]:
        return _LAYER, ([getattr(layer, key) for key in _LAYER] for layer in self._value.layers)
