"""The budget of steps that all walks over one file share."""

from __future__ import annotations

import pytest

from policytool.support import limits, steps
from policytool.support.errors import ModelFileError


def test_steps_add_up_over_walks() -> None:
    with steps.budget("a.h5") as budget:
        steps.spend(3, walk="layers")
        steps.spend(4, walk="calls")
        steps.spend(5, walk="layers")
    assert (budget.spent, dict(budget.counts)) == (12, {"layers": 8, "calls": 4})


def test_steps_above_the_limit_are_an_error_of_the_file() -> None:
    """The next step raises the error again if a caller caught the first error."""
    with limits.override({"file-steps": 10}), steps.budget("a.h5"):
        steps.spend(10, walk="layers")
        for _ in range(2):
            with pytest.raises(ModelFileError, match="file-steps limit of 10; raise") as caught:
                steps.spend(1, walk="calls")
            assert (caught.value.path, caught.value.code) == ("a.h5", steps.CODE)


def test_budget_of_the_same_file_continues() -> None:
    """Functions for one file call each other and share the budget."""
    with steps.budget("a.h5") as outer:
        steps.spend(1, walk="layers")
        with steps.budget("a.h5") as inner:
            steps.spend(1, walk="layers")
        assert inner is outer
    assert outer.spent == 2


def test_each_file_has_a_separate_budget() -> None:
    with steps.budget("a.h5") as first:
        steps.spend(1, walk="layers")
        with steps.budget("b.h5") as second:
            steps.spend(5, walk="layers")
        steps.spend(2, walk="layers")
    with steps.budget("a.h5") as again:
        pass
    assert (first.spent, second.spent, again.spent) == (3, 5, 0)


def test_steps_without_a_budget_are_not_counted() -> None:
    """Functions can be called without a file."""
    with limits.override({"file-steps": 1}):
        steps.spend(10, walk="layers")
