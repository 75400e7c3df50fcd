"""Many cases in one test, where each takes no more than milliseconds."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, Final

import pytest

Test = Callable[..., None]

CASES: Final = "cases"
"""The attribute of a test that counts its cases, for ``tests/count.py``."""

_OUTCOMES: Final = (
    Exception,
    BaseExceptionGroup,
    pytest.fail.Exception,
    pytest.skip.Exception,
)
"""What ends a case. No case may be skipped, because the test would then end before the others."""


def for_each(
    names: str | tuple[str, ...],
    cases: Iterable[Any],
    *,
    ids: Callable[[Any], str] | None = None,
) -> Callable[[Test], Test]:
    """
    Call a test with each case in turn, and fail with the errors of all cases that fail.

    Cases are written as for ``pytest.mark.parametrize``, but share one set of fixtures: this is for
    tests of functions that change nothing. Each error has a note with its case.
    """
    arguments = (names,) if isinstance(names, str) else names
    values = tuple((case,) if isinstance(names, str) else tuple(case) for case in cases)

    def decorate(test: Test) -> Test:
        signature = inspect.signature(test)

        @functools.wraps(test)
        def test_all(**fixtures: Any) -> None:
            errors = []
            for case in values:
                chosen = dict(zip(arguments, case, strict=True))
                try:
                    test(**fixtures, **chosen)
                except _OUTCOMES as error:
                    error.add_note(f"case: {_label(chosen, ids)}")
                    errors.append(error)
            if errors:
                raise BaseExceptionGroup(f"{len(errors)} of {len(values)} cases failed", errors)

        shared = [
            parameter for name, parameter in signature.parameters.items() if name not in arguments
        ]
        setattr(test_all, CASES, len(values) * getattr(test, CASES, 1))
        # pytest reads it to learn which fixtures a test needs
        test_all.__dict__["__signature__"] = signature.replace(parameters=shared)
        return test_all

    return decorate


def _label(chosen: dict[str, Any], ids: Callable[[Any], str] | None) -> str:
    if ids is None:
        return ", ".join(f"{name}={value!r}" for name, value in chosen.items())
    return ", ".join(ids(value) for value in chosen.values())
