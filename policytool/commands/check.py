"""``check``: run a model under two policies, or two files, and compare what every layer makes."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from policytool.commands import check_trials
from policytool.commands.check_trials import Budget
from policytool.formats import discovery
from policytool.migration.planning.options import Assignment, Options, Outputs
from policytool.model import custom_classes, untrusted_code
from policytool.numerics import check_sides
from policytool.numerics.check_results.checks import Check, CheckNote, CheckSide
from policytool.numerics.check_results.devices import TensorFlowDevice
from policytool.numerics.check_results.verdicts import Required, Ruling
from policytool.numerics.tensorflow_run import TensorFlowTools
from policytool.numerics.user_functions import UserFunction
from policytool.numerics.verdicts import answers, origins, recorded_training, regressions
from policytool.numerics.verdicts.kept_layers import Choices
from policytool.numerics.verdicts.tolerances import Tolerances
from policytool.numerics.workers import Interpreter, Worker
from policytool.releases import dtypes
from policytool.releases.releases import KERAS2
from policytool.support import limits
from policytool.support.errors import ModelFileError, UsageError, WorkerError
from policytool.support.files import opening
from policytool.support.processes import crash_guard
from policytool.support.text import codec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from policytool.formats.discovery import Input
    from policytool.model.loaded_model import LoadedModel
    from policytool.model.model import Layer
    from policytool.numerics.check_sides import CheckSource, PreparedSide
    from policytool.numerics.verdicts.earlier_reports import EarlierCheck
    from policytool.numerics.verdicts.task_metric import WantedMetric

FLOAT32: Final = "float32"
FLOAT64: Final = "float64"

_NO_CODE: Final = frozenset(
    {"no-class", "not-loadable", "not-buildable", "not-restored", "no-config"}
)
"""Why a SavedModel cannot be built anew; as a graph it still runs."""


_LOST: Final = "could not be checked: the process that read it {how}"


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckOptions:
    """What is asked of a check."""

    candidate: Options = field(default_factory=Options)
    """What the candidate's policies are; nothing for those of the file."""

    reference: str | None = None
    """The policy of the reference; None for float32, or for the first of two files as it is."""

    weights: Path | None = None
    inputs: Path | UserFunction | None = None
    """A file of arrays, or a function that returns batches of them; None for synthetic ones."""

    save_inputs: Path | None = None
    batches: int | None = None
    """How many batches are drawn, one for None, or how many of a function's are used at most."""

    batch_size: int | None = None
    seed: int = 1
    isolated: bool = True
    gradients: bool = False
    timing: bool = False
    tf32: bool = False
    exponents: bool = False
    """Whether the values of each layer are counted by binary exponent, which only HTML shows."""

    diagnosis: bool = False
    """Whether what enters each call, and what its inputs' rounding costs, is measured as well."""

    deterministic: bool = False
    device: str = "auto"
    required: Required = Required.OUTPUTS
    """What must stay within its tolerance."""

    tolerances: Tolerances = field(default_factory=Tolerances)
    metric: WantedMetric | None = None
    """The task's own metric; it needs ``inputs``, because it compares outputs with labels."""

    earlier: EarlierCheck | None = None
    """The earlier check to compare with."""


def check(model: Input, other: Input | None, wanted: CheckOptions, tools: TensorFlowTools) -> Check:
    """
    Return how far the candidate is from the reference: a model under another policy, or a second
    file. A check that fails is run again, to find the origin and the layers to keep in float32.

    :raises ModelFileError: for what cannot be read, changed or run.
    :raises UsageError: for options that contradict the model or each other.
    :raises WorkerError: where the child process cannot do it.
    """
    start = time.monotonic()
    measured = _measure(model, other, wanted, tools)
    found = measured.check
    if found.passed:
        return found
    if not _is_explicable(found):
        return replace(found, runs=tuple(map(origins.with_nan_of_reference, found.runs)))
    plain = replace(
        wanted,
        gradients=False,
        timing=False,
        tf32=False,
        exponents=False,
        save_inputs=None,
        isolated=True,
        diagnosis=True,
    )

    def trial(kept: frozenset[str]) -> Check:
        added = tuple(Assignment(pattern=path, policy=FLOAT32) for path in sorted(kept))
        candidate = replace(plain.candidate, assignments=(*plain.candidate.assignments, *added))
        return _measure(model, other, replace(plain, candidate=candidate), tools).check

    return check_trials.explain(
        found,
        Choices.of(measured.candidate)
        if other is None and measured.candidate is not None
        else None,
        trial,
        Budget(
            trials=check_trials.MOST_TRIALS,
            seconds=check_trials.TIMES * (time.monotonic() - start),
        ),
    )


