"""Measured numbers in the words of people: three digits, percent and decibels."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, Context, Decimal
from typing import Final

_DIGITS: Final = 3
_LEAST_SHARE: Final = 1e-4
"""Shares below it, or as near to all, are said to be so instead of being rounded to none or all."""

_GROUPED: Final = (1e3, 1e6)
"""
From the first to below the second, numbers are written out with commas instead of an exponent.
"""

HEADROOM: Final = 16.0
"""Reports mention a smaller headroom, because other inputs may have larger values."""

_UPWARD: Final = Context(prec=_DIGITS, rounding=ROUND_CEILING)


def figure(value: float | None) -> str:
    """Return a number in three digits; nothing for None."""
    if value is None:
        return ""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return _short(f"{value:.{_DIGITS}g}")


def upward(value: float) -> str:
    """Return a number in three digits that is not smaller: a tolerance that an option takes."""
    return f"{float(_UPWARD.create_decimal(Decimal(value))):.{_DIGITS}g}"


def share(fraction: float | None) -> str:
    """Return a fraction in percent; what is neither nothing nor all is never called so."""
    if fraction is None:
        return ""
    if 0 < fraction < _LEAST_SHARE:
        return "<0.01%"
    if 1 - _LEAST_SHARE < fraction < 1:
        return ">99.99%"
    return f"{100 * fraction:.2f}".rstrip("0").rstrip(".") + "%"


def decibels(value: float | None) -> str:
    """Return a signal-to-noise ratio; ``exact`` where there is no noise."""
    if value is None or math.isnan(value):
        return ""
    if math.isinf(value):
        return "exact" if value > 0 else "-inf dB"
    return f"{value:.1f} dB"


def many(count: int, word: str) -> str:
    """Return a number of things."""
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def _short(text: str) -> str:
    """
    Return a number without its exponent where it is short without, and without the exponent's zero
    where not: ``65,500``, ``4.2e-5``.
    """
    mantissa, e, exponent = text.partition("e")
    value = float(text)
    if _GROUPED[0] <= abs(value) < _GROUPED[1]:
        return f"{value:,.0f}"
    return f"{mantissa}e{int(exponent)}" if e else text
