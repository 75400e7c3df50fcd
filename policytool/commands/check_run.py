"""Runs the reference and the candidate once in the child process, and returns the measurements."""

from __future__ import annotations

import os
import re
import shlex
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from policytool.formats import keras_hub
from policytool.formats.keras_archive import TASK
from policytool.migration.planning.options import QUANTIZATIONS, Options, Outputs
from policytool.model import custom_classes, untrusted_code
from policytool.numerics import check_sides
from policytool.numerics.check_results.checks import Check, CheckNote, CheckSide
from policytool.numerics.check_sides import UserFunction
from policytool.numerics.environments import best_release, release_of
from policytool.numerics.verdicts import answers
from policytool.numerics.verdicts.answers import answered_file_paths
from policytool.numerics.verdicts.safety import SafetyRule
from policytool.releases.dtypes import HALVES
from policytool.releases.policy import GLOBAL_SOURCE, policy_from_name
from policytool.releases.releases import KERAS2, family_of, release_name
from policytool.support import limits, steps
from policytool.support.errors import ModelFileError, UsageError, WorkerError
from policytool.support.files import opening
from policytool.support.processes import crash_guard

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from policytool.commands.check_options import CheckOptions
    from policytool.formats.discovery import Input
    from policytool.model.loaded_model import LoadedModel
    from policytool.model.model import Layer
    from policytool.numerics.check_sides import CheckSource, PreparedSide
    from policytool.numerics.hand_over import HandOver
    from policytool.numerics.tensorflow_run import TensorFlowTools
    from policytool.numerics.verdicts.task_metric import MetricOptions


def check_job(
    sides: tuple[PreparedSide, PreparedSide],
    original: CheckSource,
    options: CheckOptions,
    tools: TensorFlowTools,
) -> dict[str, Any]:
    """
    Return the job that runs both models.

    :param original: the file of the candidate, before its policies are changed
    """
    sites = [site for side in sides if side.loaded is not None for site in side.loaded.sites]
    return {
        "job": "check",
        "reference": sides[0].job,
        "candidate": sides[1].job,
        "inputs": _inputs_job(options),
        "metric": _metric_job(options.metric) if options.metric is not None else None,
        "isolated": options.isolated,
        "gradients": {**check_sides.recorded_training(original.loaded), "seed": options.seed}
        if options.gradients and original.loaded is not None
        else None,
        "timing": options.timing,
        "tf32": options.tf32,
        "exponents": options.exponents,
        "diagnosis": options.diagnosis,
        "sensitivity": options.sensitivity,
        "overflow_probe": options.probes_overflow,
        "deterministic": options.deterministic,
        "device": options.device,
        "custom_objects": list(tools.custom_objects),
        "path": _module_path(options, tools),
        "registered": custom_classes.names(sites),
        "needed": []
        if tools.trust
        else sorted(
            {
                name
                for side in sides
                if side.loaded is not None
                for name in untrusted_code.needed_names(side.loaded)
            }
        ),
        "trust": tools.trust,
    }


def _inputs_job(options: CheckOptions) -> dict[str, Any]:
    """Return the part of a job that describes the inputs."""
    is_function = isinstance(options.inputs, UserFunction)
    bounds = {"batches": limits.INPUT_BATCHES, "bytes": limits.INPUT_BYTES}
    return {
        "file": str(options.inputs.resolve()) if isinstance(options.inputs, Path) else None,
        "function": str(options.inputs) if is_function else None,
        "directory": str(Path.cwd()),
        "most": {
            **{name: bound.value for name, bound in bounds.items()},
            **{
                f"beyond_{name}": f"{bound.exceeded_message(bound.value + 1, counting=True)}, or "
                "use fewer batches with --batches"
                for name, bound in bounds.items()
            },
        },
        "extremes": options.inputs is None,
        "batches": options.batches,
        "batch_size": options.batch_size,
        "seed": options.seed,
    }


def _metric_job(task_metric: MetricOptions) -> dict[str, Any]:
    """Return the part of a job that describes the metric of the task."""
    is_function = isinstance(task_metric.metric, UserFunction)
    return {
        "labels": str(task_metric.labels.resolve()) if task_metric.labels is not None else None,
        "name": None if is_function else task_metric.metric,
        "function": str(task_metric.metric) if is_function else None,
        "directory": str(Path.cwd()),
    }


