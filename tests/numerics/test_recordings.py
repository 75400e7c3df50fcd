"""The origin of a difference from a recorded run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import pytest

from policytool.numerics import recordings
from policytool.numerics.check_results.metrics import CallTrace
from tests.helpers.example_checks import call, run

if TYPE_CHECKING:
    from collections.abc import Collection

    from policytool.numerics.check_results.checks import CheckRun


WITHOUT_MASKS: Final[Any] = [
    (SimpleNamespace(path=name, number=0, outputs=()),) * 2 for name in "abc"
]
"""The recorded calls, of which only the masks are read."""


def chain(departing: Collection[str]) -> CheckRun:
    """Return a run of three layers, each of which uses the one before it."""
    calls = []
    for number, name in enumerate("abc"):
        producers = (number - 1,) if number else ()
        trace = CallTrace(begun=number, within=None, producers=producers, gets_nonfinite=False)
        error = 0.9 if name in departing else 0.0
        calls.append(call(name, None, error, compute="float32", trace=trace))
    return run(*calls)


@pytest.mark.parametrize(
    ("departing", "changed", "origin"),
    [
        ("abc", (), "a"),
        ("bc", (), "b"),
        ("ac", (), "c"),  # another layer has the activation of a
        ("a", (), "a"),  # nothing else explains a difference
        ("ab", (), "a"),
        ("ac", ("a",), "a"),
        ("", (), None),
    ],
)
def test_layer_whose_difference_no_other_layer_has_is_not_the_origin(
    departing: str, changed: tuple[str, ...], origin: str | None
) -> None:
    found = recordings.origin(chain(departing), WITHOUT_MASKS, changed)
    assert (found.path if found is not None else None) == origin
