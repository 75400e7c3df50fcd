"""
Bounds of a share or of a mean error at 95 % confidence, on one side, from the samples that were
seen.

A share of samples has the bounds of Clopper and Pearson (Biometrika 26, 1934), which hold for any
number of samples. A mean of values that differ in size has the bound of the normal approximation,
with one addition for what was not seen: samples as bad as the worst one may be as frequent as three
of the number of samples (the rule of three: Hanley and Lippman-Hand, JAMA 249, 1983).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from policytool.numerics.check_results.verdicts import Bounds

if TYPE_CHECKING:
    from collections.abc import Callable

    from policytool.numerics.check_results.metrics import Shares

CONFIDENCE: Final = 0.95
_RISK: Final = 1 - CONFIDENCE
_Z: Final = 1.6448536269514722
"""The quantile of the normal distribution for this confidence, on one side."""

UNSEEN: Final = -math.log(_RISK)
"""About 3: how many samples were to be expected of what was not seen, at most."""

_MOST_TIMES: Final = 1e4
_NEAR: Final = 1.002
_STEPS: Final = 60
_TERMS: Final = 500
_PRECISION: Final = 1e-14


def of_share(changed: int, samples: int) -> Bounds:
    """Return a share of samples with the bounds of Clopper and Pearson."""
    if not samples:
        return Bounds(0.0, 0.0, 1.0)
    upper = 1.0 if changed == samples else _quantile(CONFIDENCE, changed + 1, samples - changed)
    lower = 0.0 if not changed else _quantile(_RISK, changed, samples - changed + 1)
    return Bounds(changed / samples, lower, upper)


def of_shares(shares: Shares, times: float = 1) -> Bounds:
    """
    Return the bounds of the mean of shares. The upper bound is at least that of no observed change.

    :param times: factor on the number of samples, assuming that the other samples are alike
    """
    samples = round(shares.samples * times)
    if shares.is_counted or not samples:
        return of_share(round(shares.changed * times), samples)
    unseen = of_share(0, samples).upper
    mean_bounds = of_mean(shares.total, shares.squares, shares.worst, shares.samples, times)
    return Bounds(mean_bounds.value, mean_bounds.lower, min(1.0, max(unseen, mean_bounds.upper)))


def of_mean(total: float, squares: float, worst: float, samples: int, times: float = 1) -> Bounds:
    """
    Return the mean of values that are not negative, from their sums and the largest of them.

    :param times: as for :func:`of_shares`
    """
    total, squares, samples = total * times, squares * times, round(samples * times)
    mean = total / samples
    variance = max(squares / samples - mean * mean, 0.0) * samples / max(samples - 1, 1)
    margin = _Z * math.sqrt(variance / samples)
    return Bounds(mean, max(0.0, mean - margin), mean + margin + UNSEEN * worst / samples)


def needed(samples: int, upper: Callable[[float], float], most: float) -> int | None:
    """
    Return about how many samples have an upper bound of at most ``most``, if the others are like
    these; None for more than ten thousand times as many.

    :param upper: the bound for this many times as many samples
    """
    low, high = 1.0, _MOST_TIMES
    if upper(high) > most:
        return None
    while high > low * _NEAR:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if upper(middle) <= most else (middle, high)
    return math.ceil(samples * high)


def least_samples(share: float) -> int:
    """Return how many samples without any change show that at most this share changes."""
    return math.ceil(UNSEEN / -math.log1p(-share)) if 0 < share < 1 else 1


def _quantile(level: float, first: float, second: float) -> float:
    """Return the quantile of a beta distribution, by bisection."""
    low, high = 0.0, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if _beta(middle, first, second) < level:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _beta(x: float, first: float, second: float) -> float:
    """Return the regularised incomplete beta function (https://dlmf.nist.gov/8.17)."""
    if x in (0.0, 1.0):
        return x
    if x > (first + 1) / (first + second + 2):  # where the fraction converges slowly
        return 1 - _beta(1 - x, second, first)
    logarithm = first * math.log(x) + second * math.log1p(-x)
    logarithm += math.lgamma(first + second) - math.lgamma(first) - math.lgamma(second)
    return math.exp(logarithm) / (first * _fraction(x, first, second))


def _fraction(x: float, first: float, second: float) -> float:
    """
    Return the continued fraction ``1 + d1 / (1 + d2 / (1 + ...))`` of that function
    (https://dlmf.nist.gov/8.17.E22), by the modified method of Lentz (Thompson and Barnett, 1986).
    """
    value = above = 1.0
    below = 0.0
    for term in range(1, _TERMS):
        half = term // 2
        ends = (first + 2 * half) * (first + term - 1 if term % 2 == 0 else first + term)
        coefficient = (
            -(first + half) * (first + second + half) if term % 2 else half * (second - half)
        ) * (x / ends)
        below = 1 / (1 + coefficient * below)
        above = 1 + coefficient / above
        value *= above * below
        if abs(above * below - 1) < _PRECISION:
            break
    return value
