"""The job that the child process gets for one run of both models."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from policytool.model import custom_classes, untrusted_code
from policytool.numerics import check_sides
from policytool.numerics.check_sides import UserFunction
from policytool.releases.releases import KERAS2
from policytool.support import limits
from policytool.support.errors import ModelFileError, UsageError

if TYPE_CHECKING:
    from policytool.commands.check_options import CheckOptions
    from policytool.formats.discovery import Input
    from policytool.numerics.check_sides import CheckSource, PreparedSide
    from policytool.numerics.tensorflow_run import TensorFlowTools
    from policytool.numerics.verdicts.task_metric import MetricOptions


def check_job(
    sides: tuple[PreparedSide, PreparedSide],
    original: CheckSource,
    options: CheckOptions,
    tools: TensorFlowTools,
) -> dict[str, Any]:
    """Return the job of running both models; ``original`` is the candidate's file, unchanged."""
    sites = [site for side in sides if side.loaded is not None for site in side.loaded.sites]
    return {
        "job": "check",
        "reference": sides[0].job,
        "candidate": sides[1].job,
        "inputs": _inputs_job(options),
        "metric": _metric_job(options.metric) if options.metric is not None else None,
        "isolated": options.isolated
        or (options.earlier is not None and options.earlier.has_layers),
        "gradients": {**check_sides.recorded_training(original.loaded), "seed": options.seed}
        if options.gradients and original.loaded is not None
        else None,
        "timing": options.timing,
        "tf32": options.tf32,
        "exponents": options.exponents,
        "diagnosis": options.diagnosis,
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
        "save": str(options.save_inputs.absolute()) if options.save_inputs is not None else None,
        "batches": options.batches,
        "batch_size": options.batch_size,
        "seed": options.seed,
    }


def _metric_job(task_metric: MetricOptions) -> dict[str, Any]:
    """Return the part of a job that describes the task's own metric."""
    is_function = isinstance(task_metric.metric, UserFunction)
    return {
        "labels": str(task_metric.labels.resolve()) if task_metric.labels is not None else None,
        "name": None if is_function else task_metric.metric,
        "function": str(task_metric.metric) if is_function else None,
        "directory": str(Path.cwd()),
    }


def _module_path(options: CheckOptions, tools: TensorFlowTools) -> list[str]:
    """Return the directories in which the child finds the user's modules."""
    named = [options.inputs, options.metric.metric if options.metric is not None else None]
    own = (
        [str(Path.cwd())] if any(isinstance(candidate, UserFunction) for candidate in named) else []
    )
    return [*dict.fromkeys([*tools.path, *own])]


def graph_job(
    inputs: tuple[Input, Input], sides: tuple[PreparedSide, PreparedSide], options: CheckOptions
) -> dict[str, Any]:
    """
    Return the part of a job that describes a model that runs as a graph: the candidate is
    TensorFlow's rewrite of the whole graph.

    :raises ModelFileError: for two models if one of them is such a graph.
    :raises UsageError: without a policy, and for options about layers, which a graph does not have.
    """
    if inputs[0] is not inputs[1]:
        which = inputs[0] if sides[0].is_graph else inputs[1]
        message = (
            "contains only a graph and no Keras model, so it can only be compared with "
            "TensorFlow's rewrite of the graph; use --to mixed_bfloat16"
        )
        raise ModelFileError(which.display_path, "graph", message)
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
