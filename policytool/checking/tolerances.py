"""
How far a candidate may be from its reference.

The defaults follow from what dtypes can hold. A layer rounds its inputs, its weights and its result, each by up to the unit roundoff u of its dtype, and the
sums in it round at every term; roundings add up as random ones do, with the square root of their number.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from policytool.errors import UsageError
from policytool.verification import UNIT_ROUNDOFF

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from policytool.measurement.layers import Call

_SLACK: Final = 4.0
_SHARE: Final = 0.25


@dataclass(frozen=True, kw_only=True, slots=True)
class Given:
    """One ``--tolerance``: a number for everything, or for what a pattern names."""

    pattern: str | None
    value: float


def given(text: str) -> Given:
    """
    Return what ``NUMBER`` or ``PATTERN=NUMBER`` says.

    :raises UsageError: for text of another form, and for numbers that are no tolerance.
    """
    pattern, equals, number = text.rpartition("=")
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if not (value >= 0 and math.isfinite(value)) or (equals and not pattern):
        raise UsageError(
            f"--tolerance {text!r} is neither a number from 0 up nor PATTERN=NUMBER, with the name of an output, a layer path or a pattern of them"
        )
    return Given(pattern=pattern if equals else None, value=value)


@dataclass(frozen=True, kw_only=True, slots=True)
class Tolerances:
    """Every ``--tolerance`` of a call."""

    given: tuple[Given, ...] = ()

    def of(self, name: str) -> float | None:
        """
        Return the tolerance given for an output's name or a layer's path: by the exact name, else by the one pattern that matches in full, else for all.

        :raises UsageError: where several patterns match it.
        """
        exact = [one.value for one in self.given if one.pattern == name]
        if exact:
            return exact[-1]
        matching = [one for one in self.given if one.pattern is not None and re.fullmatch(one.pattern, name)]
        if len(matching) > 1:
            raise UsageError(f"--tolerance {matching[0].pattern} and {matching[1].pattern} both match {name}; make one of them more exact")
        plain = [one.value for one in self.given if one.pattern is None]
        return next((one.value for one in matching), plain[-1] if plain else None)

    def check(self, names: Iterable[str]) -> None:
        """
        Make sure that every pattern is one and means something.

        :raises UsageError: where one is no regular expression, or matches nothing.
        """
        listed = list(names)
        for one in self.given:
            if one.pattern is None or one.pattern in listed:
                continue
            try:
                found = any(re.fullmatch(one.pattern, name) for name in listed)
            except re.error as error:
                raise UsageError(f"--tolerance {one.pattern!r} is neither a name nor a regular expression: {error}") from error
            if not found:
                raise UsageError(f"--tolerance {one.pattern!r} matches no output and no layer; `policytool inspect` lists the layers' paths")


def of_layer(call: Call) -> float:
    """Return how large the relative error of one call may be: ``4 u sqrt(1 + depth / 4)``, u the largest unit roundoff of what it takes, computes and gives."""
    return _SLACK * _roundoff(call) * math.sqrt(1 + _SHARE * call.depth)


def of_outputs(calls: Sequence[Call]) -> float:
    """Return how large the relative error of a model's output may be: those of its layers, added up as random ones."""
    return math.sqrt(sum(of_layer(call) ** 2 for call in calls if not call.children))


def _roundoff(call: Call) -> float:
    dtypes = [*call.inputs, *(output.dtype_candidate for output in call.outputs), *(output.dtype_reference for output in call.outputs)]
    dtypes += [dtype for dtype in (call.compute_candidate, call.compute_reference) if dtype is not None]
    return max((UNIT_ROUNDOFF.get(dtype, 0.0) for dtype in dtypes), default=0.0)
