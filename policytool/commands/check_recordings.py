"""
``check --record`` and ``--against``: runs one model, writes what it computed to a file, and
compares it with a recorded run.
"""

from __future__ import annotations

import json
import shlex
import zipfile
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from policytool.commands import check_run, suggested_conversion
from policytool.model.model import verdict_of
from policytool.numerics import check_sides, recordings
from policytool.numerics.check_results.checks import Check, CheckNote, CheckSide, RecordedFile
from policytool.numerics.check_results.verdicts import Answer, JudgementSubject, Ruling
from policytool.numerics.check_sides import CheckSource
from policytool.numerics.recordings import RecordedRun, Recording, changed_weights_words
from policytool.numerics.verdicts import answers
from policytool.numerics.verdicts.safety import MAX_CHANGE
from policytool.numerics.verdicts.tolerances import (
    float32_tolerance,
    grown_tolerances,
    operations_tolerance,
    outputs_tolerance,
    recorded_outputs_tolerance,
)
from policytool.releases.releases import BACKENDS, KERAS2, KERAS3, newest
from policytool.support import steps
from policytool.support.errors import UsageError, WorkerError
from policytool.support.processes import crash_guard
from policytool.support.project import VERSION
from policytool.support.text import codec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from policytool.commands.check_options import CheckOptions
    from policytool.formats.discovery import Input
    from policytool.model.loaded_model import LoadedModel
    from policytool.numerics.check_results.checks import CheckRun
    from policytool.numerics.check_sides import PreparedSide
    from policytool.numerics.hand_over import HandOver
    from policytool.numerics.recordings import CallPair
    from policytool.numerics.tensorflow_run import TensorFlowTools

_UNUSED_MAX_CHANGE: Final = CheckNote(
    code="unused-max-change",
    message="--max-change has no effect: no precision changes, so only rounding is allowed",
)


def run(model: Input, options: CheckOptions, tools: TensorFlowTools, hand_over: HandOver) -> Check:
    """
    Return the result of a run that is recorded, compared with a recorded run, or both.

    :raises UsageError: if the file of the recording exists.
    :raises ModelFileError: if a file cannot be read, run or written.
    :raises WorkerError: if the child process fails.
    """
    check_run.check_readable(options)
    if options.record is not None and options.record.exists():
        raise UsageError(
            f"--record {options.record} already exists; remove it, or record in another file"
        )
    reference = recordings.read(options.against) if options.against is not None else None
    with steps.budget(model.display_path), hand_over.temporary_folder() as folder:
        crash_guard.set_next_file(model.display_path, check_run.LOST)
        lite = hand_over.take_lite(model.local_path, model.display_path) if reference else None
        if lite is not None:
            source = CheckSource(input=model, copy=lite)
            check_run.fit_release(tools, source)
            side = check_sides.lite_side(source, options.candidate)
        else:
            source = check_sides.read_source(model, hand_over)
            check_run.fit_release(tools, source)
            weights = check_sides.read_weights(options.weights, source, hand_over=hand_over)
            side = check_sides.prepare_side(source, options.candidate, (hand_over, folder), weights)
        answer = _answer((model, source, side), options, tools, reference, folder)
        recording = _recording((model, source, side), options, answer, folder)
    check = Check(
        reference=recording.run.side,
        candidate=recording.run.side,
        versions=recording.run.versions,
        runs=(),
        recording=_write(options.record, recording) if options.record is not None else None,
        connected_layers=source.loaded.connected_layers if source.loaded is not None else (),
    )
    if reference is None:
        return replace(check, runs=_runs(recordings.recorded_run(recording), source, options))
    pairs = recordings.pair_calls(reference.run, recording.run)
    if not recording.run.calls:
        options = _with_recorded_tolerance(reference, answer["compared"], source, options)
    answered = recordings.compared_run(reference, recording, pairs, answer["compared"])
    (compared,) = _runs(answered, source, options)
    check = replace(check, reference=reference.run.side, against=str(options.against))
    changed = (
        recordings.changed_weights(reference.run, recording.run, pairs)
        if check.keeps_precision
        else None
    )
    compared = replace(
        compared,
        origin=recordings.origin(compared, pairs, changed or ()),
        changed_weights=changed,
    )
    explained = _explained_error(compared, (reference.run, recording.run))
    if explained is not None:
        (judged,) = _runs(answered, source, _with_explained(options, explained))
        compared = replace(compared, verdict=judged.verdict)
    check = replace(
        check,
        runs=(_with_changes(compared) if check.keeps_precision else compared,),
        notes=(
            *_about_library(source, reference.run.side, recording.run.side),
            *_notes(reference.run, pairs),
        ),
    )
    if check.keeps_precision and options.max_change != MAX_CHANGE:
        check = replace(check, notes=(*check.notes, _UNUSED_MAX_CHANGE))
    return _with_quiet_origin(check) if check.is_equal else check


