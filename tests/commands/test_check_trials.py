"""
The search of a failed check for layers to keep in float32, with trials that need no TensorFlow.
"""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from policytool.commands import check_trials
from policytool.commands.check_trials import Alternative, Budget
from policytool.numerics.verdicts.origins import Choices
from policytool.support.errors import UsageError, WorkerError
from tests.helpers.example_checks import check, output, run
from tests.helpers.marks import THOROUGH, examples
from tests.numerics.verdicts.test_origins import model, traced

NAMES = tuple(f"net/l{number}" for number in range(8))
CHOICES = Choices(paths=NAMES)
PLENTY = Budget(trials=100, seconds=60)


def chain(errors: dict[str, float]) -> Any:
    """Return a run of eight layers in sequence, each with its own error."""
    return model(
        *(
            traced(
                name, (place - 1,) if place else (), begun=place, isolated=errors.get(name, 1e-4)
            )
            for place, name in enumerate(NAMES)
        )
    )


class Trials:
    """Replacements for runs: the check passes if all layers in ``needed`` are kept."""

    def __init__(self, needed: set[str], visible: set[str]) -> None:
        self.needed = needed
        self.visible = visible
        self.asked: list[frozenset[str]] = []

    def __call__(self, kept: frozenset[str]) -> Any:
        """Return a check in which weak layers show their errors until they are kept."""
        self.asked.append(kept)
        if self.needed <= kept:
            return check(run(outputs=(output("y", 1e-4),))).check
        return check(chain(dict.fromkeys(self.visible - kept, 0.4))).check


class Other:
    """A replacement for the check of the other mixed policy, which passes or fails."""

    def __init__(self, *, passes: bool) -> None:
        self.passes = passes
        self.count = 0

    def __call__(self) -> Any:
        """Return the check of the other policy."""
        self.count += 1
        return check(run(outputs=(output("y", 1e-4 if self.passes else 0.4),))).check


def explained(
    trials: Any,
    budget: Budget = PLENTY,
    choices: Choices | None = CHOICES,
    other: Other | None = None,
) -> Any:
    """Return a failed check with the results of its trials."""
    failed = check(chain({})).check
    assert failed is not None
    alternative = Alternative(policy="mixed_float16", trial=other) if other is not None else None
    return check_trials.explain(failed, choices, trials, budget, alternative)


@THOROUGH
@given(st.sets(st.sampled_from(NAMES), min_size=1, max_size=4), st.data())
@settings(max_examples=examples(100), deadline=None)
def test_the_set_is_found_and_is_minimal(needed: set[str], data: st.DataObject) -> None:
    """
    The returned set is minimal, for each choice of weak layers that show errors and of other layers
    with irrelevant errors.
    """
    visible = data.draw(st.sets(st.sampled_from(NAMES)))
    trials = Trials(needed, visible)
    result = explained(trials)
    assert set(result.advice.layers) == needed
    assert len(set(trials.asked)) == len(trials.asked) == result.advice.trials
    assert frozenset(needed) in trials.asked


def test_nothing_helps() -> None:
    """If the check fails even with all layers in float32, no set is suggested."""
    result = explained(Trials({"net/none"}, {"net/l2"}))
    assert result.advice.layers == ()
    assert not result.advice.exhausted
    assert result.runs[0].origin.path == "net/l2"


def test_without_a_run_in_float32_no_statement_is_made_about_it() -> None:
    """If the run with all layers in float32 fails to run, it is not reported as a failed check."""

    def trial(kept: frozenset[str]) -> Any:
        if not kept:
            return check(chain({"net/l1": 0.4})).check
        raise UsageError("contradictory options")

    result = explained(trial).advice
    assert result.layers == ()
    assert result.exhausted


@pytest.mark.parametrize(("seconds", "count"), [(20, 3), (1000, 5)])
def test_a_long_diagnosis_leaves_time_for_trials(
    monkeypatch: pytest.MonkeyPatch, seconds: int, count: int
) -> None:
    """
    A long diagnosis leaves time for trials, because it compares layers in more rows than the check,
    and the budget is for checks.
    """
    inner, clock = Trials({"net/l1", "net/l6"}, {"net/l1", "net/l6", "net/l7"}), [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])

    def trial(kept: frozenset[str]) -> Any:
        clock[0] += 40 if kept else 60
        return inner(kept)

    result = explained(trial, Budget(trials=100, seconds=seconds)).advice
    assert {"net/l1", "net/l6"} <= set(result.layers)
    assert (len(inner.asked), result.exhausted) == (count, False)


@pytest.mark.parametrize(("trials", "layers"), [(1, ()), (2, NAMES)])
def test_search_stops_at_its_budget(trials: int, layers: tuple[str, ...]) -> None:
    """
    A search that reaches its budget returns the best set so far, or reports that it was cut short.
    """
    asked = Trials({"net/l1", "net/l6"}, set())
    result = explained(asked, Budget(trials=trials, seconds=60))
    assert len(asked.asked) == trials
    assert result.advice.layers == layers
    assert result.advice.exhausted is not bool(layers)


