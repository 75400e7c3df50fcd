"""
``check --against`` with a range of releases: finds the first release whose predictions differ from
those of a recorded run.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from policytool.commands import tensorflow
from policytool.commands.check import check
from policytool.formats import discovery, format_detection
from policytool.migration.convert import decoding
from policytool.migration.convert.conversion_plan import agreeing_releases
from policytool.model import reading
from policytool.numerics.check_results.checks import CheckNote
from policytool.numerics.environments import environments, release_of
from policytool.numerics.workers import Worker
from policytool.releases import behaviour
from policytool.releases.releases import family_of, release_name
from policytool.support.errors import ModelFileError, UsageError, WorkerError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from policytool.commands.arguments.shared import ProcessArguments, TensorFlowArguments
    from policytool.commands.check_options import CheckOptions
    from policytool.formats.discovery import Input
    from policytool.model.loaded_model import LoadedModel
    from policytool.numerics.check_results.checks import Check

_RANGE: Final = ".."


def release_range(python: str | None) -> tuple[str, ...]:
    """
    Return the releases of a range such as ``keras3.3..keras3.10``, oldest first; empty if a value
    of ``--python`` is no range.

    :raises UsageError: for a release without an environment, and for a range without two releases
        of one family.
    """
    first, separator, last = (python or "").partition(_RANGE)
    if not separator or not first or not last or "/" in first:
        return ()
    ends = [release_of(name) for name in (first, last)]
    known = [*environments()]
    if None in ends or family_of(ends[0] or "") != family_of(ends[1] or ""):
        raise UsageError(
            f"--python {python}: a range has two releases of one library, such as "
            "keras3.3..keras3.10"
        )
    start, end = (known.index(name) for name in ends if name is not None)
    names = tuple(
        name for name in known[start : end + 1] if family_of(name) == family_of(ends[0] or "")
    )
    if len(names) < len(ends):
        raise UsageError(f"--python {python}: the first release must be older than the last")
    return names


def check_range(
    model: Input,
    options: CheckOptions,
    process: ProcessArguments,
    releases: Sequence[str],
    start_worker: Callable[[str], Worker],
) -> Check:
    """
    Return the check against a recorded run in the first release whose predictions differ.

    :param start_worker: returns a worker that runs a release
    :raises UsageError: if the options are not those of a comparison with a recorded run.
    :raises ModelFileError: if the model cannot be read or run.
    :raises WorkerError: if a child process fails.
    """
    if options.against is None or options.record is not None:
        raise UsageError("a range of releases in --python needs --against FILE, without --record")

    def check_in(release: str) -> Check:
        with start_worker(release) as worker:
            return check(model, None, options, tensorflow.tools(process, worker))

    document = format_detection.document(model.local_path, model.display_path)
    loaded = reading.load_model(document) if document.config_part is not None else None
    changing = changing_releases(loaded, releases) if loaded is not None else ()
    return first_differing_check(releases, changing, check_in)


def check_inputs(
    models: Sequence[Input],
    options: CheckOptions,
    process: TensorFlowArguments,
    releases: Sequence[str],
    start_worker: Callable[[str], Worker],
) -> Check:
    """
    Return the check of one or two models: by one child process, or by one for each release of a
    range.

    :param start_worker: returns a worker that runs an interpreter or a release
    :raises UsageError: as :func:`check_range` does.
    :raises ModelFileError: if a model cannot be read or run.
    :raises WorkerError: if a child process fails.
    """
    if releases:
        return check_range(models[0], options, process, releases, start_worker)
    with start_worker(tensorflow.interpreter(process).python) as worker:
        tools = tensorflow.tools(process, worker)
        return check(models[0], models[1] if len(models) > 1 else None, options, tools)


def check_files(
    model: str | Input,
    other: str | Input | None,
    options: CheckOptions,
    process: TensorFlowArguments,
) -> Check:
    """Return the check of one or two models, with child processes for this call only."""
    inputs = [discovery.named_input(path) for path in (model, other) if path is not None]
    interpreter, releases = tensorflow.interpreter(process), release_range(process.python)

    def start_worker(python: str) -> Worker:
        return Worker(replace(interpreter, python=python))

    try:
        return check_inputs(inputs, options, process, releases, start_worker)
    except WorkerError as error:
        error.path = inputs[-1].display_path
        raise


def changing_releases(loaded: LoadedModel, releases: Sequence[str]) -> frozenset[str]:
    """Return the releases that are measured to compute otherwise than the one before."""
    root = decoding.decode(loaded)
    known = behaviour.measured_releases(family_of(releases[0]))
    measured = [name for name in releases if name in known]
    return frozenset(
        after
        for before, after in pairwise(measured)
        if (agreeing := agreeing_releases(root, before)) and after not in agreeing
    )


def first_differing_check(
    releases: Sequence[str], changing: Collection[str], check_in: Callable[[str], Check]
) -> Check:
    """
    Return the check of the first release whose predictions differ; that of the last release if
    they are equal there. A note names the releases. Releases that cannot run the model between the
    first and the last are skipped.

    :param changing: releases that probably differ from the one before; they are tried first
    :param check_in: runs the check in a release
    :raises ModelFileError: if the first or the last release cannot run the model.
    :raises WorkerError: the same, or if its environment cannot be made.
    """
    names, tried = [*releases], [releases[0]]
    differing = check_in(names[0])
    if not differing.is_equal:
        text = f"{release_name(names[0])}, the first release of the range, makes other predictions"
        return _with_notes(differing, text)
    differing = check_in(names[-1])
    tried.append(names[-1])
    if differing.is_equal:
        text = (
            f"{release_name(names[0])} and {release_name(names[-1])} make the recorded predictions"
        )
        return _with_notes(differing, text)
    equal, end, skipped = 0, len(names) - 1, []
    while end - equal > 1:
        place = _next_place(names, equal, end, changing)
        try:
            check = check_in(names[place])
        except (ModelFileError, WorkerError) as error:
            skipped.append(f"{release_name(names[place])} ({error})")
            del names[place]
            end -= 1
            continue
        tried.append(names[place])
        if check.is_equal:
            equal = place
        else:
            end, differing = place, check
    text = (
        f"{release_name(names[end])} is the first release whose predictions differ; "
        f"{release_name(names[equal])} makes the recorded predictions"
    )
    notes = [f"not compared: {', '.join(skipped)}"] if skipped else []
    notes.append(f"releases that ran: {', '.join(map(release_name, tried))}")
    return _with_notes(differing, text, *notes)


def _next_place(names: Sequence[str], equal: int, end: int, changing: Collection[str]) -> int:
    """
    Return the place of the next release to run: next to a change that is measured, or else in the
    middle.
    """
    middle = (equal + end) // 2
    beside = {
        place
        for change in range(equal + 1, end + 1)
        if names[change] in changing
        for place in (change - 1, change)
        if equal < place < end
    }
    return min(beside or {middle}, key=lambda place: (abs(place - middle), place))


def _with_notes(check: Check, *messages: str) -> Check:
    notes = [CheckNote(code="releases", message=message) for message in messages]
    return replace(check, notes=(*check.notes, *notes))
