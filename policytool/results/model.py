"""The result of ``policytool.inspect``."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from policytool.results._result import Report, Result

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from policytool.commands.inspect import Selected
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


@dataclass(frozen=True, slots=True, repr=False)
class Model(Result):
    """
    A saved model: its layers with their policies, and the releases that load it.

    Its DataFrame has one row for each layer, with the columns of the CSV report.
    """

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

    def _selected(self) -> Selected:
        from policytool.commands.inspect import Inspection, Selected

        inspection = Inspection(models=(self._value,), failures=())
        return Selected(inspection=inspection)

    def _report(self) -> Report[Selected]:
        from policytool.reports.inspection import REPORTERS, page

        return Report(value=self._selected(), page=page, reporters=REPORTERS)

    def _line(self) -> tuple[tuple[str, ...], str]:
        from policytool.reports.inspection import headline

        return (self.path,), headline(self._value)

    def _table(self) -> tuple[Sequence[str], Iterable[Sequence[object]]]:
        from policytool.reports.inspection import ROW_COLUMNS, rows

        names = [column.name for column in ROW_COLUMNS]
        return names, rows(self._value, self._value.layers)
