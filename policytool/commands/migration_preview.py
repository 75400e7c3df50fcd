"""
The preview of ``migrate`` for one file: the plan, the output, and the reasons that block the plan.

It writes no file and starts no process. ``audit`` and ``inspect`` use only this part of
``migrate``.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field
from msgspec.structs import replace

from policytool.commands.destinations import (
    check_separate_target,
    check_target,
    container_of,
    container_to_name,
    target_of,
)
from policytool.formats import CONVERTED, REWRITTEN, SUFFIXES, TITLES, format_detection
from policytool.formats.discovery import display_path
from policytool.formats.document import UNKNOWN_DTYPES, ValuesError
from policytool.migration import planning
from policytool.migration.plan import Refusal
from policytool.model.compatibility import file_names
from policytool.support.errors import ModelFileError, UsageError
from policytool.support.files import opening
from policytool.support.files.remote_path import AnyPath, RemotePath

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from policytool.commands.destinations import Destination
    from policytool.formats.document import Document
    from policytool.formats.edits import Cast, Counts
    from policytool.migration.plan import Plan
    from policytool.migration.planning.options import Options
    from policytool.model.loaded_model import LoadedModel
    from policytool.model.model import Verdict

_NOT_MIGRATABLE: Final = "not-migratable"


class Preview(Struct, frozen=True, kw_only=True):
    """A plan, with its output and the effects of its casts on values."""

    plan: Plan
    """The plan. Its refusals include those that depend on the stored values."""

    target: AnyPath | None = None
    """The output; None if the plan is empty."""

    is_skipped: bool = False
    """Whether the output exists and must be kept."""

    counts: Mapping[tuple[str, ...], Counts] = field(default_factory=dict)


def check_migratable(document: Document, *, converts: bool = False) -> None:
    """
    Check that ``migrate`` supports the format of a file.

    :param converts: whether the model must be converted for another release
    :raises ModelFileError: if it does not, or if the file can be read as two different models.
    """
    format_detection.refuse_ambiguity(document)
    if document.config_part is None or document.format == "weights":
        is_export = document.format == "savedmodel"
        subject = "a SavedModel without Keras metadata" if is_export else "a file of weights"
        join = "" if is_export else "pass it to migrate --weights with the architecture, or "
        message = (
            f"{subject} contains no layers that can be converted; {join}convert the Keras model "
            "from which it was saved"
            if converts
            else f"{subject} contains no policy that can be changed"
        )
        raise ModelFileError(document.path, _NOT_MIGRATABLE, message)
    if document.format not in (CONVERTED if converts else REWRITTEN):
        message = (
            "is an Orbax checkpoint, which migrate only converts; add --target keras3 and "
            "-o NAME.keras"
            if document.format in CONVERTED
            else "is a KerasHub preset, which cannot be converted, because only KerasHub has its "
            "layers; change its policies with --to and no --target"
            if document.format in REWRITTEN
            else "has a file format that policytool can only read; migrate supports "
            f"{', '.join(sorted(REWRITTEN))}"
        )
        raise ModelFileError(document.path, _NOT_MIGRATABLE, message)
    for observation in document.observations:
        if observation.code == UNKNOWN_DTYPES:
            message = f"cannot be converted, because {observation.message}"
            raise ModelFileError(document.path, _NOT_MIGRATABLE, message)


def plan_migration(loaded: LoadedModel, options: Options, destination: Destination) -> Plan:
    """
    Return the plan for a model, in the file format of the destination.

    :raises UsageError: if options contradict the model.
    :raises ModelFileError: if the model has no layers.
    """
    if not loaded.sites:
        message = "contains no layers that can be changed: its metadata lists no layers"
        raise ModelFileError(loaded.document.path, _NOT_MIGRATABLE, message)
    container = _container(destination)
    if options.target is None:
        _check_container(loaded.document, container, destination.output)
        return planning.plan(loaded, options)
    from policytool.migration.convert import conversion_plan

    return conversion_plan.plan(loaded, options, container)


def _container(destination: Destination) -> str | None:
    return None if destination.is_directory else container_of(destination.output)


def planned_model(
    loaded: LoadedModel, options: Options, destination: Destination, plan: Plan
) -> LoadedModel:
    """Return the model that a plan of :func:`plan_migration` writes, as it will be read."""
    if plan.conversion is not None:
        from policytool.migration.convert import conversion_plan

        converted = conversion_plan.result(loaded, options, _container(destination))
        if converted is not None:
            return converted
    return planning.edited_model(loaded, options)


def _check_container(document: Document, container: str | None, output: AnyPath | None) -> None:
    """
    Check that the suffix of the output is not that of another file format, unless the input has the
    same suffix. Only a conversion changes the file format.

    :raises UsageError: if the suffix is that of another file format.
    """
    source_format = document.format
    if (
        output is None
        or container in {None, source_format}
        or (container == "json" and source_format == "tfjs")
    ):
        return
    if output.suffix == PurePath(document.path).suffix:
        return
    suffixes = SUFFIXES.get(source_format)
    name = (
        f"use the file extension {suffixes[0]}"
        if suffixes
        else "use a name without a file extension"
    )
    raise UsageError(
        f"{output.name} is {TITLES[container]}, but {document.path} is {TITLES[source_format]}, "
        f"and migrate changes the file format only with --target; {name}, or add --target"
    )


def preview(
    plan: Plan,
    source: AnyPath,
    destination: Destination,
    *,
    several: bool = False,
    loaded: LoadedModel | None = None,
) -> Preview:
    """
    Return the preview of a plan for a destination.

    :param loaded: the model of the plan; None to read values without it
    :raises UsageError: if the output contradicts the model or its file.
    :raises ModelFileError: if values cannot be read.
    """
    if plan.is_empty:
        return Preview(plan=plan)
    container = container_to_name(plan, source)
    target = target_of(source, plan.suffix, destination, several=several, container=container)
    if plan.refusals:
        return Preview(plan=plan, target=target)
    plan = replace(plan, loaders_after=_verdicts_under(target, plan, source))
    weights = loaded.document.weights if loaded is not None else None
    check_target(plan, source, target, destination)
    if weights is not None:
        check_separate_target(target, weights.path)
    if destination.skip_existing and _exists(target):
        return Preview(plan=plan, target=target, is_skipped=True)
    is_archive = plan.conversion is not None and container == "keras"
    loadable = file_names.loadable_name(target.name, "keras", is_directory=False)
    if is_archive and target.name != loadable:
        return Preview(plan=replace(plan, refusals=(_suffix_refusal(target),)), target=target)
    counts = _count_losses(plan, source, loaded)
    if sum(count.overflow for count in counts.values()) and not destination.allow_overflow:
        plan = replace(plan, refusals=(_overflow_refusal(plan, counts),))
    return Preview(plan=plan, target=target, counts=counts)


def _verdicts_under(target: AnyPath, plan: Plan, source: AnyPath) -> Sequence[Verdict]:
    """Return the verdicts on the result of a plan under the name of the output."""
    return file_names.under_name(
        plan.loaders_after,
        plan.written_format,
        None if isinstance(target, RemotePath) else display_path(target),
        is_directory=plan.conversion is None and opening.is_directory(source),
    )


def _suffix_refusal(target: AnyPath) -> Refusal:
    """Return why an archive is not written: Keras selects the reader of a file by its suffix."""
    name = display_path(target)
    return Refusal(
        code="target-suffix",
        message=f"Keras loads .keras archives only with this suffix, which {name} does not have; "
        f"use -o {name}.keras, or -o {name}/ for a directory",
    )


def _exists(target: AnyPath) -> bool:
    """
    Return whether an output exists. A remote directory exists only if it is a model, because its
    files are written one after the other.
    """
    if isinstance(target, RemotePath) and opening.is_directory(target):
        return format_detection.is_model(target)
    return opening.is_taken(target)


def _count_losses(
    plan: Plan, source: AnyPath, loaded: LoadedModel | None
) -> Mapping[tuple[str, ...], Counts]:
    """
    Return the effect of each cast of a plan on the values. Only the tensors that are cast are read.
    Return nothing for a remote file, because its values are read later, from a local copy.
    """
    if not plan.casts or isinstance(source, RemotePath):
        return {}
    if loaded is not None and loaded.document.weights is not None:
        from policytool.formats import creating

        return creating.measure(source, loaded.document, plan.casts)
    if loaded is not None and loaded.document.nodes and (plan.retrace or plan.conversion):
        from policytool.numerics import tensorflow_run  # the values are in a checkpoint

        return tensorflow_run.count_casts(plan, loaded, source)
    if loaded is not None and loaded.document.format not in REWRITTEN:
        return _effects(source, loaded.document, plan.casts)
    from policytool.formats import rewriting  # imports h5py and ml_dtypes

    return rewriting.measure(source, plan.format, plan.casts, display_path=plan.path)


def _effects(
    source: AnyPath, document: Document, casts: Iterable[Cast]
) -> dict[tuple[str, ...], Counts]:
    """
    Return the effects of casts on the values of a model whose files are only read.

    :raises ModelFileError: if the values cannot be read.
    """
    from policytool.formats import casting  # imports ml_dtypes

    tensors = {tensor.path: tensor for tensor in document.tensors or ()}
    counts: dict[tuple[str, ...], Counts] = {}
    with format_detection.open_values(source, document) as values:
        for cast in casts:
            blocks = values.blocks(tensors[cast.tensor]) if values is not None else ()
            try:
                for block in blocks:
                    effects = casting.cast(block, cast.before, cast.after, cast.through)[1]
                    earlier = counts.get(cast.tensor)
                    counts[cast.tensor] = effects if earlier is None else earlier + effects
            except ValuesError as error:
                message = f"has values that cannot be read: {error}"
                raise ModelFileError(document.path, "unreadable-values", message) from error
    return counts


def _overflow_refusal(plan: Plan, counts: Mapping[tuple[str, ...], Counts]) -> Refusal:
    """Return the refusal of casts with which finite values become infinite."""
    worst = max(
        plan.casts, key=lambda cast: counts[cast.tensor].overflow if cast.tensor in counts else 0
    )
    most = counts[worst.tensor].overflow
    total = sum(count.overflow for count in counts.values())
    narrow_dtype = worst.through or worst.after
    message = (
        f"{worst.path or 'the optimizer'} has {most} values in "
        f"{'/'.join(worst.tensor)} that overflow {narrow_dtype} and would become infinite "
        f"({total} in total); use mixed_{narrow_dtype} to keep variables in float32, or "
        "--allow overflow to write infinities"
    )
    return Refusal(code="overflow", message=message, path=worst.path)
