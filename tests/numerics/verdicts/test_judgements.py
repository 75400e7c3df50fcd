"""The verdict on a run with outputs that are not floats, or with a reference that is not finite."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from policytool.numerics.check_results.verdicts import Judgement, Ruling
from policytool.numerics.verdicts import answers
from policytool.numerics.verdicts.safety import SafetyRule
from policytool.numerics.verdicts.tolerances import Tolerances, judge_run, parse_tolerance
from policytool.support.errors import UsageError
from tests.helpers.example_checks import call, output

if TYPE_CHECKING:
    from policytool.numerics.check_results.metrics import CheckedOutput


def judged(found: CheckedOutput, *tolerances: str) -> Judgement:
    """Return the verdict on the output of a model."""
    (judgement,) = judge_run(
        [call("net/dense", None)],
        [found],
        Tolerances(given=tuple(map(parse_tolerance, tolerances))),
    ).judgements
    return judgement


def of_integers(differing: int, elements: int) -> CheckedOutput:
    """Return an integer output of which some elements differ."""
    result = output(
        "classes", 0.0, dtype="int32", elements=elements, differing=differing, squared_error=None
    )
    assert result.accumulated is not None
    return replace(result, accumulated=replace(result.accumulated, overflow=None))


@pytest.mark.parametrize(
    "counts", [{"nan_reference": 1000}, {"nan_reference": 400, "infinite_reference": 600}]
)
def test_a_reference_without_a_number_proves_nothing(counts: dict[str, Any]) -> None:
    """An output whose reference is NaN does not pass for any tolerance."""
    lost = output(
        "scores",
        0.0,
        squared_error=0.0,
        squared_reference=0.0,
        squared_candidate=0.0,
        largest_error=0.0,
        **counts,
    )
    for tolerances in ((), ("1",)):
        result = judged(lost, *tolerances)
        assert (result.ruling, result.error, result.is_missed) == (Ruling.NOTHING, None, True)


def test_finite_values_are_compared_beside_values_that_are_not_finite() -> None:
    """If some reference values are not finite, the other values are compared."""
    assert judged(output("scores", 1e-4, nan_reference=999)).ruling is Ruling.PASSED
    assert judged(output("scores", 0.5, nan_reference=999)).ruling is Ruling.MISSED


def test_integers_are_compared_only_with_an_explicit_tolerance() -> None:
    """Rounding does not explain a share of differing ids."""
    assert (judged(of_integers(80, 80)).ruling, judged(of_integers(80, 80)).error) == (
        Ruling.PASSED,
        None,
    )
    assert (
        judged(of_integers(3, 80), "0.01").ruling,
        judged(of_integers(3, 80), "0.01").error,
    ) == (Ruling.MISSED, 3 / 80)
    assert judged(of_integers(3, 80), "classes=0.04").ruling is Ruling.PASSED


def of_signature(name: str, *, missing: bool = False) -> dict[str, Any]:
    """Return the child's answer for a signature with an output that was not compared."""
    device = {
        **dict.fromkeys(("model", "compute_capability", "memory", "driver", "cuda", "cudnn")),
        "name": "cpu:0",
        "kind": "cpu",
    }
    shape = {
        "shape": [8],
        "dtype_reference": "float32",
        "dtype_candidate": "float32",
        **dict.fromkeys(("accumulated", "isolated", "tf32")),
    }
    lacking = {
        "type": "Svd",
        "dtype": "float16",
        "op": "svd",
        "layer": None,
        "elsewhere": False,
        "in_float32": True,
    }
    return {
        "device": device,
        "signature": name,
        "outputs": [] if missing else [{**shape, "name": name}],
        "missing": [lacking] if missing else [],
        **dict.fromkeys(("calls", "fallbacks", "unmatched"), ()),
        "gradients": None,
        "timings": {},
        "inputs": {"kind": "synthetic", "seed": 1, "batches": 1, "batch_size": 8, "inputs": []},
    }


def test_tolerance_may_name_an_output_of_one_signature() -> None:
    """A name that no signature has is a usage error."""
    both = [of_signature("scores"), of_signature("lowered")]
    assert len(
        answers.runs_from_json(
            both, Tolerances(given=(parse_tolerance("lowered=0.1"),)), SafetyRule()
        )
    ) == len(both)
    with pytest.raises(UsageError, match="matches no output"):
        answers.runs_from_json(
            both, Tolerances(given=(parse_tolerance("other=0.1"),)), SafetyRule()
        )


def test_a_tolerance_may_name_anything_where_nothing_ran() -> None:
    """The report has the missing kernels."""
    (result,) = answers.runs_from_json(
        [of_signature("scores", missing=True)],
        Tolerances(given=(parse_tolerance("scores=0.1"),)),
        SafetyRule(),
    )
    assert [item.type for item in result.missing] == ["Svd"]
