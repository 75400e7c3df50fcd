"""The effect of applying the policy of a check to each layer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from policytool.commands.check import follow_note, follow_options
from policytool.commands.check_options import CheckOptions
from policytool.migration.planning.options import Assignment, Options, Outputs
from policytool.numerics.check_results.checks import MissingKernel
from policytool.support.errors import WorkerError
from tests.helpers.example_checks import SIDES, call, check, output, run

if TYPE_CHECKING:
    from collections.abc import Mapping

    from policytool.numerics.check_results.checks import Check, CheckRun

KEPT = {"net/scores": "an output", "net/norm": "it fails"}
NO_KERNEL = MissingKernel(
    op="net/pool/MaxPool3D",
    type="MaxPool3D",
    dtype="float16",
    layer="net/pool",
    elsewhere=False,
    in_float32=True,
)
WANTED = CheckOptions(candidate=Options(to="mixed_float16"), isolated=True, gradients=True)


def made(found: CheckRun, kept: Mapping[str, str] = KEPT) -> Check:
    """Return a check with one run, in which layers are kept."""
    made = check(found, candidate=replace(SIDES["candidate"], kept=kept)).check
    assert made is not None
    return made


def usual(error: float, **other: Any) -> CheckRun:
    """Return a run whose output has this error."""
    return run(call("net/scores", None, error, **other), outputs=(output("y", error),))


def test_kept_layers_follow_the_policy_except_those_of_the_user() -> None:
    """
    Kept layers are changed to the policy, except those that the user set, in a run without
    additional measurements.
    """
    mine = Assignment(pattern="net/sc.*", policy="float32")
    expected = replace(WANTED, candidate=replace(WANTED.candidate, assignments=(mine,)))
    result = follow_options(expected, made(usual(1e-4), {"net/norm": KEPT["net/norm"]}))
    assert result is not None
    assert result.candidate.outputs is Outputs.FOLLOW
    assert result.candidate.assignments == (
        mine,
        Assignment(pattern="net/norm", policy="mixed_float16"),
    )
    assert not result.isolated
    assert not result.gradients
    assert not result.probes_overflow


@pytest.mark.parametrize(
    ("wanted", "kept"),
    [
        (replace(WANTED, inputs=Path("rows.npz")), KEPT),
        (replace(WANTED, candidate=Options()), KEPT),
        (
            replace(
                WANTED,
                candidate=Options(
                    to="mixed_float16",
                    assignments=(Assignment(pattern="net/.*", policy="float32"),),
                ),
            ),
            {},
        ),
    ],
    ids=["data", "no policy", "decided"],
)
def test_nothing_more_is_measured(wanted: CheckOptions, kept: Mapping[str, str]) -> None:
    """
    No additional run is made for data of the user, without a policy, or if the user set each layer.
    """
    assert follow_options(wanted, made(usual(1e-4), kept)) is None


@pytest.mark.parametrize(
    ("followed", "told"),
    [
        (usual(1.5e-4), None),
        (usual(0.009), None),
        (usual(0.02), "the relative error of the outputs would be 0.02"),
        (
            usual(0.02, along={"overflowed": 5}),
            "NaN or infinity would first appear in layer net/scores",
        ),
        (
            replace(usual(1e-4), missing=(NO_KERNEL,)),
            "MaxPool3D would have no kernel on cpu:0",
        ),
    ],
)
def test_significant_difference_is_reported(followed: CheckRun, told: str | None) -> None:
    note = follow_note(made(usual(1e-4)), lambda: made(followed))
    result = note.message if note is not None else None
    assert result == (
        f"if every layer followed mixed_float16, {told}" if told is not None else None
    )


def test_failed_run_is_reported_with_the_reason() -> None:
    def fail() -> Check:
        raise WorkerError("not-runnable", "there is no kernel")

    note = follow_note(made(usual(1e-4)), fail)
    assert note is not None
    assert note.message.endswith("the model could not run: there is no kernel")
