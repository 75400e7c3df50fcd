"""The directories and names of migrated files."""

from __future__ import annotations

import os
from codecs import BOM_UTF8
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from policytool.formats import SUFFIXES, format_detection, tfjs
from policytool.formats.discovery import display_path
from policytool.model.compatibility import file_names
from policytool.releases.releases import TFJS, release_name
from policytool.support import limits
from policytool.support.errors import UsageError
from policytool.support.files import opening
from policytool.support.files.atomic import ASIDE
from policytool.support.files.remote_path import AnyPath, RemotePath, from_text
from policytool.support.text import jsontext

if TYPE_CHECKING:
    from collections.abc import Sequence

    from policytool.commands.arguments.declaration import StrPath
    from policytool.formats.discovery import Input
    from policytool.migration.plan import Plan

CONTAINERS: Final = ("h5", "keras", "json", TFJS)
"""The file formats in which conversions write models."""

_SUFFIXES: Final = {**SUFFIXES, TFJS: ()}
"""The suffixes of converted models: a new model for TensorFlow.js is a directory."""


class Destination(Struct, frozen=True, kw_only=True):
    """The options that determine the outputs."""

    output: AnyPath | None = None
    """``-o``: a file, or a directory for any number of outputs; either can be remote."""

    is_directory: bool = False
    """Whether ``output`` names a directory that may not exist yet: ``-o DIR/``."""

    in_place: bool = False
    backup: bool = True
    overwrite: bool = False
    skip_existing: bool = False
    """Whether to skip inputs whose outputs exist."""

    allow_overflow: bool = False
    write: bool = True
    """False for ``--preview``."""

    is_private: bool = False
    """Whether ``output`` is a temporary directory that only this process reads."""


def output_of(output: StrPath | None) -> tuple[AnyPath | None, bool]:
    """
    Return the path of ``-o``, and whether it must be a directory because it ends with a slash.

    :raises UsageError: for ``-``, which means stdout.
    """
    if output is None:
        return None, False
    text = os.fspath(output)
    if text == "-":
        raise UsageError(
            "-o - is not supported: models cannot be written to stdout; specify a file or a "
            "directory"
        )
    return from_text(text), text.endswith(("/", os.sep))


def default_name(source: AnyPath, suffix: str, container: str | None = None) -> str:
    """
    Return the default name of an output, which is written next to its input. For example,
    ``model.h5`` becomes ``model.mixed_bfloat16.h5``, and a SavedModel ``v1.2`` becomes
    ``v1.2.migrated``.

    :param container: the file format that determines the suffix of the name; None to keep the
        suffix
    """
    directory = opening.is_directory(source)
    if container is not None:
        suffixes = _SUFFIXES[container]
        ending = source.suffix if source.suffix in suffixes else "".join(suffixes[:1])
        return f"{source.name if directory else source.stem}.{suffix}{ending}"
    if directory:
        return f"{source.name}.{suffix}"
    return f"{source.stem}.{suffix}{source.suffix}"


def target_of(
    source: AnyPath,
    suffix: str,
    destination: Destination,
    *,
    several: bool,
    container: str | None = None,
) -> AnyPath:
    """
    Return the path of the output for an input.

    :param several: whether the run has several inputs
    :param container: the result of :func:`container_to_name`
    :raises UsageError: if the output is a file, but the run has several inputs.
    """
    if destination.in_place:
        return source
    if destination.output is None:
        return source.with_name(default_name(source, suffix, container))
    output = destination.output
    if _is_directory(destination, output) and not format_detection.is_model(output):
        if container is not None and source.suffix not in _SUFFIXES[container]:
            return output / default_name(source, suffix, container)
        target = output / source.name
        return (
            output / default_name(source, suffix, container) if _is_same(target, source) else target
        )
    if several:
        raise UsageError(
            f"-o {display_path(output)} is not a directory, but there are several inputs; use "
            f"-o {display_path(output)}/ for a directory"
        )
    return output


def container_to_name(plan: Plan, source: AnyPath) -> str | None:
    """
    Return the file format that determines the suffix of the output: that of a converted model, or
    of an edited file that Keras does not load under the suffix of its input. None if the output
    keeps this suffix.
    """
    if plan.conversion is not None:
        return plan.written_format
    name = source.name
    is_directory = opening.is_directory(source)
    loadable = file_names.loadable_name(name, plan.format, is_directory=is_directory)
    return None if is_directory or loadable == name else plan.format


def without_outputs(inputs: Sequence[Input], suffix: str, destination: Destination) -> list[Input]:
    """
    Return the inputs, except discovered files that have the name of another input's output.
    """
    several = len(inputs) > 1
    kinds = (None, *CONTAINERS)
    outputs = (
        set()
        if destination.in_place
        else {
            _target_or_none(source.path, suffix, destination, several=several, container=kind)
            for source in inputs
            for kind in kinds
        }
    )
    return [source for source in inputs if source.exact or source.path not in outputs]


