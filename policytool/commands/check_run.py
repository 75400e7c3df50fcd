"""One run of the reference and of the candidate, in the child process, with what it shows."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from policytool.commands.check_jobs import check_job, graph_job
from policytool.migration.planning.options import Options, Outputs
from policytool.numerics import check_sides
from policytool.numerics.check_results.checks import Check, CheckNote, CheckSide
from policytool.numerics.verdicts import answers, recorded_training, regressions
from policytool.numerics.verdicts.file_names import answered_file_paths
from policytool.numerics.verdicts.safety import Rule
from policytool.releases import dtypes
from policytool.support import steps
from policytool.support.errors import ModelFileError, UsageError, WorkerError
from policytool.support.files import opening
from policytool.support.processes import crash_guard

if TYPE_CHECKING:
    from collections.abc import Mapping

    from policytool.commands.check_options import CheckOptions
    from policytool.formats.discovery import Input
    from policytool.model.loaded_model import LoadedModel
    from policytool.model.model import Layer
    from policytool.numerics.check_sides import CheckSource, PreparedSide
    from policytool.numerics.hand_over import HandOver
    from policytool.numerics.tensorflow_run import TensorFlowTools

FLOAT32: Final = "float32"
FLOAT64: Final = "float64"

_NO_CODE: Final = frozenset(
    {"no-class", "not-loadable", "not-buildable", "not-restored", "no-config"}
)
"""Why a SavedModel cannot be rebuilt; it still runs as a graph."""

_LOST: Final = "could not be checked: the worker process {how}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """A check, and its candidate before and after its policies were changed."""

    check: Check
    source: LoadedModel | None
    """The model that the candidate was planned from; None for a graph."""

    candidate: LoadedModel | None
    """None for a graph."""


def measure(
    model: Input,
    other: Input | None,
    wanted: CheckOptions,
    tools: TensorFlowTools,
    hand_over: HandOver,
) -> Measured:
    """
    Return what one run of both models shows.

    :param hand_over: whose copies are run; several runs with the same have the same bytes
    :raises ModelFileError: for what cannot be read, changed or run.
    :raises UsageError: for options that contradict the model or each other.
    :raises WorkerError: where the child process cannot do it.
    """
    with steps.budget(model.display_path):
        return _measure(model, other, wanted, tools, hand_over)


def _measure(
    model: Input,
    other: Input | None,
    wanted: CheckOptions,
    tools: TensorFlowTools,
    hand_over: HandOver,
) -> Measured:
    check_readable(wanted)
    if lost := crash_guard.split():
        raise ModelFileError(lost.path, lost.code, lost.message)
    crash_guard.about(model.display_path, _LOST)
    first = check_sides.read_source(model, hand_over)
    crash_guard.about((other or model).display_path, _LOST)
    second = check_sides.read_source(other, hand_over) if other is not None else first
    weights = check_sides.read_weights(wanted.weights, first, second, hand_over=hand_over)
    with hand_over.temporary_folder() as folder:
        reference = reference_options(first, two=other is not None)
        sides = [
            check_sides.prepare_side(
                first,
                reference,
                (hand_over, _make_directory(folder, "reference")),
                weights,
                dequantize=other is None,
            ),
            check_sides.prepare_side(
                second,
                wanted.candidate,
                (hand_over, _make_directory(folder, "candidate")),
                weights,
            ),
        ]
        if other is None:
            _check_differ(model, sides, wanted)
        found = _run((model, other or model), (sides[0], sides[1]), second, wanted, tools)
        found = replace(
            found,
            is_alike=found.is_alike
            and other is None
            and not any(run.rewrite for run in found.runs)
            and _same_policies(*sides),
            comparison=regressions.compare(found, wanted.earlier)
            if wanted.earlier is not None and not any(run.missing for run in found.runs)
            else None,
        )
        return Measured(check=found, source=second.loaded, candidate=sides[1].loaded)


def check_readable(wanted: CheckOptions) -> None:
    """
    Make sure that the child can read the files that it reads, before it takes its seconds to start;
    of a checkpoint the name without its suffix is enough.

    :raises ModelFileError: for what is not there, and for what is no regular file, which the child
        would wait for.
    """
    labels = wanted.metric.labels if wanted.metric is not None else None
    for option, path in (
        ("--inputs", wanted.inputs),
        ("--labels", labels),
        ("--weights", wanted.weights),
    ):
        if (
            not isinstance(path, Path)
            or path.is_dir()
            or path.with_name(f"{path.name}.index").is_file()
        ):
            continue
        try:
            os.close(opening.open_regular(path))
        except FileNotFoundError as error:
            form = " or MODULE:FUNCTION" if option == "--inputs" and ":" in str(path) else ""
            raise ModelFileError(
                str(path), "not-found", f"does not exist; check the path{form} in {option}"
            ) from error
        except OSError as error:
            raise ModelFileError(
                str(path), "unreadable", f"cannot be read for {option}: {error.strerror or error}"
            ) from error


def reference_options(source: CheckSource, *, two: bool) -> Options:
    """
    Return what the reference's policies are to be: float32 for every layer, or float64 where the
    file has that; those of the first of two files stay.
    """
    if source.loaded is None or two:
        return Options()
    widest = (
        FLOAT64
        if any(layer.compute_dtype == FLOAT64 for layer in source.loaded.layers)
        else FLOAT32
    )
    return Options(to=widest, include_exceptions=True, outputs=Outputs.FOLLOW)


def _make_directory(scratch: Path, name: str) -> Path:
    directory = scratch / name
    directory.mkdir()
    return directory


def _check_differ(model: Input, sides: list[PreparedSide], wanted: CheckOptions) -> None:
    """Make sure that there is something to compare."""
    one, other = sides
    if one.is_graph or one.dequantized or not _same_policies(one, other):
        return
    if wanted.candidate.to is None and not wanted.candidate.assignments:
        message = (
            f"{model.display_path} already has the policies of the reference "
            f"({one.policy}) and would be compared with itself; set the policy of the "
            "candidate with --to POLICY"
        )
        raise UsageError(message)


def _same_policies(one: PreparedSide, other: PreparedSide) -> bool:
    policies = [
        [layer.policy for layer in side.loaded.layers] if side.loaded is not None else []
        for side in (one, other)
    ]
    return policies[0] == policies[1]


def _run(
    inputs: tuple[Input, Input],
    sides: tuple[PreparedSide, PreparedSide],
    original: CheckSource,
    wanted: CheckOptions,
    tools: TensorFlowTools,
) -> Check:
    """
    Let the child run both sides, as a graph where their code is not at hand, and judge what it
    measured.
    """
    job = check_job(sides, original, wanted, tools)
    notes: list[CheckNote] = []
    if wanted.gradients and len({side.job.get("family") for side in sides}) > 1:
        raise UsageError(
            "--measure gradients cannot compare "
            f"{' with '.join(found.display_path for found in inputs)}, a Keras 2 model with "
            "a Keras 3 model; check each model separately"
        )
    if any(side.is_graph for side in sides):
        answer = tools.worker.run({**job, **graph_job(inputs, sides, wanted)})
    else:
        try:
            answer = tools.worker.run(job)
        except WorkerError as error:
            if (
                error.code not in _NO_CODE
                or inputs[0] is not inputs[1]
                or sides[1].job["how"] != "rebuilt"
                or wanted.candidate.to is None
            ):
                raise
            notes.append(
                CheckNote(
                    code="graph",
                    message=f"the model runs as the graph in the file, because {error}",
                )
            )
            answer = _run_as_graph(error, {**job, **graph_job(inputs, sides, wanted)}, tools)
    notes += [CheckNote(code=note["code"], message=note["message"]) for note in answer["notes"]]
    notes += (
        _unmeasured_notes(wanted)
        if any(found.get("rewrite") is not None for found in answer["runs"])
        else ()
    )
    runs = answers.runs_from_json(
        [_in_names_of_the_file(run, sides[0]) for run in answer["runs"]],
        wanted.tolerances,
        Rule(
            max_change=wanted.max_change,
            kinds=wanted.output_kinds,
            loss=recorded_training.recorded_training(original.loaded)["loss"]
            if original.loaded is not None
            else None,
        ),
        wanted.metric.max_drop if wanted.metric is not None else None,
    )
    reference, candidate = (
        replace(_side(found, side, library), backend=backend)
        for found, side, library, backend in zip(
            inputs, sides, answer["libraries"], answer["backends"], strict=True
        )
    )
    return Check(
        reference=reference,
        candidate=candidate,
        versions=answer["versions"],
        runs=runs,
        notes=tuple(notes),
        is_alike=not answer["unquantized"],
    )


def _in_names_of_the_file(run: Mapping[str, Any], side: PreparedSide) -> Mapping[str, Any]:
    """Return what the child measured, with the paths of layers that the reference's file has."""
    if side.loaded is None or not run["calls"] or not run["calls"][-1]["is_model"]:
        return run
    paths = answered_file_paths(run["calls"], side.loaded)
    if not paths:
        return run
    probe = run.get("overflow_probe")
    return {
        **run,
        "calls": [{**call, "path": paths.get(call["path"], call["path"])} for call in run["calls"]],
        **{
            key: [{**one, "layer": paths.get(one["layer"], one["layer"])} for one in run[key]]
            for key in ("missing", "fallbacks")
        },
        **{key: [paths.get(one, one) for one in run[key]] for key in ("unmatched", "random")},
        "overflow_probe": probe and {**probe, "path": paths.get(probe["path"], probe["path"])},
    }


