"""``migrate``: plan what changes in one file, and carry the plan out."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  # TASK evaluates annotations
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

from policytool.commands.destinations import (
    Destination,
    check_target,
    container_of,
    places_of,
    target_of,
)
from policytool.commands.inspect import Failure, failure_of
from policytool.formats import REWRITTEN, SUFFIXES, TITLES, ambiguity, format_detection
from policytool.formats.discovery import Input  # noqa: TC001  # TASK evaluates annotations
from policytool.formats.edits import Counts, WriteOptions, Written
from policytool.migration import planning
from policytool.migration.plan import Plan, Refusal
from policytool.migration.planning.options import Options  # noqa: TC001  # as above
from policytool.model import reading
from policytool.numerics.predictions import PredictionComparison  # noqa: TC001  # as above
from policytool.numerics.tensorflow_run import (
    Reexport,
    TensorFlowRun,
    TensorFlowTools,
    ToleranceMissedError,
    count_casts,
)
from policytool.support import steps
from policytool.support.errors import ModelFileError, UsageError, WorkerError
from policytool.support.files import opening
from policytool.support.files.remote_path import AnyPath, RemotePath, local
from policytool.support.text.jsontext import Json  # noqa: TC001  # as above

if TYPE_CHECKING:
    from policytool.formats.document import Document
    from policytool.model.loaded_model import LoadedModel


CONFIG: Final = "config"
"""What the model's config is called where a whole file is written anew."""

_NOT_MIGRATABLE: Final = "not-migratable"


class Status(StrEnum):
    """How a migration ended."""

    UNCHANGED = "unchanged"
    """The file needs nothing, and was not touched."""

    PLANNED = "planned"
    """The plan was only made."""

    WRITTEN = "written"

    SKIPPED = "skipped"
    """
    There is something of the output's name, and it was left: an earlier run's, for an output has
    its name only once it is whole.
    """

    BLOCKED = "blocked"

    MISSED = "missed"
    """The predictions were too far from the original's, and nothing was written."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Migration:
    """One file's plan, and what became of it."""

    plan: Plan
    status: Status
    source: AnyPath
    target: AnyPath | None = None
    written: Written | None = None
    counts: Mapping[tuple[str, ...], Counts] = field(default_factory=dict)
    parts: Mapping[str, Json] = field(default_factory=dict)
    """The JSON documents that change, as they were; none where nobody asked for them."""

    retraced: Reexport | None = None
    comparison: PredictionComparison | None = None
    not_verified: str | None = None
    """Why the predictions of what was written were not compared, if that is the default."""

    memory_limit: int | None = None
    """
    Bytes that TensorFlow could take to compare predictions, beyond itself; None without a
    comparison, and for one with a limit of the user's or without any.
    """