def test_a_second_file_is_diagnosed_and_not_changed() -> None:
    """A check of two files has a diagnosis but no suggestion."""
    trials = Trials({"net/l1"}, {"net/l1"})
    result = explained(trials, choices=None)
    assert trials.asked == [frozenset()]
    assert result.advice is None
    assert result.runs[0].origin.path == "net/l1"


def test_a_set_that_cannot_run_is_widened() -> None:
    """
    A set that cannot run is extended, because an op of Keras 2 needs all its inputs in one dtype.
    """
    inner = Trials({"net/l3", "net/l4"}, {"net/l3"})

    def trial(kept: frozenset[str]) -> Any:
        if kept == {"net/l3"}:
            raise WorkerError("not-traceable", "mixed dtypes")
        return inner(kept)

    assert explained(trial).advice.layers == ("net/l3", "net/l4")


def test_a_child_that_crashed_ends_the_search() -> None:
    """A crash of the child ends the search, and the results so far are reported."""

    def trial(kept: frozenset[str]) -> Any:
        if not kept:
            return check(chain({"net/l1": 0.4})).check
        raise WorkerError("crashed", "it is gone", ended=True)

    result = explained(trial)
    assert result.advice.exhausted
    assert result.runs[0].origin.path == "net/l1"


def test_failed_diagnosis_does_not_change_the_check() -> None:
    """
    If the diagnosis cannot run, the failed check is reported without a cause and a suggestion.
    """

    def trial(_: frozenset[str]) -> Any:
        raise WorkerError("memory", "too large")

    failed = check(chain({})).check
    assert failed is not None
    assert check_trials.explain(failed, CHOICES, trial, PLENTY) == failed
    assert replace(failed, advice=None) == failed


@pytest.mark.parametrize("passes", [True, False])
def test_another_policy_is_tried_if_most_layers_have_to_stay(*, passes: bool) -> None:
    """
    If most layers must stay in float32, the other mixed policy is tried once, and the set is
    reported relative to all layers that could stay.
    """
    other = Other(passes=passes)
    result = explained(Trials(set(NAMES[:5]), set()), other=other).advice
    assert result.layers == NAMES[:5]
    assert result.choices == len(NAMES)
    assert result.is_unfit
    assert result.policy == ("mixed_float16" if passes else None)
    assert other.count == 1


def test_no_other_policy_is_tried_if_half_of_the_layers_are_enough() -> None:
    """If half of the layers must stay in float32, no other policy is tried."""
    other = Other(passes=True)
    result = explained(Trials(set(NAMES[:4]), set()), other=other).advice
    assert result.layers == NAMES[:4]
    assert not result.is_unfit
    assert result.policy is None
    assert other.count == 0


@pytest.mark.parametrize("passes", [True, False])
def test_another_policy_is_tried_if_no_layers_are_enough(*, passes: bool) -> None:
    """
    If no set of layers is sufficient, the other policy is tried, because the code of a layer may
    overflow in only one of them.
    """
    result = explained(Trials({"net/none"}, {"net/l2"}), other=Other(passes=passes)).advice
    assert result.layers == ()
    assert result.is_unfit is passes
    assert result.policy == ("mixed_float16" if passes else None)


def test_another_policy_is_tried_if_the_search_ends_without_a_set() -> None:
    """
    If the search ends without a set, as in a deep chain in which each trial adds a few layers, the
    other policy is tried.
    """
    trials = Trials({"net/l1", "net/l6"}, set())
    result = explained(trials, Budget(trials=2, seconds=60), other=Other(passes=True)).advice
    assert len(trials.asked) == 1
    assert result.exhausted
    assert result.is_unfit
    assert result.policy == "mixed_float16"


@pytest.mark.parametrize("trials", [3, 6, 9])
def test_a_trial_of_the_budget_is_reserved_for_the_other_policy(trials: int) -> None:
    """
    One trial of the budget is reserved for the other policy, so the search ends one trial earlier
    with the best set so far.
    """
    asked, other = Trials(set(NAMES[:5]), set()), Other(passes=True)
    result = explained(asked, Budget(trials=trials, seconds=60), other=other).advice
    assert len(asked.asked) < trials
    assert other.count == 1
    assert result.trials == len(asked.asked) + 1
    assert result.policy == "mixed_float16"


def test_a_policy_that_cannot_run_is_not_advised() -> None:
    """A policy that cannot run, such as one with a missing kernel, is not suggested."""

    def fails() -> Any:
        raise WorkerError("no-kernel", "no kernel")

    failed = check(chain({})).check
    assert failed is not None
    result = check_trials.explain(
        failed,
        CHOICES,
        Trials(set(NAMES), set()),
        PLENTY,
        Alternative(policy="mixed_float16", trial=fails),
    )
    assert result.advice is not None
    assert result.advice.layers == NAMES
    assert result.advice.policy is None
