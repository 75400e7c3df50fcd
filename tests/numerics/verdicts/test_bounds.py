"""The confidence bounds of shares and of mean errors."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policytool.numerics.check_results.metrics import Shares
from policytool.numerics.verdicts import safety
from tests.helpers.marks import THOROUGH


def tail(changed: int, samples: int, chance: float) -> float:
    """Return the probability of at most this number of changes."""
    return sum(
        math.comb(samples, number) * chance**number * (1 - chance) ** (samples - number)
        for number in range(changed + 1)
    )


@given(st.integers(1, 200).flatmap(lambda most: st.tuples(st.integers(0, most), st.just(most))))
def test_bounds_of_a_share_are_those_of_clopper_and_pearson(pair: tuple[int, int]) -> None:
    """
    The bounds of a share are those of Clopper and Pearson: at each bound, the observed number or a
    more extreme one has a probability of 5 %.
    """
    changed, samples = pair
    result = safety.share_bounds(changed, samples)
    assert result.lower <= result.value <= result.upper
    if changed < samples:
        assert tail(changed, samples, result.upper) == pytest.approx(0.05, abs=1e-6)
    if changed:
        assert 1 - tail(changed - 1, samples, result.lower) == pytest.approx(0.05, abs=1e-6)


def test_known_bounds() -> None:
    """The bounds for common numbers of samples have their known values."""
    assert safety.share_bounds(0, 299).upper <= 0.01 < safety.share_bounds(0, 298).upper
    assert safety.share_bounds(880, 10234).lower == pytest.approx(0.0815, abs=1e-4)
    assert safety.share_bounds(123_456, 1_000_000).upper == pytest.approx(0.1240, abs=1e-4)
    assert safety.least_samples(0.01) == 299
    assert safety.least_samples(0.05) == 59


@THOROUGH
@pytest.mark.parametrize("share", [0.003, 0.02, 0.3])
@pytest.mark.parametrize("samples", [100, 1000])
def test_a_bound_holds_nineteen_times_of_twenty(share: float, samples: int) -> None:
    """A bound holds in 95 % of cases, for independent rows and for samples with many rows."""
    random = np.random.default_rng(1)
    missed = mean_missed = 0
    for _ in range(300):
        changed = int((random.random(samples) < share).sum())
        missed += safety.share_bounds(changed, samples).upper < share
        shares = np.minimum(1.0, random.exponential(share, samples)).tolist()
        result = safety.mean_share_bounds(
            Shares(
                samples=samples,
                changed=samples,
                total=sum(shares),
                squares=sum(item * item for item in shares),
                worst=max(shares),
            )
        )
        mean_missed += result.upper < share * (1 - math.exp(-1 / share))
    assert missed <= 27
    assert mean_missed <= 27


@pytest.mark.parametrize(
    ("changed", "samples", "expected"),
    [(0, 60, 299), (0, 298, 299), (5, 1000, 1183), (1, 90, None), (0, 2, 299)],
)
def test_how_many_samples_would_decide(changed: int, samples: int, expected: int | None) -> None:
    """Further samples are expected to have the same share; None if it is too large."""
    seen = Shares(
        samples=samples, changed=changed, total=changed, squares=changed, worst=min(changed, 1)
    )
    result = safety.samples_needed(
        samples, lambda times: safety.mean_share_bounds(seen, times).upper, 0.01
    )
    assert result == expected
    if result is not None:
        enough = safety.mean_share_bounds(seen, (result + 5) / samples)
        assert enough.upper <= 0.01
