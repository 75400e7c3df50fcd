"""
What happens if every layer follows the policy of a check, also those that its plan keeps in
float32.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from policytool.migration.planning.options import Assignment, Outputs
from policytool.numerics.check_results.checks import CheckNote
from policytool.support.errors import ModelFileError, UsageError, WorkerError

if TYPE_CHECKING:
    from collections.abc import Callable

    from policytool.commands.check_options import CheckOptions
    from policytool.numerics.check_results.checks import Check, CheckRun

_TIMES: Final = 2.0
"""Errors that differ by less are alike."""

_LEAST: Final = 0.01
"""Smaller errors are not worth a note."""


def follow_options(check_options: CheckOptions, check: Check) -> CheckOptions | None:
    """
    Return the options of a check in which the kept layers follow the policy too; None if the user
    provided inputs, or if no layer is kept. A plan never keeps a layer whose policy the user set.
    """
    to = check_options.candidate.to
    if to is None or check_options.inputs is not None or not check.candidate.kept:
        return None
    following = tuple(Assignment(pattern=path, policy=to) for path in check.candidate.kept)
    candidate = replace(
        check_options.candidate,
        outputs=Outputs.FOLLOW,
        assignments=(*check_options.candidate.assignments, *following),
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
    except (ModelFileError, UsageError, WorkerError) as error:
        return CheckNote(code="every-layer", message=f"{prefix}it could not run: {error}")
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
    """Return how a run would differ, where it would."""
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
