"""How calls of layers are judged that take no floats."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from policytool.numerics.check_results.verdicts import CheckVerdict, Ruling
from policytool.numerics.verdicts.tolerances import Tolerances, judge_run, parse_tolerance
from tests.helpers.example_checks import call, whole

if TYPE_CHECKING:
    from policytool.numerics.check_results.metrics import LayerCall


def hashing(differing: int, *inputs: str) -> LayerCall:
    """Return a call that makes integers, of which some are others by itself."""
    made = whole(differing)
    return replace(
        call("net/hashing", None, inputs=inputs),
        outputs=(replace(made, isolated=made.accumulated),),
    )


def judged(*calls: LayerCall, tolerances: tuple[str, ...] = ()) -> CheckVerdict:
    """Return the verdict on calls."""
    return judge_run(calls, (), Tolerances(given=tuple(map(parse_tolerance, tolerances))))


@pytest.mark.parametrize(
    ("differing", "ruling"), [(0, Ruling.PASSED), (1, Ruling.DIFFERING), (80, Ruling.DIFFERING)]
)
def test_integers_of_the_same_integers_are_the_same(differing: int, ruling: Ruling) -> None:
    """Nothing was rounded that had to be: one that is another is a miss."""
    (found,) = judged(hashing(differing)).judgements
    assert found.ruling is ruling
    assert found.is_missed is (differing > 0)


def test_integers_of_floats_may_differ() -> None:
    """The place of the largest of two values that are nearly equal, for one."""
    assert not judged(hashing(3, "float16")).missed


def test_integers_that_differ_come_before_errors() -> None:
    """They are what the errors behind them come from."""
    missed = judged(call("net/dense", 0.5), hashing(3)).missed
    assert [one.path for one in missed] == ["net/hashing", "net/dense"]


def test_a_tolerance_is_held_against_the_share_that_differs() -> None:
    """Who gives one knows that some do: 3 of 80 are 3.75 %."""
    assert not judged(hashing(3), tolerances=("net/hashing=0.04",)).missed
    assert judged(hashing(3), tolerances=("net/hashing=0.03",)).missed