def _explained_error(compared: CheckRun, runs: tuple[RecordedRun, RecordedRun]) -> float | None:
    """
    Return the error of the outputs that rounding explains; None if the dtypes of the layers say
    nothing else than in every check.

    With other weights, rounding explains only what it does in float32: the same kernels round equal
    values to equal values, also to 16 bits.
    """
    calls = compared.calls
    has_weights = compared.changed_weights is None
    if not calls:
        groups = [
            [group if has_weights else replace(group, dtype="float32") for group in run.rounding]
            for run in runs
        ]
        return max(map(operations_tolerance, groups)) if any(groups) else None
    if not has_weights:
        return float32_tolerance(calls)
    if compared.origin is None:  # rounding explains the errors of all layers
        return max(grown_tolerances(calls))
    return recorded_outputs_tolerance(calls)


def _with_changes(compared: CheckRun) -> CheckRun:
    """Return a run whose outputs with too many changed predictions do not pass."""
    changed = {answer.name for answer in compared.answers if answer.answer is Answer.NOT_SAFE}
    judgements = tuple(
        replace(judgement, ruling=Ruling.CHANGED)
        if judgement.about is JudgementSubject.OUTPUT
        and judgement.path in changed
        and not judgement.is_missed
        else judgement
        for judgement in compared.verdict.judgements
    )
    return replace(compared, verdict=replace(compared.verdict, judgements=judgements))


def _with_recorded_tolerance(
    reference: Recording,
    compared: Sequence[Mapping[str, Any]],
    source: CheckSource,
    options: CheckOptions,
) -> CheckOptions:
    """Return options in which rounding explains what it does in the layers of a recorded run."""
    pairs = recordings.pair_calls(reference.run, reference.run)
    layered = recordings.compared_run(reference, reference, pairs, compared)
    (run,) = _runs(layered, source, options)
    return _with_explained(options, outputs_tolerance(run.calls))


def _with_explained(options: CheckOptions, error: float) -> CheckOptions:
    """Return options in which rounding explains an error of the outputs."""
    return replace(options, tolerances=replace(options.tolerances, explained=error))


def _with_quiet_origin(check: Check) -> Check:
    """Return a check whose outputs are equal, with a note instead of the origin of an error."""
    (compared,) = check.runs
    origin = compared.origin
    if compared.changed_weights is not None:
        words = changed_weights_words(compared.changed_weights)
        note = CheckNote(code="weights-differ", message=f"{words}, but the outputs are equal")
        check = replace(check, notes=(*check.notes, note))
    if origin is None:
        return check
    message = (
        f"the outputs are equal, but layer {origin.path} ({origin.class_name}) returns values that "
        "differ by more than rounding explains"
    )
    return replace(
        check,
        runs=(replace(compared, origin=None),),
        notes=(*check.notes, CheckNote(code="layer-differs", message=message)),
    )


def _runs(
    answer: Mapping[str, Any], source: CheckSource, options: CheckOptions
) -> tuple[CheckRun, ...]:
    """Return the measurements and verdicts of a run."""
    return answers.runs_from_json(
        [answer], options.tolerances, check_run.safety_rule(source, options)
    )


def _answer(
    subject: tuple[Input, CheckSource, PreparedSide],
    options: CheckOptions,
    tools: TensorFlowTools,
    reference: Recording | None,
    folder: Path,
) -> Mapping[str, Any]:
    """Return the answer of the child process, which writes its arrays to the folder."""
    _, source, side = subject
    job = check_run.check_job((side, side), source, options, tools)
    job |= {
        "job": "record",
        "arrays": str(folder / "arrays.npz"),
        "all": options.record_all,
        "outputs": None,
        "inputs": {**job["inputs"], "extremes": False},
    }
    if reference is not None:
        job |= _reference_job(reference, job["inputs"], folder)
    if side.is_graph:
        return tools.worker.run({**job, **_graph_job(source)})
    try:
        return tools.worker.run(job)
    except WorkerError as error:
        if error.code not in check_run.NO_CODE or side.job["how"] != "rebuilt":
            raise
        return check_run.run_as_graph(error, {**job, **_graph_job(source)}, tools)


def _graph_job(source: CheckSource) -> dict[str, Any]:
    """Return the part of a job that runs the graph of a SavedModel."""
    side = {"how": check_sides.GRAPH, "path": source.copy, "family": KERAS2, "policy": None}
    return {"reference": side, "candidate": side}