def _is_explicable(found: Check) -> bool:
    """Return whether layers were measured, and something that was required is outside."""
    return all(run.rewrite is None and not run.missing for run in found.runs) and any(
        run.verdict.is_metric_worse
        or any(one.ruling is not Ruling.NOTHING for one in run.verdict.deciding)
        for run in found.runs
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Measured:
    """A check, and its candidate as it ran."""

    check: Check
    candidate: LoadedModel | None
    """None for a graph."""


def _measure(
    model: Input, other: Input | None, wanted: CheckOptions, tools: TensorFlowTools
) -> _Measured:
    """
    Return what one run of both models shows.

    :raises ModelFileError: for what cannot be read, changed or run.
    :raises UsageError: for options that contradict the model or each other.
    :raises WorkerError: where the child process cannot do it.
    """
    _check_readable(wanted)
    if lost := crash_guard.split():
        raise ModelFileError(lost.path, lost.code, lost.message)
    crash_guard.about(model.display_path, _LOST)
    first = check_sides.read_source(
        model, trust=tools.trust, custom_objects=bool(tools.custom_objects)
    )
    crash_guard.about((other or model).display_path, _LOST)
    second = (
        check_sides.read_source(other, trust=tools.trust, custom_objects=bool(tools.custom_objects))
        if other is not None
        else first
    )
    weights = check_sides.check_weights(wanted.weights, first, second, trust=tools.trust)
    with ExitStack() as stack:
        scratch = Path(
            stack.enter_context(
                tempfile.TemporaryDirectory(prefix="policytool-", ignore_cleanup_errors=True)
            )
        )
        reference = _reference_options(first, wanted, two=other is not None)
        sides = [
            check_sides.prepare_side(
                first,
                reference,
                _make_directory(scratch, "reference"),
                wanted.weights,
                dequantize=other is None,
            ),
            check_sides.prepare_side(
                second, wanted.candidate, _make_directory(scratch, "candidate"), wanted.weights
            ),
        ]
        if other is None:
            _check_differ(model, sides, wanted)
        sides[1] = replace(sides[1], files=(*sides[1].files, *weights))
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
        return _Measured(check=found, candidate=sides[1].loaded)


def check_files(
    model: str,
    other: str | None,
    wanted: CheckOptions,
    *,
    python: str | None = None,
    trust: bool = False,
) -> Check:
    """Do the same as :func:`check`, with a child process for this call alone."""
    inputs = [discovery.one(path) for path in (model, other) if path is not None]
    with Worker(Interpreter(python=python or sys.executable)) as worker:
        tools = TensorFlowTools(worker=worker, trust=trust)
        try:
            return check(inputs[0], inputs[1] if other is not None else None, wanted, tools)
        except WorkerError as error:
            error.path = inputs[-1].display_path
            raise


def devices(worker: Worker) -> tuple[TensorFlowDevice, ...]:
    """
    Return what TensorFlow can run on.

    :raises WorkerError: where there is no TensorFlow.
    """
    answer = worker.run({"job": "devices", "family": KERAS2, "path": []})
    return tuple(codec.read(TensorFlowDevice, found) for found in answer["devices"])


def _check_readable(wanted: CheckOptions) -> None:
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


def _reference_options(source: CheckSource, wanted: CheckOptions, *, two: bool) -> Options:
    """
    Return what the reference's policies are to be: those asked for, else float32 for every layer,
    or float64 where the file has that.
    """
    spelled = Options(target=wanted.candidate.target)
    if source.loaded is None or (two and wanted.reference is None):
        return spelled
    widest = (
        FLOAT64
        if any(layer.compute_dtype == FLOAT64 for layer in source.loaded.layers)
        else FLOAT32
    )
    return replace(
        spelled, to=wanted.reference or widest, include_exceptions=True, outputs=Outputs.FOLLOW
    )


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
    job = _job(sides, original, wanted, tools)
    notes: list[CheckNote] = []
    if wanted.gradients and len({side.job.get("family") for side in sides}) > 1:
        raise UsageError(
            f"--gradients cannot compare {' with '.join(found.display_path for found in inputs)}, "
            "a Keras 2 model with a Keras 3 model; check each model separately"
        )
    if any(side.is_graph for side in sides):
        answer = tools.worker.run({**job, **_graph(inputs, sides, wanted)})
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
            answer = _run_as_graph(error, {**job, **_graph(inputs, sides, wanted)}, tools)
    notes += [CheckNote(code=note["code"], message=note["message"]) for note in answer["notes"]]
    notes += (
        _unmeasured_notes(wanted)
        if any(found.get("rewrite") is not None for found in answer["runs"])
        else ()
    )
    runs = answers.runs_from_json(
        answer["runs"],
        wanted.tolerances,
        wanted.required,
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


def _graph(
    inputs: tuple[Input, Input], sides: tuple[PreparedSide, PreparedSide], wanted: CheckOptions
) -> dict[str, Any]:
    """
    Return what a job says of a model that runs as a graph: TensorFlow's rewrite of the whole graph
    makes the candidate.

    :raises ModelFileError: for two files of which one is such a graph.
    :raises UsageError: without a policy, and for options about layers, which a graph does not have.
    """
    if inputs[0] is not inputs[1]:
        which = inputs[0] if sides[0].is_graph else inputs[1]
        message = (
            "contains only a graph and no Keras model, so it can only be compared with "
            "TensorFlow's rewrite of the graph; use --to mixed_bfloat16"
        )
        raise ModelFileError(which.display_path, "graph", message)
    if wanted.candidate.to is None:
        raise UsageError(
            f"{inputs[0].display_path} runs as a graph, to which the policies of the file "
            "do not apply; set a policy with --to mixed_bfloat16 or --to mixed_float16"
        )
    if wanted.candidate.assignments or wanted.reference is not None:
        raise UsageError(
            f"{inputs[0].display_path} runs as a graph, which TensorFlow rewrites as a "
            "whole; --set and --reference apply only to layers"
        )
    if wanted.metric is not None:
        raise UsageError(
            f"{inputs[0].display_path} runs as a graph, for which --metric is not available"
        )
    side = {"how": check_sides.GRAPH, "path": str(inputs[0].path.resolve()), "family": KERAS2}
    return {"reference": side, "candidate": {**side, "policy": wanted.candidate.to}}


def _unmeasured_notes(wanted: CheckOptions) -> list[CheckNote]:
    """Return what was asked for and is not measured of a graph."""
    asked = [
        name
        for name, given in (
            ("--gradients", wanted.gradients),
            ("--timing", wanted.timing),
            ("--tf32", wanted.tf32),
        )
        if given
    ]
    return (
        [
            CheckNote(
                code="graph-alone",
                message=f"{' and '.join(asked)} cannot measure a model that runs as a graph",
            )
        ]
        if asked
        else []
    )


def _job(
    sides: tuple[PreparedSide, PreparedSide],
    original: CheckSource,
    wanted: CheckOptions,
    tools: TensorFlowTools,
) -> dict[str, Any]:
    sites = [site for side in sides if side.loaded is not None for site in side.loaded.sites]
    return {
        "job": "check",
        "reference": sides[0].job,
        "candidate": sides[1].job,
        "inputs": _inputs_job(wanted),
        "metric": _metric_job(wanted.metric) if wanted.metric is not None else None,
        "isolated": wanted.isolated,
        "gradients": {**recorded_training.recorded_training(original.loaded), "seed": wanted.seed}
        if wanted.gradients and original.loaded is not None
        else None,
        "timing": wanted.timing,
        "tf32": wanted.tf32,
        "exponents": wanted.exponents,
        "diagnosis": wanted.diagnosis,
        "deterministic": wanted.deterministic,
        "device": wanted.device,
        "custom_objects": list(tools.custom_objects),
        "path": _module_path(wanted, tools),
        "registered": custom_classes.names(sites),
        "needed": []
        if tools.trust
        else sorted(
            {
                name
                for side in sides
                if side.loaded is not None
                for name in untrusted_code.names_needed(side.loaded)
            }
        ),
        "trust": tools.trust,
        "files": [
            list(one) for one in dict.fromkeys(file for side in sides for file in side.files)
        ],
    }


def _inputs_job(wanted: CheckOptions) -> dict[str, Any]:
    """Return what a job says of the inputs."""
    is_function = isinstance(wanted.inputs, UserFunction)
    bounds = {"batches": limits.INPUT_BATCHES, "bytes": limits.INPUT_BYTES}
    return {
        "file": str(wanted.inputs.resolve()) if isinstance(wanted.inputs, Path) else None,
        "function": str(wanted.inputs) if is_function else None,
        "directory": str(Path.cwd()),
        "most": {
            **{name: bound.value for name, bound in bounds.items()},
            **{
                f"beyond_{name}": f"{bound.exceeded_message(bound.value + 1, counting=True)}, or "
                "use fewer batches with --batches"
                for name, bound in bounds.items()
            },
        },
        "extremes": wanted.inputs is None,
        "save": str(wanted.save_inputs.absolute()) if wanted.save_inputs is not None else None,
        "batches": wanted.batches,
        "batch_size": wanted.batch_size,
        "seed": wanted.seed,
    }


def _metric_job(wanted: WantedMetric) -> dict[str, Any]:
    """Return what a job says of the task's own metric."""
    is_function = isinstance(wanted.metric, UserFunction)
    return {
        "labels": str(wanted.labels.resolve()),
        "name": None if is_function else wanted.metric,
        "function": str(wanted.metric) if is_function else None,
        "directory": str(Path.cwd()),
    }


def _module_path(wanted: CheckOptions, tools: TensorFlowTools) -> list[str]:
    """Return the directories in which the child finds the user's modules."""
    named = [wanted.inputs, wanted.metric.metric if wanted.metric is not None else None]
    own = [str(Path.cwd())] if any(isinstance(one, UserFunction) for one in named) else []
    return [*dict.fromkeys([*tools.path, *own])]


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
