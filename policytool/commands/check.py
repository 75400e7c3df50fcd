"""
``check``: runs a model under two policies, or two models, and compares the outputs of all layers.

A note describes the effect if all layers follow the policy, including those that the plan keeps in
float32.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from policytool.commands import check_recordings, check_trials
from policytool.commands.check_run import measure
from policytool.commands.check_trials import Alternative, Budget
from policytool.migration import planning
from policytool.migration.planning.options import Assignment, Outputs
from policytool.numerics.check_results.checks import CheckNote, TensorFlowDevice
from policytool.numerics.check_results.verdicts import Ruling
from policytool.numerics.environments import best_release
from policytool.numerics.verdicts import origins
from policytool.numerics.verdicts.origins import Choices
from policytool.support import steps
from policytool.support.errors import ModelFileError, UsageError, WorkerError
from policytool.support.text import codec

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from policytool.commands.check_options import CheckOptions
    from policytool.commands.check_run import MeasuredCheck
    from policytool.formats.discovery import Input
    from policytool.migration.planning.options import Options
    from policytool.model.loaded_model import LoadedModel
    from policytool.numerics.check_results.checks import Check, CheckRun
    from policytool.numerics.hand_over import HandOver
    from policytool.numerics.tensorflow_run import TensorFlowTools
    from policytool.numerics.workers import Worker

_TIMES: Final = 2.0
"""Minimum ratio of two errors for a note about their difference."""

_LEAST: Final = 0.01
"""Minimum error for a note."""


def follow_options(check_options: CheckOptions, check: Check) -> CheckOptions | None:
    """
    Return the options of a check in which the kept layers follow the policy too; None if the user
    provided inputs, or if no layer is kept. A plan never keeps a layer whose policy the user set.
    """
    policy = check_options.candidate.to
    if policy is None or check_options.inputs is not None or not check.candidate.kept:
        return None
    assignments = tuple(Assignment(pattern=path, policy=policy) for path in check.candidate.kept)
    candidate = replace(
        check_options.candidate,
        outputs=Outputs.FOLLOW,
        assignments=(*check_options.candidate.assignments, *assignments),
    )
    return check_options.for_candidate(candidate)


def follow_note(check: Check, measure: Callable[[], Check]) -> CheckNote | None:
    """
    Return a note on the effect of every layer following the policy; None if the results are
    similar.

    :param measure: runs the check in which every layer follows the policy
    """
    prefix = f"if every layer followed {check.candidate.policy}, "
    try:
        followed = measure()
    except UsageError:  # the options do not apply, such as to a graph without layers
        return None
    except (ModelFileError, WorkerError) as error:
        return CheckNote(code="every-layer", message=f"{prefix}the model could not run: {error}")
    difference = next(
        (
            text
            for before, after in zip(check.runs, followed.runs, strict=True)
            if (text := _difference(before, after)) is not None
        ),
        None,
    )
    return (
        CheckNote(code="every-layer", message=prefix + difference)
        if difference is not None
        else None
    )


def _difference(before: CheckRun, after: CheckRun) -> str | None:
    """Return how a run gets worse, as the end of a sentence; None if it does not."""
    if after.missing:
        return f"{after.missing[0].type} would have no kernel on {after.device.name}"
    place = after.verdict.first_not_finite
    if place is not None:
        if before.verdict.first_not_finite is not None:
            return None
        return f"NaN or infinity would first appear in layer {place}"
    errors = [_largest_error(run) for run in (before, after)]
    if errors[1] <= max(_LEAST, _TIMES * errors[0]):
        return None
    return f"the relative error of the outputs would be {errors[1]:.3g}"


def _largest_error(run: CheckRun) -> float:
    errors = [
        output.accumulated.relative for output in run.outputs if output.accumulated is not None
    ]
    return max((error for error in errors if error is not None), default=0.0)


_OTHER_MIXED: Final = {
    "mixed_float16": "mixed_bfloat16",
    "mixed_bfloat16": "mixed_float16",
}
"""The policy to try if one does not suit a model: more range, or more precision."""


def check(
    model: Input, other: Input | None, options: CheckOptions, tools: TensorFlowTools
) -> Check:
    """
    Compare the candidate with the reference: a model under another policy, or a second model. A
    failed check is run again, to find the origin and the layers to keep in float32.

    :raises ModelFileError: if a file cannot be read, changed or run.
    :raises UsageError: for options that contradict the model or each other.
    :raises WorkerError: if the child process fails.
    """
    with tools.hand_over() as hand_over:
        return _check(model, other, options, tools, hand_over)


def _check(
    model: Input,
    other: Input | None,
    options: CheckOptions,
    tools: TensorFlowTools,
    hand_over: HandOver,
) -> Check:
    """Do the same as :func:`check`, with the copies of ``hand_over``."""
    if options.record is not None or options.against is not None:
        return check_recordings.run(model, options, tools, hand_over)
    start = time.monotonic()
    measured = measure(model, other, options, tools, hand_over)
    result = measured.check
    if not result.is_equal and any(run.has_unexplained_error for run in result.runs):
        result = _explain_failure((model, other), options, measured, (tools, hand_over), start)
    source = measured.source
    if other is not None or source.loaded is None:
        return result
    everything = follow_options(options, result)
    if everything is not None:
        note = follow_note(result, lambda: measure(model, None, everything, tools, hand_over).check)
        result = replace(result, notes=(*result.notes, *([note] if note is not None else [])))
    with steps.budget(model.display_path):
        migration = migration_options(result, source.loaded, options.candidate)
        return replace(result, migration=migration and source.copy.migration(migration))


def _explain_failure(
    inputs: tuple[Input, Input | None],
    options: CheckOptions,
    measured: MeasuredCheck,
    tools_and_copies: tuple[TensorFlowTools, HandOver],
    start: float,
) -> Check:
    """
    Return the failed check with the origin of its error and with advice.

    :param start: when the check began; the time since then limits the time for trials
    """
    failed = measured.check
    if not _is_explicable(failed):
        return replace(failed, runs=tuple(map(origins.with_reference_nan_origin, failed.runs)))

    changes_layers = inputs[1] is None and not options.candidate.quantizes

    def trial(kept: frozenset[str]) -> Check:
        """Run the check again with these layers in float32; with no layers, run the diagnosis."""
        added = tuple(Assignment(pattern=path, policy="float32") for path in sorted(kept))
        assignments = _without(options.candidate.assignments, measured.candidate, kept)
        candidate = replace(options.candidate, assignments=(*assignments, *added))
        trial_options = replace(
            options.for_candidate(candidate),
            isolated=True,
            diagnosis=not kept,
            sensitivity=not kept and changes_layers,
            exponents=options.exponents and not kept,
        )
        return measure(*inputs, trial_options, *tools_and_copies).check

    def other_trial(policy: str) -> Check:
        """Run the check with the other mixed policy, and measure only the outputs."""
        trial_options = options.for_candidate(replace(options.candidate, to=policy))
        return measure(*inputs, trial_options, *tools_and_copies).check

    policy = _OTHER_MIXED.get(options.candidate.to or "")
    explained = check_trials.explain(
        failed,
        Choices.of(measured.candidate)
        if changes_layers and measured.candidate is not None
        else None,
        trial,
        Budget(
            trials=check_trials.MOST_TRIALS,
            seconds=check_trials.TIMES * (time.monotonic() - start),
        ),
        Alternative(policy=policy, trial=lambda: other_trial(policy))
        if policy is not None
        else None,
    )
    if explained.advice is None:
        return explained
    assignments = options.candidate.assignments
    remaining = _without(assignments, measured.candidate, explained.advice.layers)
    replaced = tuple(item for item in assignments if item not in remaining)
    return replace(explained, advice=replace(explained.advice, replaced=replaced))


def _without(
    assignments: tuple[Assignment, ...], loaded: LoadedModel | None, paths: Container[str]
) -> tuple[Assignment, ...]:
    """Return assignments without those that name one of the layers at these paths exactly."""
    names = {
        name
        for layer in (loaded.layers if loaded is not None else ())
        if layer.path in paths
        for name in (layer.path, *layer.also_at)
    }
    return tuple(item for item in assignments if item.pattern not in names)


def migration_options(check: Check, source: LoadedModel, candidate: Options) -> Options | None:
    """
    Return the options of ``migrate`` that pass all measurements; None if no such options exist, or
    if they change nothing, as with all layers in float32.
    """
    if candidate.quantizes or any(run.missing for run in check.runs):
        return None
    options = replace(candidate, retrace=source.document.format == "savedmodel")
    advice = check.advice
    if advice is not None and advice.policy is not None:
        options = replace(options, to=advice.policy)
    elif advice is not None and advice.layers:
        remaining = tuple(item for item in options.assignments if item not in advice.replaced)
        options = replace(options, assignments=remaining)
        kept = {layer.path for layer in planning.draft(source, options).kept}
        layers = [path for path in advice.layers if path not in kept]
        options = planning.with_layers(source, options, dict.fromkeys(layers, "float32"))
    elif all(run.is_unchanged for run in check.runs) or any(
        not run.holds if run.is_on_data else run.has_unexplained_error and _shows_error(run)
        for run in check.runs
    ):
        return None
    if options.to is None and not options.assignments:
        return None
    plan = planning.draft(source, replace(options, retrace=candidate.retrace))
    return None if plan.is_empty else options


def _is_explicable(check: Check) -> bool:
    """Return whether layers were measured, and an output shows an error."""
    return all(run.rewrite is None and not run.missing for run in check.runs) and any(
        run.has_unexplained_error and _shows_error(run) for run in check.runs
    )


def _shows_error(run: CheckRun) -> bool:
    return (run.is_on_data and run.has_changes) or any(
        judgement.ruling is not Ruling.NOTHING for judgement in run.verdict.deciding
    )


def devices(worker: Worker) -> tuple[TensorFlowDevice, ...]:
    """
    Return the devices that TensorFlow can use.

    :raises WorkerError: if TensorFlow is not available.
    """
    worker.fit(best_release)
    answer = worker.run({"job": "devices", "path": []})
    return tuple(codec.read(TensorFlowDevice, device) for device in answer["devices"])