Result = Migration | Failure | None
"""None for a path that was found and is no model, or weights alone."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MigrateRequest:
    """What is to be done to each of several files."""

    options: Options
    destination: Destination
    several: bool = False
    """Whether there are several, which then cannot have one output."""

    parts: bool = True
    """Whether a diff is to be made of the results."""

    no_verify_reason: str | None = None
    """Why no predictions are compared, for all of them; None if they are, or nobody expects it."""


def attempt(found: Input, request: MigrateRequest, tools: TensorFlowTools | None = None) -> Result:
    """
    Return what became of one input.

    :raises UsageError: for options that contradict the model.
    """
    try:
        with steps.budget(found.display_path):
            document = format_detection.document(found.path, found.display_path)
            if document.config_part is None and not found.exact:
                return None  # a glob matches weights next to models by accident
            check_migratable(document, converts=request.options.target is not None)
            return migrate_loaded(reading.load_model(document), found.path, request, tools)
    except ModelFileError as error:
        return failure_of(found, error)
    except WorkerError as error:
        return Failure(
            path=found.display_path, code=error.code, message=str(error), details=error.details
        )


def migrate_loaded(
    loaded: LoadedModel,
    source: AnyPath,
    request: MigrateRequest,
    tools: TensorFlowTools | None = None,
) -> Migration:
    """
    Return what became of a model that was read from ``source``, which may be remote if nothing is
    written.

    :raises UsageError: for options that contradict the model.
    :raises ModelFileError: for a model that has no layers, and where writing fails.
    :raises WorkerError: where TensorFlow is needed, and cannot do its part.
    """
    document = loaded.document
    if not loaded.sites:
        message = "contains no layers that can be changed: its metadata lists no layers"
        raise ModelFileError(document.path, _NOT_MIGRATABLE, message)
    plan = _make_plan(loaded, request)
    run = (
        TensorFlowRun(plan=plan, loaded=loaded, source=source, tools=tools)
        if tools is not None
        else None
    )
    work = Work(
        plan=plan,
        source=source,
        document=document,
        run=run,
        parts=request.parts,
        no_verify_reason=request.no_verify_reason,
    )
    return apply_plan(work, request.destination, several=request.several)


def _make_plan(loaded: LoadedModel, request: MigrateRequest) -> Plan:
    destination = request.destination
    container = None if destination.is_directory else container_of(destination.output)
    if request.options.target is None:
        _check_container(loaded.document, container, destination.output)
        return planning.plan(loaded, request.options)
    from policytool.migration.convert import conversion_plan

    return conversion_plan.plan(loaded, request.options, container)


def _check_container(document: Document, container: str | None, output: AnyPath | None) -> None:
    """
    Make sure that an output's name says the container that the model is in, or has the suffix of
    the input, whatever is in it: only a conversion writes another container.

    :raises UsageError: where it says another.
    """
    own = document.format
    if output is None or container in {None, own} or (container == "json" and own == "tfjs"):
        return
    if output.suffix == PurePath(document.path).suffix:
        return
    suffixes = SUFFIXES.get(own)
    name = (
        f"use the file extension {suffixes[0]}"
        if suffixes
        else "use a name without a file extension"
    )
    raise UsageError(
        f"{output.name} is {TITLES[container]}, but {document.path} is {TITLES[own]}, and "
        f"migrate changes the file format only with --target; {name}, or add --target"
    )


def places(found: Input, request: MigrateRequest) -> frozenset[AnyPath]:
    """Return the files and directories that are read or written for an input."""
    return places_of(
        found.path, request.options.suffix, request.destination, several=request.several
    )


LOST: Final = (
    "may not have been migrated: the worker process {how}; the output is either complete or "
    "unchanged"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """A plan and what it is carried out with."""

    plan: Plan
    source: AnyPath
    """Remote only for a destination to which nothing is written."""

    document: Document | None = None
    """What the plan was made of, which a model that is written anew gets its values by."""

    run: TensorFlowRun | None = None
    """What TensorFlow does of it; None where nothing is asked of it."""

    parts: bool = False
    """Whether a diff is to be made of the result."""

    no_verify_reason: str | None = None
    """Why no predictions are compared, if that is the default."""


def apply_plan(work: Work, destination: Destination, *, several: bool = False) -> Migration:
    """
    Return what becomes of a plan: nothing for an empty one, a refusal, a preview, or the written
    file.

    :raises ModelFileError: where writing fails; the original is what it was.
    :raises WorkerError: where TensorFlow is needed, and cannot do its part.
    """
    plan, source, run = work.plan, work.source, work.run
    done = Migration(plan=plan, status=Status.UNCHANGED, source=source, parts=_changing_parts(work))
    if plan.is_empty:
        return done
    container = plan.conversion.content.container if plan.conversion is not None else None
    target = target_of(source, plan.suffix, destination, several=several, container=container)
    distrusted = run.refusal() if run is not None and (plan.retrace or run.tools.verify) else None
    if plan.refusals or distrusted is not None:
        refusals = plan.refusals or tuple(
            refusal for refusal in (distrusted,) if refusal is not None
        )
        return replace(
            done, plan=replace(plan, refusals=refusals), status=Status.BLOCKED, target=target
        )
    check_target(plan, source, target, destination)
    if destination.skip_existing and _is_there(target):
        return replace(done, status=Status.SKIPPED, target=target)
    counts = _count_losses(work)
    overflow = sum(count.overflow for count in counts.values())
    if overflow and not destination.allow_overflow:
        return replace(
            done,
            plan=replace(plan, refusals=(_overflows(plan, counts),)),
            status=Status.BLOCKED,
            target=target,
            counts=counts,
        )
    if not destination.write:
        return replace(done, status=Status.PLANNED, target=target, counts=counts)
    try:
        written = _write(work, target, destination)
    except ToleranceMissedError as missed:
        return replace(
            done,
            status=Status.MISSED,
            target=target,
            counts=counts,
            comparison=missed.comparison,
            memory_limit=run.memory_limit if run is not None else None,
        )
    done = replace(
        done,
        status=Status.WRITTEN,
        target=target,
        written=written,
        counts=counts,
        not_verified=work.no_verify_reason,
    )
    return done if run is None else _with_answers(done, run)


def _is_there(target: AnyPath) -> bool:
    """
    Return whether there is an output; a remote directory counts once it is a model, because its
    files are written one after another.
    """
    if isinstance(target, RemotePath) and opening.is_directory(target):
        return format_detection.is_model(target)
    return opening.is_taken(target)


def _changing_parts(work: Work) -> Mapping[str, Json]:
    """Return the JSON documents that change, as they are; none where nobody asks for them."""
    if not work.parts or work.document is None:
        return {}
    if work.plan.conversion is not None:
        return {CONFIG: work.document.config}
    edited = {edit.address.part for edit in work.plan.edits}
    return {name: value for name, value in work.document.parts.items() if name in edited}


def _write(work: Work, output: AnyPath, destination: Destination) -> Written:
    plan, source, target, run = work.plan, local(work.source), local(output), work.run
    if destination.is_directory:
        target.parent.mkdir(parents=True, exist_ok=True)
    options = WriteOptions(
        overwrite=destination.overwrite,
        in_place=destination.in_place,
        backup=destination.backup,
        shown=plan.path,
        verify=run.verify if run is not None and run.verifies() else None,
    )
    if plan.conversion is not None and work.document is not None:
        from policytool.formats import creating

        return creating.build(source, work.document, target, plan.conversion.content, options)
    if plan.retrace and run is not None:
        from policytool.formats import writing  # as above

        return writing.write_output(source, target, options, run.reexport)
    from policytool.formats import rewriting  # as above

    changes = rewriting.Changes(edits=plan.edits, casts=plan.casts, state=plan.state)
    return rewriting.write(source, target, changes, document_format=plan.format, options=options)


def _with_answers(done: Migration, run: TensorFlowRun) -> Migration:
    """Return a migration with what the child process did for it."""
    plan = done.plan
    if run.retraced is not None and run.after is not None:
        plan = replace(
            plan, notes=(*plan.notes, *run.retraced.notes()), loaders_after=run.after.model.loaders
        )
    return replace(
        done,
        plan=plan,
        retraced=run.retraced,
        comparison=run.comparison,
        not_verified=run.obstacle or done.not_verified,
        memory_limit=run.memory_limit,
    )


def _count_losses(work: Work) -> Mapping[tuple[str, ...], Counts]:
    """
    Return what each cast does to the values, which takes reading those tensors and no others; of a
    remote file, its local copy tells.
    """
    plan, source = work.plan, work.source
    if not plan.casts or isinstance(source, RemotePath):
        return {}
    if plan.retrace and work.run is not None:
        return count_casts(plan, work.run.loaded, source)
    if plan.conversion is not None and work.document is not None and work.document.nodes:
        return count_casts(plan, reading.load_model(work.document), source)
    from policytool.formats import rewriting  # as above: h5py and ml_dtypes

    return rewriting.measure(source, plan.format, plan.casts, shown=plan.path)


def check_migratable(document: Document, *, converts: bool = False) -> None:
    """
    Make sure that a file is of a format that can be migrated.

    :param converts: whether it is to be converted for another release.
    :raises ModelFileError: where it is not, and for a file that is two models.
    """
    ambiguity.refuse(document)
    if document.config_part is None or document.format == "weights":
        lacking = (
            "is a SavedModel without Keras metadata"
            if document.format == "savedmodel"
            else "contains only weights"
        )
        message = (
            f"{lacking}: it contains no layers that can be converted; convert the Keras "
            "model from which it was saved"
            if converts
            else f"{lacking}: it contains no policy that can be changed"
        )
        raise ModelFileError(document.path, _NOT_MIGRATABLE, message)
    if document.format not in REWRITTEN:
        message = (
            "has a file format that policytool can only read; migrate supports "
            f"{', '.join(sorted(REWRITTEN))}"
        )
        raise ModelFileError(document.path, _NOT_MIGRATABLE, message)


def _overflows(plan: Plan, counts: Mapping[tuple[str, ...], Counts]) -> Refusal:
    worst = max(
        plan.casts, key=lambda cast: counts[cast.tensor].overflow if cast.tensor in counts else 0
    )
    found = counts[worst.tensor]
    total = sum(count.overflow for count in counts.values())
    narrow = worst.through or worst.after
    message = (
        f"{worst.path or 'the optimizer'} has {found.overflow} values in "
        f"{'/'.join(worst.tensor)} that overflow {narrow} and would become infinite "
        f"({total} in total); use mixed_{narrow} to keep variables in float32, or "
        "--allow-overflow to write infinities"
    )
    return Refusal(code="overflow", message=message, path=worst.path)