def _module_path(options: CheckOptions, tools: TensorFlowTools) -> list[str]:
    """Return the directories in which the child finds the user's modules."""
    functions = [options.inputs, options.metric.metric if options.metric is not None else None]
    directories = (
        [str(Path.cwd())]
        if any(isinstance(candidate, UserFunction) for candidate in functions)
        else []
    )
    return [*dict.fromkeys([*tools.path, *directories])]


def graph_job(
    inputs: tuple[Input, Input], sides: tuple[PreparedSide, PreparedSide], options: CheckOptions
) -> dict[str, Any]:
    """
    Return the part of a job that describes a model that runs as a graph: the candidate is
    TensorFlow's rewrite of the whole graph.

    :raises ModelFileError: if one of two models runs as a graph.
    :raises UsageError: if no policy is set, or if options are about layers, which a graph lacks.
    """
    if inputs[0] is not inputs[1]:
        graph_input = inputs[0] if sides[0].is_graph else inputs[1]
        message = (
            "contains only a graph and no Keras model, so it can only be compared with "
            "TensorFlow's rewrite of the graph; use --to mixed_bfloat16"
        )
        raise ModelFileError(graph_input.display_path, "graph", message)
    if options.candidate.to is None:
        raise UsageError(
            f"{inputs[0].display_path} runs as a graph, to which the policies of the file "
            "do not apply; set a policy with --to mixed_bfloat16 or --to mixed_float16"
        )
    if options.candidate.assignments:
        raise UsageError(
            f"{inputs[0].display_path} runs as a graph, which TensorFlow rewrites as a "
            "whole; --set applies only to layers"
        )
    if options.metric is not None:
        raise UsageError(
            f"{inputs[0].display_path} runs as a graph, for which --metric is not available"
        )
    side = {"how": check_sides.GRAPH, "path": sides[0].job["path"], "family": KERAS2}
    return {"reference": side, "candidate": {**side, "policy": options.candidate.to}}


FLOAT64: Final = "float64"

NO_CODE: Final = frozenset(
    {"no-class", "not-loadable", "not-buildable", "not-restored", "no-config"}
)
"""Why a SavedModel cannot be rebuilt; it still runs as a graph."""

_OF_ARRAYS: Final = {
    "--inputs": ("inputs-file", "an input of the model"),
    "--labels": ("labels-file", "an output of the model"),
}
"""The options that name files with arrays: the code of the error, and what an array belongs to."""

_ARRAYS: Final = (b"PK", b"\x93NUMPY")
"""The first bytes of files with arrays, which :mod:`policytool.runtime.feeding` also checks."""

LOST: Final = "could not be checked: the worker process {how}"


class MeasuredCheck(Struct, frozen=True, kw_only=True):
    """A check, and its candidate before and after its policies were changed."""

    check: Check
    source: CheckSource
    """The file of the candidate, before its policies were changed."""

    candidate: LoadedModel | None
    """The model after its policies were changed; None for a graph."""


def measure(
    model: Input,
    other: Input | None,
    options: CheckOptions,
    tools: TensorFlowTools,
    hand_over: HandOver,
) -> MeasuredCheck:
    """
    Return the result of one run of both models.

    :param hand_over: creates the copies to run; runs with the same one use the same copies
    :raises ModelFileError: if a file cannot be read, changed or run.
    :raises UsageError: if options contradict the model or each other.
    :raises WorkerError: if the child process fails.
    """
    with steps.budget(model.display_path):
        return _measure(model, other, options, tools, hand_over)


