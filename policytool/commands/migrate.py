"""``migrate``: plans the changes in one file, and applies the plan."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  # TASK evaluates annotations
from enum import StrEnum
from pathlib import Path  # noqa: TC003  # TASK evaluates annotations
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field
from msgspec.structs import replace

from policytool.commands import migration_preview
from policytool.commands.batch.isolation import failure_from
from policytool.commands.destinations import Destination, target_of, touched_paths
from policytool.commands.inspect import Failure, failure_of
from policytool.formats import discovery, format_detection
from policytool.formats.discovery import Input  # noqa: TC001  # TASK evaluates annotations
from policytool.formats.edits import Counts, WriteOptions, Written
from policytool.migration.plan import Plan  # noqa: TC001  # TASK evaluates annotations
from policytool.migration.planning.options import Options  # noqa: TC001  # as above
from policytool.model import reading
from policytool.model.model import Layer, Outcome
from policytool.numerics.predictions import PredictionComparison  # noqa: TC001  # as above
from policytool.numerics.tensorflow_run import (
    Reexport,
    TensorFlowRun,
    TensorFlowTools,
    ToleranceMissedError,
)
from policytool.numerics.verification import format_obstacle
from policytool.releases.releases import library_and_version
from policytool.support import steps
from policytool.support.errors import ModelFileError, WorkerError
from policytool.support.files.remote_path import AnyPath, local
from policytool.support.text.jsontext import Json  # noqa: TC001  # as above

if TYPE_CHECKING:
    from policytool.formats.document import Document
    from policytool.model.loaded_model import LoadedModel
    from policytool.model.model import Verdict


CONFIG: Final = "config"
"""The name of the config in the diff of a converted model."""


class Status(StrEnum):
    """How a migration ended."""

    UNCHANGED = "unchanged"
    """The file needs no changes, and was not written."""

    PLANNED = "planned"
    """The plan was not applied, because of ``--preview``."""

    WRITTEN = "written"

    SKIPPED = "skipped"
    """
    The output exists and was kept. Outputs are renamed into place when complete, so it is a
    complete output of an earlier run.
    """

    BLOCKED = "blocked"

    MISSED = "missed"
    """The predictions differ by more than the tolerance, and nothing was written."""


class Migration(Struct, frozen=True, kw_only=True):
    """The plan for a file, and its outcome."""

    plan: Plan
    status: Status
    source: AnyPath
    target: AnyPath | None = None
    unwritten: AnyPath | None = None
    """The output that the user named and that is not written, because nothing changes."""

    written: Written | None = None
    counts: Mapping[tuple[str, ...], Counts] = field(default_factory=dict)
    parts: Mapping[str, Json] = field(default_factory=dict)
    """The JSON documents that change, before the change; empty if no diff is needed."""

    connected_layers: tuple[Layer, ...] = ()
    """The layers of the original with their inputs; empty if no report needs them."""

    retraced: Reexport | None = None
    comparison: PredictionComparison | None = None
    not_verified: str | None = None
    """Why predictions were not compared, although that is the default; None otherwise."""

    memory_limit: int | None = None
    """
    The default limit for the memory of the comparison in bytes, without the memory of TensorFlow
    itself; None without a comparison, or if the user set a limit.
    """


Result = Migration | Failure | None
"""The result of an input; None for a discovered file that is not a model or has only weights."""


class MigrateRequest(Struct, frozen=True, kw_only=True):
    """The options for each file."""

    options: Options
    destination: Destination
    several: bool = False
    """Whether the run has several inputs, which cannot have the same output."""

    details: bool = True
    """Whether a report needs the layers and the documents that change: a diff, or an HTML page."""

    no_verify_reason: str | None = None
    """
    Why predictions of no file are compared, although that is the default; None if they are
    compared, or if it is not the default.
    """

    weights: Path | None = None
    """The weights of the only input, which is an architecture."""


def attempt(source: Input, request: MigrateRequest, tools: TensorFlowTools | None = None) -> Result:
    """
    Migrate one input and return the result.

    :raises UsageError: for options that contradict the model.
    """
    try:
        with steps.budget(source.display_path):
            document = format_detection.document(source.path, source.display_path)
            if document.config_part is None and not source.exact:
                return None  # a glob matches weights next to models by accident
            migration_preview.check_migratable(
                document, converts=request.options.target is not None
            )
            loaded = load_document(document, request.weights)
            return migrate_loaded(loaded, source.path, request, tools)
    except ModelFileError as error:
        return failure_of(source, error)
    except WorkerError as error:
        return failure_from(source.display_path, error)


def load_document(document: Document, weights: Path | None) -> LoadedModel:
    """
    Return the model of a document; with ``weights``, of an architecture and its weights.

    :raises UsageError: if the document has its own weights.
    :raises ModelFileError: if the weights cannot be read, or do not fit.
    """
    if weights is None:
        return reading.load_model(document)
    from policytool.model import separate_weights  # only for two files

    file = discovery.named_input(str(weights))
    stored = format_detection.document(file.path, file.display_path)
    format_detection.refuse_ambiguity(stored)
    return separate_weights.load_model(document, stored, file.path)


def migrate_loaded(
    loaded: LoadedModel,
    source: AnyPath,
    request: MigrateRequest,
    tools: TensorFlowTools | None = None,
) -> Migration:
    """
    Migrate a model that was read from ``source``, and return the outcome. The source may be remote
    if nothing is written.

    :raises UsageError: for options that contradict the model.
    :raises ModelFileError: for a model without layers, and if writing fails.
    :raises WorkerError: if TensorFlow is needed and fails.
    """
    plan = migration_preview.plan_migration(loaded, request.options, request.destination)
    if not request.destination.is_private:  # reports show all verdicts, beyond the budget
        plan = replace(
            plan,
            loaders_before=tuple(plan.loaders_before),
            loaders_after=tuple(plan.loaders_after),
        )
    run = (
        TensorFlowRun(plan=plan, loaded=loaded, source=source, tools=tools)
        if tools is not None
        else None
    )
    work = Work(
        plan=plan,
        source=source,
        loaded=loaded,
        run=run,
        details=request.details,
        no_verify_reason=request.no_verify_reason,
    )
    return apply_plan(work, request.destination, several=request.several)


def places(source: Input, request: MigrateRequest) -> frozenset[AnyPath]:
    """Return the files and directories that are read or written for an input."""
    return touched_paths(
        source.path, request.options.suffix, request.destination, several=request.several
    )


LOST: Final = (
    "may not have been migrated: the worker process {how}; the output is either complete or "
    "unchanged"
)


class Work(Struct, frozen=True, kw_only=True):
    """A plan, with the inputs that are needed to apply it."""

    plan: Plan
    source: AnyPath
    """The path of the model. It must be local if the plan is applied."""

    loaded: LoadedModel | None = None
    """The model of the plan, whose document contains the values for a converted model."""

    run: TensorFlowRun | None = None
    """The jobs for TensorFlow; None if there are none."""

    details: bool = False
    """Whether a report needs the layers and the documents that change: a diff, or an HTML page."""

    no_verify_reason: str | None = None
    """Why predictions are not compared, although that is the default; None otherwise."""


def _named_output(work: Work, destination: Destination, *, several: bool) -> AnyPath | None:
    """Return the output that ``-o`` names; None without ``-o``."""
    if destination.output is None or destination.is_private:
        return None
    return target_of(work.source, work.plan.suffix, destination, several=several)


def apply_plan(work: Work, destination: Destination, *, several: bool = False) -> Migration:
    """
    Apply a plan, unless it is empty or blocked, or ``--preview`` is set, and return the outcome.

    :raises ModelFileError: if writing fails; the original is unchanged.
    :raises WorkerError: if TensorFlow is needed and fails.
    """
    plan, source, run = work.plan, work.source, work.run
    migration = Migration(
        plan=plan,
        status=Status.UNCHANGED,
        source=source,
        parts=_changing_parts(work),
        connected_layers=work.loaded.connected_layers
        if work.details and work.loaded is not None
        else (),
    )
    if plan.is_empty:
        return replace(migration, unwritten=_named_output(work, destination, several=several))
    if run is not None and not plan.refusals and (plan.retrace or run.tools.verify):
        distrusted = run.refusal()
        plan = replace(plan, refusals=(distrusted,)) if distrusted is not None else plan
    preview = migration_preview.preview(
        plan, source, destination, several=several, loaded=work.loaded
    )
    target = preview.target
    migration = replace(migration, plan=preview.plan, target=target, counts=preview.counts)
    if preview.plan.refusals or target is None:
        return replace(migration, status=Status.BLOCKED)
    if preview.is_skipped:
        return replace(migration, status=Status.SKIPPED)
    if not destination.write:
        return replace(migration, status=Status.PLANNED)
    try:
        written = _write(work, target, destination)
    except ToleranceMissedError as missed:
        return replace(
            migration,
            status=Status.MISSED,
            comparison=missed.comparison,
            memory_limit=run.memory_limit if run is not None else None,
        )
    migration = replace(
        migration,
        status=Status.WRITTEN,
        written=written,
        not_verified=(
            format_obstacle(plan.format, plan.written_format) or work.no_verify_reason
            if work.no_verify_reason is not None
            else None
        ),
    )
    return migration if run is None else _with_answers(migration, run)


def _changing_parts(work: Work) -> Mapping[str, Json]:
    """
    Return the JSON documents that change, before the change; none if the caller does not need them.
    """
    if not work.details or work.loaded is None:
        return {}
    document = work.loaded.document
    if work.plan.conversion is not None:
        return {CONFIG: document.config}
    edited = {edit.address.part for edit in work.plan.edits}
    return {name: value for name, value in document.parts.items() if name in edited}


def _write(work: Work, output: AnyPath, destination: Destination) -> Written:
    """Write the output of a plan: a new file, an edited copy, or a re-exported SavedModel."""
    plan, source, target, run = work.plan, local(work.source), local(output), work.run
    if destination.is_directory:
        target.parent.mkdir(parents=True, exist_ok=True)
    options = WriteOptions(
        overwrite=destination.overwrite,
        in_place=destination.in_place,
        backup=destination.backup,
        is_private=destination.is_private,
        shown=plan.path,
        verify=run.verify if run is not None and run.verifies() else None,
    )
    if plan.conversion is not None and work.loaded is not None:
        from policytool.formats import creating

        document = work.loaded.document
        return creating.build(source, document, target, plan.conversion.content, options)
    if plan.retrace and run is not None:
        from policytool.formats import writing  # as above

        return writing.write_output(source, target, options, run.reexport)
    from policytool.formats import rewriting  # as above

    changes = rewriting.Changes(edits=plan.edits, casts=plan.casts, state=plan.state)
    return rewriting.write(source, target, changes, document_format=plan.format, options=options)


def _with_answers(migration: Migration, run: TensorFlowRun) -> Migration:
    """Return a migration with the results of the child process."""
    plan = migration.plan
    if run.retraced is not None and run.after is not None:
        plan = replace(
            plan, notes=(*plan.notes, *run.retraced.notes()), loaders_after=run.after.model.loaders
        )
    if run.comparison is not None:
        ran = run.comparison.versions_after or run.comparison.versions
        after = tuple(_with_observation(verdict, ran) for verdict in plan.loaders_after)
        plan = replace(plan, loaders_after=after)
    return replace(
        migration,
        plan=plan,
        retraced=run.retraced,
        comparison=run.comparison,
        not_verified=run.obstacle or migration.not_verified,
        memory_limit=run.memory_limit,
    )


def _with_observation(verdict: Verdict, versions: Mapping[str, str]) -> Verdict:
    """
    Return the verdict of a release on the written model. The verdict is no longer unknown for the
    release that loaded the model to compare predictions.

    :param versions: the library that loaded the model, and its releases
    """
    library, version = library_and_version(versions)
    release = f"{library}{'.'.join((version or '').split('.')[:2])}"
    is_observed = verdict.loader == release and verdict.outcome is Outcome.UNKNOWN
    return replace(verdict, doubts=()) if is_observed else verdict
