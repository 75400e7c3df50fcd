"""
Reads the only model of ``inspect``. If the newest Keras fails to load it, may fail because of a
Lambda, or loads it with other predictions, also plans the command that ``audit`` prints. If it does
not fail, also looks up which exporters of Keras support it. For weights, also finds the
architectures that they fit.

Rules and plans are imported only if a command must be planned, because their import takes as long
as ``inspect`` does.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from policytool.commands.batch.isolation import run_isolated
from policytool.commands.batch.task import Task
from policytool.commands.inspect import (
    CACHING,
    ExportSummary,
    Failure,
    FittingArchitectures,
    ModelExtras,
    SuggestedFix,
    failure_of,
)
from policytool.formats import CONVERTED, format_detection
from policytool.formats.discovery import Input  # noqa: TC001  # TASK evaluates annotations
from policytool.model import reading
from policytool.model.hazards import LAMBDA
from policytool.model.model import Model, verdict_of
from policytool.releases.releases import KERAS3, newest
from policytool.support import steps
from policytool.support.errors import ModelFileError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from policytool.formats.document import Document
    from policytool.model.loaded_model import LoadedModel


class InspectedModel(Struct, frozen=True, kw_only=True):
    """A model, and what the report shows in addition."""

    model: Model
    extras: ModelExtras


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
                extras = ModelExtras(fits=_fits(document, source))
                return InspectedModel(model=reading.model_of(document), extras=extras)
            loaded = reading.load_model(document)
            model = loaded.sized_model if with_sizes else loaded.model
    except ModelFileError as error:
        return failure_of(source, error)
    verdict = verdict_of(model.loaders, newest(KERAS3).id)
    fails = verdict is not None and verdict.reason is not None
    extras = ModelExtras()
    if not fails:
        extras = ModelExtras(exports=_exports(loaded))
        if verdict is None or not (
            verdict.changed_results or any(doubt.class_name == LAMBDA for doubt in verdict.doubts)
        ):
            return InspectedModel(model=model, extras=extras)
    return InspectedModel(model=model, extras=replace(extras, fix=fix_for_newest(loaded, source)))


TASK: Final = Task(
    module=__name__, attempt=attempt, shown=lambda source: source.display_path, caching=CACHING
)
"""Reads the only file and plans its fix."""


def models(
    results: Iterable[InspectedModel | Failure | None], extras: dict[str, ModelExtras]
) -> Iterator[Model | Failure | None]:
    """Yield the models of results, and add what reports show in addition by the models' paths."""
    for result in results:
        if isinstance(result, InspectedModel):
            extras[result.model.path] = result.extras
            yield result.model
        else:
            yield result


def fix_for_newest(loaded: LoadedModel, source: Input) -> SuggestedFix | None:
    """Return the command that converts a model to the newest Keras, or why none is known."""
    fix = run_isolated(source.display_path, lambda: _planned_fix(loaded, source))
    return SuggestedFix(obstacle=fix.message) if isinstance(fix, Failure) else fix


def _fits(document: Document, source: Input) -> FittingArchitectures | None:
    """Return the architectures next to a local file of weights that they fit."""
    if document.format != "weights" or not isinstance(source.path, Path):
        return None
    from policytool.commands.fitting_architectures import fitting_architectures

    path = source.path
    found = run_isolated(source.display_path, lambda: fitting_architectures(document, path))
    return None if isinstance(found, Failure) else found


def _exports(loaded: LoadedModel) -> tuple[ExportSummary, ...]:
    """Return which exporters of Keras support the model."""
    from policytool.model import exports  # only for models that the newest Keras loads

    return tuple(
        ExportSummary(
            exporter=verdict.exporter,
            failing=next((layer.class_name for layer in verdict.failing), None),
            unmeasured=next((layer.class_name for layer in verdict.unmeasured), None),
            weights=verdict.weights,
        )
        for verdict in exports.export_verdicts(loaded)
    )


def _planned_fix(loaded: LoadedModel, source: Input) -> SuggestedFix | None:
    """Return the command that converts a model to the newest Keras; None if no command does."""
    from policytool import rules
    from policytool.commands import model_command

    options = rules.AuditOptions(targets=(newest(KERAS3).id,), target_names=(KERAS3,))
    case = rules.RuleInput(model=loaded.model, document=loaded.document, loaded=loaded)
    with steps.budget(source.display_path):
        findings = tuple(rules.findings(case, options))
        for command in model_command.plan_commands(case, source.path, findings, options):
            if command.arguments is not None and command.effect is not None:
                return SuggestedFix(
                    arguments=command.arguments, effect=command.effect, existing=command.existing
                )
            if command.is_beyond_limit:
                return SuggestedFix(obstacle=command.reason)
    return None