def output_path(
    source: AnyPath, suffix: str, destination: Destination, *, several: bool
) -> AnyPath | None:
    """
    Return the output for an input that keeps its format, with links resolved; None if there is no
    valid output.
    """
    target = _target_or_none(source, suffix, destination, several=several)
    return None if target is None else _real(target)


def _is_directory(destination: Destination, output: AnyPath) -> bool:
    return opening.is_directory(output) or (
        destination.is_directory and not opening.is_taken(output)
    )


def touched_paths(
    source: AnyPath, suffix: str, destination: Destination, *, several: bool
) -> frozenset[AnyPath]:
    """
    Return the files and directories that are read, written or renamed when an input is rewritten,
    with links resolved; none if nothing is written.
    """
    if not destination.write:
        return frozenset()
    resolved = _real(source)
    paths: set[AnyPath] = set()
    for container in (None, *CONTAINERS):  # the container is known only after the file is read
        target = _target_or_none(source, suffix, destination, several=several, container=container)
        if target is not None:
            place = _real(target)
            backup_place = place.with_name(
                place.name + ASIDE
            )  # a replaced directory has this name temporarily, even without a backup
            shards = (
                {_real(target.with_name(name)) for name in _shards(source)}
                if place.parent != resolved.parent
                else set()
            )
            paths |= {resolved, place, backup_place, *shards}
    return frozenset(paths)


def check_target(plan: Plan, source: AnyPath, target: AnyPath, destination: Destination) -> None:
    """
    Check that the output is not the input, and that its suffix matches its format, because Keras
    selects the reader by the suffix.

    :raises UsageError: if the output is not valid.
    """
    written = plan.written_format
    if destination.in_place:
        if written != plan.format or (plan.conversion is not None and written == TFJS):
            release = plan.conversion.target if plan.conversion is not None else None
            cause = f" because the target is {release_name(release)}" if release is not None else ""
            raise UsageError(
                f"--in-place would change the format of {plan.path} from {plan.format} to "
                f"{written}{cause}; specify the output with -o"
            )
        return
    if _is_same(target, source):
        raise UsageError(
            f"-o {display_path(target)} is the input itself; use --in-place to replace it "
            "and keep a backup"
        )
    formats = {kind for kind, suffixes in SUFFIXES.items() if target.suffix in suffixes}
    if (
        formats
        and written not in formats
        and (target.suffix != source.suffix or plan.conversion is not None)
    ):
        expected = " or ".join(SUFFIXES.get(written, ("without an extension",)))
        raise UsageError(
            f"-o {display_path(target)} would contain {written}, but Keras detects the "
            f"format by the file extension; name it {expected}"
        )


def check_separate_target(target: AnyPath, weights: AnyPath) -> None:
    """
    Check that the output is not the file with the weights of an architecture.

    :raises UsageError: if it is.
    """
    if _is_same(target, weights):
        raise UsageError(
            f"-o {display_path(target)} is the file with the weights; specify another output"
        )


def container_of(output: AnyPath | None) -> str | None:
    """
    Return the file format for conversions that the suffix of an output means; None if it means
    none, or if the output is an existing directory.
    """
    if output is None or opening.is_directory(output):
        return None
    return next((kind for kind in CONTAINERS if output.suffix in _SUFFIXES[kind]), None)


def _target_or_none(
    source: AnyPath,
    suffix: str,
    destination: Destination,
    *,
    several: bool,
    container: str | None = None,
) -> AnyPath | None:
    """Return the output for an input; None if the options do not determine a valid one."""
    try:
        return target_of(source, suffix, destination, several=several, container=container)
    except UsageError:
        return None


def _real(path: AnyPath) -> AnyPath:
    return path if isinstance(path, RemotePath) else Path(os.path.realpath(path))


def _shards(source: AnyPath) -> tuple[str, ...]:
    """
    Return the names of the weights files next to a TensorFlow.js model, which are copied with it.
    Return nothing for other models, and for remote ones, because reading those needs a request.
    """
    if isinstance(source, RemotePath):
        return ()
    try:
        if opening.read_head(source, 64).removeprefix(BOM_UTF8).lstrip()[:1] != b"{":
            return ()
        return tfjs.shards(jsontext.parse(opening.read_bounded(source, limits.JSON_BYTES))[0])
    except (OSError, jsontext.JsonError):  # reading the model will report the error
        return ()


def _is_same(first: AnyPath, second: AnyPath) -> bool:
    if isinstance(first, RemotePath) or isinstance(second, RemotePath):
        return first == second
    return first.exists() and first.samefile(second)