def _measure(
    model: Input,
    other: Input | None,
    options: CheckOptions,
    tools: TensorFlowTools,
    hand_over: HandOver,
) -> MeasuredCheck:
    """Run both models in the child process, and return the measurements with the sources."""
    check_readable(options)
    if lost_file := crash_guard.split():
        raise lost_file
    crash_guard.set_next_file(model.display_path, LOST)
    policies = (None,) if other is not None else ("float32", options.candidate.to)
    first = check_sides.read_source(model, hand_over, policies)
    crash_guard.set_next_file((other or model).display_path, LOST)
    second = check_sides.read_source(other, hand_over) if other is not None else first
    fit_release(tools, second, first)
    weights = check_sides.read_weights(options.weights, first, second, hand_over=hand_over)
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
                options.candidate,
                (hand_over, _make_directory(folder, "candidate")),
                weights,
            ),
        ]
        if other is None:
            _check_differ(model, sides, options)
        check = _run((model, other or model), (sides[0], sides[1]), second, options, tools)
        check = replace(
            check,
            notes=(*check.notes, *_task_notes(model, *([other] if other is not None else []))),
            is_same_model=check.is_same_model
            and other is None
            and not any(run.rewrite for run in check.runs)
            and _have_same_policies(*sides),
        )
        return MeasuredCheck(check=check, source=second, candidate=sides[1].loaded)


def _task_notes(*inputs: Input) -> Iterator[CheckNote]:
    """Yield a note for each preset with a task, of which only the backbone runs."""
    for model in inputs:
        path = model.local_path
        if keras_hub.is_preset(path) and (path / TASK).exists():
            message = (
                f"only the backbone of {model.display_path} was run, without the layers that "
                "its task adds"
            )
            yield CheckNote(code="backbone", message=message)


def fit_release(tools: TensorFlowTools, *sources: CheckSource) -> None:
    """
    Use the release that fits the models best, if the user left the choice to the files.

    :raises UsageError: if the user chose a release of the other library than that of a model.
    """
    models = [source.loaded for source in sources if source.loaded is not None]
    tools.worker.fit(lambda: best_release(*models))
    release = release_of(tools.worker.python)
    for source in sources:
        if release and source.loaded is not None and source.loaded.family != family_of(release):
            name, path = release_name(release), source.input.display_path
            library = "Keras 2" if source.loaded.family == KERAS2 else "Keras 3"
            raise UsageError(
                f"{path} is a {library} file, which check does not run in {name}; to test it in "
                f"{name}, run `policytool migrate {path} --target {release}`, and check the result"
            )


def check_readable(options: CheckOptions) -> None:
    """
    Check that the child process can read the files in the options, before it starts, which takes
    seconds. A checkpoint may be named without its suffix.

    :raises ModelFileError: if a file does not exist, is not a regular file, which could block the
        child process, or contains no arrays of NumPy although it must.
    """
    labels = options.metric.labels if options.metric is not None else None
    for option, path in (
        ("--inputs", options.inputs),
        ("--labels", labels),
        ("--weights", options.weights),
        ("--against", options.against),
    ):
        if isinstance(path, Path) and option in _OF_ARRAYS:
            path = check_sides.array_file(path)  # noqa: PLW2901  # messages name the file
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
        if option in _OF_ARRAYS and not opening.read_head(path, len(_ARRAYS[1])).startswith(
            _ARRAYS
        ):
            code, name = _OF_ARRAYS[option]
            raise ModelFileError(
                str(path),
                code,
                f"is neither an .npz nor an .npy file; for {option}, write the rows in Python with "
                f"numpy.savez('data.npz', NAME=rows), in which NAME is the name of {name}",
            )


def reference_options(source: CheckSource, *, two: bool) -> Options:
    """
    Return the options that set the policies of the reference: float32 for all layers, or float64 if
    a layer of the file computes in float64.

    :param two: whether the check compares two files; the first then keeps its policies
    """
    if source.loaded is None or two:
        return Options()
    widest = (
        FLOAT64
        if any(layer.compute_dtype == FLOAT64 for layer in source.loaded.layers)
        else "float32"
    )
    return Options(to=widest, include_exceptions=True, outputs=Outputs.FOLLOW)


def _make_directory(scratch: Path, name: str) -> Path:
    directory = scratch / name
    directory.mkdir()
    return directory


