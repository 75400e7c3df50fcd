"""The inputs of a run, converted from the child's answer to a value."""

from __future__ import annotations

from policytool.numerics.check_results.checks import CheckInput, CheckInputs, InputKind
from policytool.support.text import codec


def test_synthetic_inputs_are_reported_with_the_seed() -> None:
    """Synthetic inputs are reported with their seed and notes."""
    result = codec.read(
        CheckInputs,
        {
            "kind": "synthetic",
            "seed": 7,
            "batches": 2,
            "batch_size": 8,
            "inputs": [{"name": "ids", "shape": [8, 16], "dtype": "int32", "how": "IDs below 100"}],
            "notes": ["the model takes batches of 8 alone"],
        },
    )
    one = CheckInput(name="ids", shape=(8, 16), dtype="int32", how="IDs below 100")
    assert result == CheckInputs(
        kind=InputKind.SYNTHETIC,
        seed=7,
        batches=2,
        batch_size=8,
        inputs=(one,),
        notes=("the model takes batches of 8 alone",),
    )


def test_given_inputs_have_no_seed() -> None:
    """Inputs from the user have no seed, and an unknown shape is None."""
    inputs = [{"name": "x", "shape": None, "dtype": "string", "how": "x of the file"}]
    result = codec.read(
        CheckInputs,
        {"kind": "given", "seed": None, "batches": 1, "batch_size": 3, "inputs": inputs},
    )
    assert result.kind is InputKind.GIVEN
    assert result.seed is None
    assert result.inputs[0].shape is None
    assert result.notes == ()
