"""The verdicts on calls of layers with integer inputs or outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from policytool.numerics.check_results.verdicts import CheckVerdict, Ruling
from policytool.numerics.verdicts.tolerances import Tolerances, judge_run, parse_tolerance
from tests.helpers.example_checks import call, whole

if TYPE_CHECKING:
    from policytool.numerics.check_results.metrics import LayerCall


def hashing(differing: int, *inputs: str) -> LayerCall:
    """Return a call with integer outputs, some of which differ because of the call itself."""
    result = whole(differing)
    return replace(
        call("net/hashing", None, inputs=inputs),
        outputs=(replace(result, isolated=result.accumulated),),
    )


def judged(*calls: LayerCall, tolerances: tuple[str, ...] = ()) -> CheckVerdict:
    """Return the verdict on calls."""
    return judge_run(calls, (), Tolerances(given=tuple(map(parse_tolerance, tolerances))))


@pytest.mark.parametrize(
    ("differing", "ruling"), [(0, Ruling.PASSED), (1, Ruling.DIFFERING), (80, Ruling.DIFFERING)]
)
def test_integers_of_the_same_integers_are_the_same(differing: int, ruling: Ruling) -> None:
    """Integer inputs need no rounding, so a difference fails the check."""
    (result,) = judged(hashing(differing)).judgements
    assert result.ruling is ruling
    assert result.is_missed is (differing > 0)


def test_integers_of_floats_may_differ() -> None:
    """An example is the index of the larger of two nearly equal values."""
    assert not judged(hashing(3, "float16")).missed


def test_integers_that_differ_come_before_errors() -> None:
    """Calls with differing integers are reported before errors in later calls, which they cause."""
    missed = judged(call("net/dense", 0.5), hashing(3)).missed
    assert [item.path for item in missed] == ["net/hashing", "net/dense"]


def test_tolerance_applies_to_the_share_of_differing_integers() -> None:
    """In this model, 3 of 80 integers differ, which is 3.75 %."""
    assert not judged(hashing(3), tolerances=("net/hashing=0.04",)).missed
    assert judged(hashing(3), tolerances=("net/hashing=0.03",)).missed