def _reference_job(reference: Recording, inputs: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return the part of a job with the inputs and outputs of a recorded run, written to files."""
    recorded = reference.run.inputs
    arrays = reference.numbered("inputs")
    save_arrays(
        folder / "inputs.npz",
        {entry.name: arrays[str(place)] for place, entry in enumerate(recorded.inputs)},
    )
    save_arrays(folder / "outputs.npz", reference.numbered("outputs"))
    return {
        "inputs": {
            **inputs,
            "file": str(folder / "inputs.npz"),
            "batch_size": recorded.batch_size,
            "like": [{"name": entry.name, "dtype": entry.dtype} for entry in recorded.inputs],
        },
        "outputs": {
            "file": str(folder / "outputs.npz"),
            "outputs": [
                {"name": output.name, "dtype": output.dtype} for output in reference.run.outputs
            ],
        },
    }


def save_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Save arrays like ``numpy.savez``, which does not accept every name."""
    import numpy as np  # the import takes 70 ms

    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, array, allow_pickle=False)


def _recording(
    subject: tuple[Input, CheckSource, PreparedSide],
    options: CheckOptions,
    answer: Mapping[str, Any],
    folder: Path,
) -> Recording:
    """Return the recording of a run, with the layer paths of the file."""
    import numpy as np

    model, _, side = subject
    answer = check_run.with_file_paths(
        {**answer, "missing": [], "fallbacks": [], "unmatched": []}, side
    )
    described = check_run.side_of_check(model, side, answer["library"])
    with np.load(folder / "arrays.npz", allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files}
    side_json = json.loads(codec.encode(replace(described, backend=answer["backend"])))
    run_of_answer = codec.read(
        RecordedRun, {**answer, "tool": VERSION, "seed": options.seed, "side": side_json}
    )
    return Recording(run=run_of_answer, arrays=arrays)


def _write(path: Path, recording: Recording) -> RecordedFile:
    """Write a recording, and return its description."""
    recordings.write(path, recording)
    return RecordedFile(
        file=str(path),
        bytes=path.stat().st_size,
        rows=len(next(iter(recording.numbered("inputs").values()))),
        calls=len(recording.run.calls),
    )


_WITHOUT_WEIGHTS: Final = (
    "an older release of policytool recorded the run, without hashes of the weights; record it "
    "again to find changed weights whose effect is like rounding"
)


def _about_library(
    source: CheckSource, reference: CheckSide, candidate: CheckSide
) -> Iterator[CheckNote]:
    """Yield a note if another release than the recorded one ran a file, but not Keras 3."""
    library = candidate.library
    is_upgrade = library != reference.library and library.startswith("tf_keras ")
    if source.loaded is None or not is_upgrade:
        return
    path = source.input.display_path
    message = f"{path} is a Keras 2 file, so it ran in {library}; this says nothing about Keras 3"
    arguments = _conversion(source, source.loaded)
    if arguments is not None:
        command = shlex.join(("policytool", "migrate", path, *arguments))
        message += (
            f". To test it in Keras 3, run `{command}`, and compare the result with the recorded "
            "run"
        )
    yield CheckNote(code="not-keras3", message=message)


def _conversion(source: CheckSource, loaded: LoadedModel) -> tuple[str, ...] | None:
    """Return the arguments of ``migrate`` for the newest Keras; None if no conversion is known."""
    verdict = verdict_of(loaded.model.loaders, newest(KERAS3).id)
    if verdict is not None and verdict.reason is None:
        return ("--target", KERAS3)
    fix = suggested_conversion.fix_for_newest(loaded, source.input)
    return fix.arguments if fix is not None and fix.arguments else None


def _notes(reference: RecordedRun, pairs: Sequence[CallPair]) -> list[CheckNote]:
    """Return notes about the recorded run, and the first layer that computes in another dtype."""
    device = reference.device
    device_words = f"{device.name} ({device.model})" if device.model else device.name
    backend = reference.side.backend
    libraries = (
        f"{BACKENDS[backend]} {reference.versions.get(backend)} and {reference.side.library}"
    )
    lacks_weights = all(first.weights is None for first, _ in pairs) and any(
        second.weights is not None for _, second in pairs
    )
    texts = [
        *([_WITHOUT_WEIGHTS] if lacks_weights else []),
        f"the reference was recorded with {libraries} on {device_words}",
        *recordings.dtype_changes(pairs),
    ]
    return [CheckNote(code="recorded", message=text) for text in texts]