def _run_as_graph(
    error: WorkerError, job: Mapping[str, Any], tools: TensorFlowTools
) -> Mapping[str, Any]:
    """
    Return what the child makes of a job in place of one that failed.

    :raises WorkerError: where this one fails too, with what kept the first from being done.
    """
    try:
        return tools.worker.run(job)
    except WorkerError as other:
        raise WorkerError(
            other.code,
            f"{error}; running the model as a graph also failed: {other}",
            details=other.details,
            ended=other.ended,
        ) from other


def _unmeasured_notes(wanted: CheckOptions) -> list[CheckNote]:
    """Return what was asked for and is not measured of a graph."""
    asked = [
        name
        for name, given in (
            ("gradients", wanted.gradients),
            ("timing", wanted.timing),
            ("tf32", wanted.tf32),
        )
        if given
    ]
    return (
        [
            CheckNote(
                code="graph-alone",
                message=f"--measure {' and '.join(asked)} cannot measure a model that runs as a "
                "graph",
            )
        ]
        if asked
        else []
    )


def _side(found: Input, side: PreparedSide, library: str) -> CheckSide:
    layers = side.loaded.layers if side.loaded is not None else ()
    floating = [
        layer
        for layer in layers
        if layer.compute_dtype is None or dtypes.is_float(layer.compute_dtype)
    ]
    plan = side.plan
    return CheckSide(
        path=found.display_path,
        policy=side.policy,
        policies=dict(Counter(_shown_policy(side, layer) for layer in floating)),
        kept={kept.path: kept.reason for kept in plan.kept} if plan is not None else {},
        library=library,
        weights="random" if side.job.get("weights", "") is None else "file",
        written_with=side.loaded.document.writer.backend if side.loaded is not None else None,
        dequantized=side.dequantized,
    )


def _shown_policy(side: PreparedSide, layer: Layer) -> str:
    """Return the policy that a layer runs under."""
    if side.dequantized and layer.quantization is not None:
        return layer.quantization.source
    return layer.policy or "(global)"
