"""The job that the child process gets for one run of both models."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from policytool.model import custom_classes, untrusted_code
from policytool.numerics import check_sides
from policytool.numerics.user_functions import UserFunction
from policytool.numerics.verdicts import recorded_training
from policytool.releases.releases import KERAS2
from policytool.support import limits
from policytool.support.errors import ModelFileError, UsageError

if TYPE_CHECKING:
    from policytool.commands.check_options import CheckOptions
    from policytool.formats.discovery import Input
    from policytool.numerics.check_sides import CheckSource, PreparedSide
    from policytool.numerics.tensorflow_run import TensorFlowTools
    from policytool.numerics.verdicts.task_metric import WantedMetric


def check_job(
    sides: tuple[PreparedSide, PreparedSide],
    original: CheckSource,
    wanted: CheckOptions,
    tools: TensorFlowTools,
) -> dict[str, Any]:
    """Return the job of running both models; ``original`` is the candidate's file, unchanged."""
    sites = [site for side in sides if side.loaded is not None for site in side.loaded.sites]
    return {
        "job": "check",
        "reference": sides[0].job,
        "candidate": sides[1].job,
        "inputs": _inputs_job(wanted),
        "metric": _metric_job(wanted.metric) if wanted.metric is not None else None,
        "isolated": wanted.isolated or (wanted.earlier is not None and wanted.earlier.has_layers),
        "gradients": {**recorded_training.recorded_training(original.loaded), "seed": wanted.seed}
        if wanted.gradients and original.loaded is not None
        else None,
        "timing": wanted.timing,
        "tf32": wanted.tf32,
        "exponents": wanted.exponents,
        "diagnosis": wanted.diagnosis,
        "overflow_probe": wanted.probes_overflow,
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
        "labels": str(wanted.labels.resolve()) if wanted.labels is not None else None,
        "name": None if is_function else wanted.metric,
        "function": str(wanted.metric) if is_function else None,
        "directory": str(Path.cwd()),
    }


def _module_path(wanted: CheckOptions, tools: TensorFlowTools) -> list[str]:
    """Return the directories in which the child finds the user's modules."""
    named = [wanted.inputs, wanted.metric.metric if wanted.metric is not None else None]
    own = [str(Path.cwd())] if any(isinstance(one, UserFunction) for one in named) else []
    return [*dict.fromkeys([*tools.path, *own])]


def graph_job(
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
    if wanted.candidate.assignments:
        raise UsageError(
            f"{inputs[0].display_path} runs as a graph, which TensorFlow rewrites as a "
            "whole; --set applies only to layers"
        )
    if wanted.metric is not None:
        raise UsageError(
            f"{inputs[0].display_path} runs as a graph, for which --metric is not available"
        )
    side = {"how": check_sides.GRAPH, "path": sides[0].job["path"], "family": KERAS2}
    return {"reference": side, "candidate": {**side, "policy": wanted.candidate.to}}