def _check_differ(model: Input, sides: list[PreparedSide], options: CheckOptions) -> None:
    """
    Check that the reference and the candidate differ.

    :raises UsageError: if they have the same policies, and the user set none.
    """
    reference, candidate = sides
    if reference.is_graph or reference.dequantized or not _have_same_policies(reference, candidate):
        return
    if options.candidate.to is None and not options.candidate.assignments:
        message = (
            f"{model.display_path} already has the policies of the reference "
            f"({reference.policy}) and would be compared with itself; set the policy of the "
            "candidate with --to POLICY"
        )
        raise UsageError(message)


def _have_same_policies(reference: PreparedSide, candidate: PreparedSide) -> bool:
    policies = [
        [layer.policy for layer in side.loaded.layers] if side.loaded is not None else []
        for side in (reference, candidate)
    ]
    return policies[0] == policies[1]


def _run(
    inputs: tuple[Input, Input],
    sides: tuple[PreparedSide, PreparedSide],
    original: CheckSource,
    options: CheckOptions,
    tools: TensorFlowTools,
) -> Check:
    """
    Run both sides in the child process, and return the measurements and verdicts. If the code of a
    SavedModel's classes is not available, run it as a graph.
    """
    job = check_job(sides, original, options, tools)
    if options.gradients and len({side.job.get("family") for side in sides}) > 1:
        raise UsageError(
            "--measure gradients cannot compare "
            f"{' with '.join(model.display_path for model in inputs)}, a Keras 2 model with "
            "a Keras 3 model; check each model separately"
        )
    answer, notes = _answer(job, inputs, sides, options, tools)
    notes += [CheckNote(code=note["code"], message=note["message"]) for note in answer["notes"]]
    if any(run.get("rewrite") is not None for run in answer["runs"]):
        notes += _unmeasured_notes(options)
    runs = answers.runs_from_json(
        [with_file_paths(run, sides[0]) for run in answer["runs"]],
        options.tolerances,
        safety_rule(original, options),
        options.metric.max_drop if options.metric is not None else None,
    )
    reference, candidate = (
        replace(side_of_check(source, side, library), backend=backend)
        for source, side, library, backend in zip(
            inputs, sides, answer["libraries"], answer["backends"], strict=True
        )
    )
    quantized = answer.get("quantized", ())
    if quantized:
        counts = Counter(candidate.policies)
        counts.subtract(_shown_policies(sides[1], frozenset(quantized)))
        policies = {name: count for name, count in counts.items() if count}
        candidate = replace(
            candidate, policies={**policies, str(options.candidate.to): len(quantized)}
        )
    return Check(
        reference=reference,
        candidate=candidate,
        versions=answer["versions"],
        runs=runs,
        notes=tuple(notes),
        is_same_model=not answer["unquantized"] and not quantized,
        connected_layers=original.loaded.connected_layers if original.loaded is not None else (),
    )


def _answer(
    job: Mapping[str, Any],
    inputs: tuple[Input, Input],
    sides: tuple[PreparedSide, PreparedSide],
    options: CheckOptions,
    tools: TensorFlowTools,
) -> tuple[Mapping[str, Any], list[CheckNote]]:
    """Return the answer of the child process, and a note if it ran the graph in the file."""
    if any(side.is_graph for side in sides):
        return tools.worker.run({**job, **graph_job(inputs, sides, options)}), []
    try:
        return tools.worker.run(job), []
    except WorkerError as error:
        kept = options_to_keep(str(error), sides[1])
        if kept:
            raise WorkerError(
                error.code,
                f"{error}; to keep its layers in float32, use {kept}",
                details=error.details,
            ) from error
        has_graph = inputs[0] is inputs[1] and sides[1].job["how"] == "rebuilt"
        if error.code not in NO_CODE or not has_graph or options.candidate.to is None:
            raise
        message = f"the model runs as the graph in the file, because {error}"
        answer = run_as_graph(error, {**job, **graph_job(inputs, sides, options)}, tools)
        return answer, [CheckNote(code="graph", message=message)]


_FAILED_LAYER: Final = re.compile(r'Op has type .*\(layer "(?P<name>.+)", type (?P<type>\w+)\)')
"""The message of the child process about the layer in which ops have different dtypes."""

_KEPT: Final = 8
"""The maximum number of layers that a suggestion names."""


