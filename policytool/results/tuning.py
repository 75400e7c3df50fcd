"""The result of ``policytool.tune``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from policytool.results._result import Report, Result
from policytool.support.files.remote_path import local

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from policytool.commands.migrate import Migration as MigrationValue
    from policytool.numerics.tuning.results import CurvePoint, Ending, Trial, TunedLayer
    from policytool.numerics.tuning.results import Tuning as TuningValue
    from policytool.reports.tuning import Tunings

_LAYER: Final = (
    *("path", "class_name", "kept", "rule", "error", "is_finite", "largest", "headroom"),
    *("flushed", "excess_if_converted", "excess_by_itself", "decides", "cost"),
)


@dataclass(frozen=True, slots=True, repr=False)
class Tuning(Result):
    """
    The layers to keep in float32, the search that found them, and the model that was written.

    Its DataFrame has one row for each layer that could be converted.
    """

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
        met even in float32), ``max-trials``, ``time`` or ``interrupted``.
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
