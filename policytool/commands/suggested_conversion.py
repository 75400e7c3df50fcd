"""
Reads the only model of ``inspect``. If the newest Keras fails to load it, also plans the command
that ``audit`` prints. Otherwise, also looks up which exporters of Keras support it.

Rules and plans are imported only if a command must be planned, because their import takes as long
as ``inspect`` does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from policytool.commands.batch.isolation import run_isolated
from policytool.commands.batch.task import Task
from policytool.commands.inspect import (
    CACHING,
    ExportSummary,
    Failure,
    SuggestedFix,
    failure_of,
)
from policytool.formats import CONVERTED, format_detection
from policytool.formats.discovery import Input  # noqa: TC001  # TASK evaluates annotations
from policytool.model import reading
from policytool.model.model import Model  # noqa: TC001  # TASK evaluates annotations
from policytool.releases.releases import KERAS3, newest
from policytool.support import steps
from policytool.support.errors import ModelFileError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from policytool.model.loaded_model import LoadedModel


@dataclass(frozen=True, kw_only=True, slots=True)
class InspectedModel:
    """A model, and the command that fixes it."""

    model: Model
    fix: SuggestedFix | None = None
    """None if the newest Keras loads the model, or if no command is known to help."""

    exports: tuple[ExportSummary, ...] = ()
    """Empty if the newest Keras fails to load the model."""


def attempt(source: Input, with_sizes: bool = False) -> InspectedModel | Failure | None:  # noqa: FBT001, FBT002
    """
    Return the model of an input with its fix, its failure, or None for a discovered file that is
    not a model.

    :param with_sizes: as for :func:`policytool.commands.inspect.attempt`
    """
    try:
        with steps.budget(source.display_path):
            document = format_detection.document(source.path, source.display_path)
            if document.config_part is None or document.format not in CONVERTED:
                return InspectedModel(model=reading.model_of(document))
            loaded = reading.load_model(document)
            model = loaded.sized_model if with_sizes else loaded.model
    except ModelFileError as error:
        return failure_of(source, error)
    newest_keras = newest(KERAS3).id
    if not any(
        verdict.loader == newest_keras and verdict.reason is not None for verdict in model.loaders
    ):
        return InspectedModel(model=model, exports=_exports(loaded))
    fix = run_isolated(source.display_path, lambda: _planned_fix(loaded, source))
    if isinstance(fix, Failure):
        fix = SuggestedFix(obstacle=fix.message)
    return InspectedModel(model=model, fix=fix)


TASK: Final = Task(
    module=__name__, attempt=attempt, shown=lambda source: source.display_path, caching=CACHING
)
"""Reads the only file and plans its fix."""


def models(
    results: Iterable[InspectedModel | Failure | None],
    fixes: dict[str, SuggestedFix],
    exports: dict[str, tuple[ExportSummary, ...]],
) -> Iterator[Model | Failure | None]:
    """Yield the models of results, and add their fixes and exports by the models' paths."""
    for result in results:
        if isinstance(result, InspectedModel):
            if result.fix is not None:
                fixes[result.model.path] = result.fix
            exports[result.model.path] = result.exports
            yield result.model
        else:
            yield result


def _exports(loaded: LoadedModel) -> tuple[ExportSummary, ...]:
    from policytool.model import exports  # only for models that the newest Keras loads

    return tuple(
        ExportSummary(
            exporter=verdict.exporter,
            failing=next((one.class_name for one in verdict.failing), None),
            unmeasured=next((one.class_name for one in verdict.unmeasured), None),
            weights=verdict.weights,
        )
        for verdict in exports.export_verdicts(loaded)
    )


def _planned_fix(loaded: LoadedModel, source: Input) -> SuggestedFix | None:
    from policytool import rules
    from policytool.commands import model_command

    options = rules.AuditOptions(targets=(newest(KERAS3).id,), target_names=(KERAS3,))
    case = rules.RuleInput(model=loaded.model, document=loaded.document, loaded=loaded)
    with steps.budget(source.display_path):
        findings = tuple(rules.findings(case, options))
        for command in model_command.plan_commands(case, source.path, findings, options):
            if command.arguments is not None and command.fix is not None:
                return SuggestedFix(arguments=command.arguments, effect=command.fix.value)
            if command.is_beyond_limit:
                return SuggestedFix(obstacle=command.reason)
    return None