def options_to_keep(message: str, candidate: PreparedSide) -> str:
    """
    Return the options that keep the layers of a custom class in float32, if the candidate fails to
    load because the class combines dtypes; empty otherwise.
    """
    match = _FAILED_LAYER.search(message)
    if match is None or candidate.loaded is None or candidate.policy is None:
        return ""
    layers = [
        layer
        for layer in candidate.loaded.layers
        if (layer.class_name or "").rpartition(">")[2] == match["type"]
        and layer.policy == candidate.policy
    ]
    is_custom = any(layer.opaque and layer.path.endswith(match["name"]) for layer in layers)
    if not is_custom or len(layers) > _KEPT:
        return ""
    return " ".join(f"--set {shlex.quote(f'{layer.path}=float32')}" for layer in layers)


def safety_rule(original: CheckSource, options: CheckOptions) -> SafetyRule:
    """Return the rule that decides whether predictions changed."""
    loaded = original.loaded
    return SafetyRule(
        max_change=options.max_change,
        kinds=options.output_kinds,
        loss=check_sides.recorded_training(loaded)["loss"] if loaded is not None else None,
    )


def with_file_paths(run: Mapping[str, Any], side: PreparedSide) -> Mapping[str, Any]:
    """Return the run with its layer paths replaced by those in the reference's file."""
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
            key: [
                {**entry, "layer": paths.get(entry["layer"], entry["layer"])} for entry in run[key]
            ]
            for key in ("missing", "fallbacks")
        },
        **{key: [paths.get(path, path) for path in run[key]] for key in ("unmatched", "random")},
        "overflow_probe": probe and {**probe, "path": paths.get(probe["path"], probe["path"])},
    }


def run_as_graph(
    error: WorkerError, job: Mapping[str, Any], tools: TensorFlowTools
) -> Mapping[str, Any]:
    """
    Run a job as a graph, after the run of the rebuilt model failed with ``error``, and return the
    answer.

    :raises WorkerError: if this run fails too; the message contains both errors.
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


def _unmeasured_notes(options: CheckOptions) -> list[CheckNote]:
    """Return a note about the requested measurements that a graph does not support."""
    option_names = [
        name
        for name, is_set in (
            ("gradients", options.gradients),
            ("timing", options.timing),
            ("tf32", options.tf32),
        )
        if is_set
    ]
    return (
        [
            CheckNote(
                code="graph-alone",
                message=f"--measure {' and '.join(option_names)} cannot measure a model that "
                "runs as a graph",
            )
        ]
        if option_names
        else []
    )


def side_of_check(source: Input, side: PreparedSide, library: str) -> CheckSide:
    """Return the description of a model for reports."""
    layers = side.loaded.computing_layers if side.loaded is not None else ()
    plan = side.plan
    return CheckSide(
        path=source.display_path,
        policy=side.policy,
        policies=dict(Counter(_shown_policy(side, layer) for layer in layers)),
        float32_layers=float32_layers(layers, side.policy),
        kept={kept.path: kept.reason for kept in plan.kept} if plan is not None else {},
        library=library,
        weights="random" if side.job.get("weights", "") is None else "file",
        written_with=side.loaded.document.writer.backend if side.loaded is not None else None,
        dequantized=side.dequantized,
    )


def float32_layers(layers: Iterable[Layer], policy: str | None) -> tuple[str, ...]:
    """Return the layers that compute in float32, if the policy of the others is a 16-bit one."""
    if (
        policy is None
        or policy in QUANTIZATIONS
        or policy_from_name(policy).compute_dtype not in HALVES
    ):
        return ()
    return tuple(layer.path for layer in layers if layer.compute_dtype == "float32")


def _shown_policies(side: PreparedSide, paths: frozenset[str]) -> list[str]:
    """Return the policies that these layers have in the file, for reports."""
    layers = side.loaded.layers if side.loaded is not None else ()
    return [_shown_policy(side, layer) for layer in layers if layer.path in paths]


def _shown_policy(side: PreparedSide, layer: Layer) -> str:
    """Return the policy that a layer runs under, for reports."""
    if side.dequantized and layer.quantization is not None:
        return layer.quantization.source
    return layer.policy or GLOBAL_SOURCE
