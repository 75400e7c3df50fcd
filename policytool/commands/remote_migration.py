"""
``migrate`` of remote models and to remote outputs.

The plan is made from ranges of the remote model. If the plan changes something, the model is
downloaded to a temporary directory and migrated there like a local model. A remote output is
uploaded after the local output was written and verified.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec.structs import replace

from policytool.commands import migrate
from policytool.commands.batch.isolation import failure_from
from policytool.commands.batch.task import WRITE_GRACE, Task
from policytool.commands.migrate import LOST, MigrateRequest, Migration, Result, Status, places
from policytool.formats import rewriting
from policytool.formats.discovery import Input  # noqa: TC001  # TASK evaluates annotations
from policytool.formats.saved_model import GRAPH
from policytool.formats.writing import WriteError, already_exists_error, report_failures
from policytool.numerics.tensorflow_run import TensorFlowTools  # noqa: TC001  # as above
from policytool.support import limits
from policytool.support.errors import ModelFileError, UsageError
from policytool.support.files import opening, transfers
from policytool.support.files.remote_path import AnyPath, RemotePath
from policytool.support.processes import interrupts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from policytool.commands.destinations import Destination

WRITABLE: Final = ("s3", "gs", "gcs", "az", "abfs", "memory")
"""The protocols with which outputs can be written, because they write objects atomically."""

_MAKES_A_MODEL: Final = frozenset({GRAPH, "config.json"})
"""The files that make a directory a model, which are uploaded last."""

MigrateLocal: TypeAlias = "Callable[[AnyPath, Destination], Result]"
"""Migrates the model at a path."""


def attempt(source: Input, request: MigrateRequest, tools: TensorFlowTools | None = None) -> Result:
    """
    Migrate one input, local or remote, and return the result, as
    :func:`policytool.commands.migrate.attempt` does.

    :raises UsageError: for options that contradict the model.
    """

    def act(path: AnyPath, destination: Destination) -> Result:
        copy = replace(source, path=path, shown=source.display_path)
        # the output of a copy is a complete path, even if the run has several inputs
        several = request.several and destination.output == request.destination.output
        copy_request = replace(request, destination=destination, several=several)
        return migrate.attempt(copy, copy_request, tools)

    return with_local_copy(source.path, source.display_path, request.destination, act)


def check(sources: Iterable[AnyPath], destination: Destination) -> None:
    """
    Check that outputs can be written, before anything is read.

    :raises UsageError: if a remote file would be replaced in place, or if the protocol of an output
        is read-only.
    """
    if not destination.write:
        return
    output = destination.output
    if isinstance(output, RemotePath) and output.protocol not in WRITABLE:
        raise UsageError(f"-o {output.shown} {_read_only_message(output)}")
    for source in sources:
        if not isinstance(source, RemotePath):
            continue
        if destination.in_place:
            raise UsageError(
                f"--in-place cannot replace {source.shown}: remote models are written to a new "
                "object; specify it with -o"
            )
        if output is None and source.protocol not in WRITABLE:
            raise UsageError(
                f"the output of {source.shown} {_read_only_message(source)}; specify one with -o"
            )


def _read_only_message(path: RemotePath) -> str:
    return (
        f"cannot be written with {path.protocol}://; policytool writes to local paths and to "
        f"{', '.join(f'{name}://' for name in WRITABLE if name != 'memory')}"
    )


def with_local_copy(
    source: AnyPath, display_path: str, destination: Destination, act: MigrateLocal
) -> Result:
    """
    Return the result of ``act`` for a model. If the model or the output is remote, call ``act``
    first for the plan, and then for a local copy.

    :raises UsageError: for an invalid output.
    """
    if not isinstance(source, RemotePath) and not isinstance(destination.output, RemotePath):
        return act(source, destination)
    planned = act(source, replace(destination, write=False))
    if not isinstance(planned, Migration) or planned.status is not Status.PLANNED:
        return planned
    if not destination.write and not (planned.plan.casts and isinstance(source, RemotePath)):
        return planned
    try:
        with report_failures(display_path, Path(tempfile.gettempdir())):
            return _migrate_copy(source, planned, destination, act)
    except ModelFileError as error:
        return failure_from(display_path, error)


def _migrate_copy(
    source: AnyPath, planned: Migration, destination: Destination, act: MigrateLocal
) -> Result:
    """Migrate a local copy, and write its output to the target of ``planned``."""
    target = planned.target
    if destination.write and target is not None:
        _check_target_free(target, destination)
    with interrupts.temporary_directory() as scratch:
        local = _local_copy(source, planned, Path(scratch, "input"))
        if not isinstance(target, RemotePath) or not destination.write:
            migration = act(local, destination)
            return (
                replace(migration, source=source, target=target)
                if isinstance(migration, Migration)
                else migration
            )
        if local.is_dir():
            _check_links(local)
        # an output next to its source needs files that are next to the copy too
        is_beside = _is_beside(source, target)
        folder = local.parent if is_beside else Path(scratch, "output")
        folder.mkdir(exist_ok=True)
        output = folder / target.name
        migration = act(local, replace(destination, output=output, is_directory=False))
        if not isinstance(migration, Migration):
            return migration
        if migration.status is Status.WRITTEN:
            companions = () if is_beside else sorted({*folder.iterdir()} - {output})
            _upload(output, target, companions, overwrite=destination.overwrite)
        return replace(migration, source=source, target=target)


def _check_target_free(target: AnyPath, destination: Destination) -> None:
    """
    Check that an output can have its name, before the model is downloaded.

    :raises WriteError: if a file or directory of that name exists and cannot be replaced.
    """
    if not opening.is_taken(target):
        return
    if not destination.overwrite:
        raise already_exists_error(target.name)
    if isinstance(target, RemotePath) and opening.is_directory(target):
        raise WriteError(
            "target-exists",
            f"would be written to the remote directory {target.name}, whose files cannot be "
            "replaced together; remove it, or use -o for another name",
        )


def _is_beside(source: AnyPath, target: AnyPath | None) -> bool:
    """Return whether a remote output is in the directory of its remote source."""
    remote = isinstance(source, RemotePath) and isinstance(target, RemotePath)
    return remote and target is not None and target.parent == source.parent


def _local_copy(source: AnyPath, planned: Migration, folder: Path) -> Path:
    """
    Return the path of a local copy of a model, with the files that the plan needs; for a local
    model, its own path.
    """
    if not isinstance(source, RemotePath):
        return source
    folder.mkdir()
    name = source.name or "model"
    if opening.is_directory(source):
        transfers.download(transfers.files_below(source), folder / name)
        return folder / name
    transfers.download({name: source}, folder)
    if planned.plan.conversion is None and _is_beside(source, planned.target):
        return folder / name
    if names := rewriting.companions(planned.plan.format, folder / name):
        transfers.download({other: source.with_name(other) for other in names}, folder)
    return folder / name


def _upload(
    output: Path, target: RemotePath, companions: Iterable[Path], *, overwrite: bool
) -> None:
    """
    Upload an output, and the files that it needs next to it. If an upload fails, remove the new
    files.

    :raises ModelFileError: if a file cannot be written.
    :raises WriteError: if a file exists, or if a new file cannot be removed after a failure.
    """
    files = {
        **{file: target.with_name(file.name) for file in companions},
        **_uploads(output, target),
    }
    new: list[RemotePath] = []
    try:
        for file, place in files.items():
            is_new = not opening.is_taken(place)
            transfers.upload(file, place, overwrite=overwrite)
            new += [place] if is_new else []
    except BaseException as error:
        _remove(new)
        if isinstance(error, FileExistsError):
            raise already_exists_error(target.name) from error
        raise


def _remove(objects: Sequence[RemotePath]) -> None:
    for place in reversed(objects):
        try:
            transfers.remove(place)
        except (ModelFileError, OSError) as error:
            raise WriteError(
                "write-failed",
                f"writing failed, and {place.shown} could not be removed; remove it",
            ) from error


def _uploads(output: Path, target: RemotePath) -> dict[Path, RemotePath]:
    """
    Return the files of an output with their remote paths. The files that make a directory a model
    are last, so that an interrupted upload leaves no model.
    """
    if not output.is_dir():
        return {output: target}
    files = [file for file in output.rglob("*") if not file.is_dir()]
    files.sort(key=lambda file: (file.parent == output and file.name in _MAKES_A_MODEL, file))
    return {file: target.joinpath(*file.relative_to(output).parts) for file in files}


def _check_links(model: Path) -> None:
    """
    Check that a directory to upload contains no links, because a link in an untrusted model could
    publish any file of this machine.

    :raises WriteError: if it contains a link.
    """
    link = next((file for file in sorted(model.rglob("*")) if file.is_symlink()), None)
    if link is not None:
        raise WriteError(
            "not-rewritable",
            f"contains the link {link.relative_to(model)}, whose target would be uploaded; specify "
            "a local output, or replace the link with a copy",
        )


TASK: Final = Task(
    module=__name__,
    attempt=attempt,
    shown=lambda source: source.display_path,
    lost=LOST,
    time=limits.WRITE_SECONDS,
    grace=WRITE_GRACE,
    places=places,
)
"""The migration of one model, local or remote."""
