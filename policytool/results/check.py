"""The result of ``policytool.check``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from policytool.results._result import Report, Result, number_at, value_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from policytool.numerics.check_results.checks import Check as CheckValue
    from policytool.numerics.check_results.checks import CheckNote, CheckRun, CheckSide
    from policytool.numerics.check_results.verdicts import Advice, Answer
    from policytool.reports.checks import Checks

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
        The ``layers`` that have to stay in float32, found in ``trials`` runs; None if nothing had
        to be tried, or could be. The origin of the error is in each run.
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
