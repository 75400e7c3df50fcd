"""The search for layers to keep in float32, with trials that need no TensorFlow."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policytool.commands import check_trials
from policytool.commands.check_trials import Budget
from policytool.numerics.verdicts.kept_layers import Choices
from policytool.support.errors import WorkerError
from tests.helpers.example_checks import check, output, run
from tests.helpers.marks import THOROUGH
from tests.numerics.verdicts.test_origins import model, traced

NAMES = tuple(f"net/l{number}" for number in range(8))
CHOICES = Choices(paths=NAMES)
PLENTY = Budget(trials=100, seconds=60)


def chain(errors: dict[str, float]) -> Any:
    """Return a run of eight layers in a row with errors of their own."""
    return model(
        *(
            traced(
                name, (place - 1,) if place else (), begun=place, isolated=errors.get(name, 1e-4)
            )
            for place, name in enumerate(NAMES)
        )
    )


class Trials:
    """Stand-ins for runs: the check passes if all of ``needed`` are kept."""

    def __init__(self, needed: set[str], visible: set[str]) -> None:
        self.needed = needed
        self.visible = visible
        self.asked: list[frozenset[str]] = []

    def __call__(self, kept: frozenset[str]) -> Any:
        """Return a check: weak layers show their errors until they are kept."""
        self.asked.append(kept)
        if self.needed <= kept:
            return check(run(outputs=(output("y", 1e-4),))).check
        return check(chain(dict.fromkeys(self.visible - kept, 0.4))).check


def explained(trials: Any, budget: Budget = PLENTY, choices: Choices | None = CHOICES) -> Any:
    """Return a failed check with what its trials found."""
    failed = check(chain({})).check
    assert failed is not None
    return check_trials.explain(failed, choices, trials, budget)


@THOROUGH
@given(st.sets(st.sampled_from(NAMES), min_size=1, max_size=4), st.data())
@settings(max_examples=100, deadline=None)
def test_the_set_is_found_and_is_minimal(needed: set[str], data: st.DataObject) -> None:
    """Whichever of the weak layers show it, and others that show errors which do not matter."""
    visible = data.draw(st.sets(st.sampled_from(NAMES)))
    trials = Trials(needed, visible)
    found = explained(trials)
    assert set(found.advice.layers) == needed
    assert len(set(trials.asked)) == len(trials.asked) == found.advice.trials
    assert frozenset(needed) in trials.asked


def test_nothing_helps() -> None:
    """Not even all layers in float32."""
    found = explained(Trials({"net/none"}, {"net/l2"}))
    assert found.advice.layers == ()
    assert not found.advice.exhausted
    assert found.runs[0].origin.path == "net/l2"


@pytest.mark.parametrize(("trials", "layers"), [(1, ()), (2, NAMES)])
def test_a_search_ends_with_its_budget(trials: int, layers: tuple[str, ...]) -> None:
    """With the best set so far; without one it says that it was cut short."""
    asked = Trials({"net/l1", "net/l6"}, set())
    found = explained(asked, Budget(trials=trials, seconds=60))
    assert len(asked.asked) == trials
    assert found.advice.layers == layers
    assert found.advice.exhausted is not bool(layers)


def test_a_second_file_is_diagnosed_and_not_changed() -> None:
    """There is an origin, and no advice."""
    trials = Trials({"net/l1"}, {"net/l1"})
    found = explained(trials, choices=None)
    assert trials.asked == [frozenset()]
    assert found.advice is None
    assert found.runs[0].origin.path == "net/l1"


def test_a_set_that_cannot_run_is_widened() -> None:
    """An op of Keras 2 needs all of its inputs in one dtype."""
    inner = Trials({"net/l3", "net/l4"}, {"net/l3"})

    def trial(kept: frozenset[str]) -> Any:
        if kept == {"net/l3"}:
            raise WorkerError("not-traceable", "mixed dtypes")
        return inner(kept)

    assert explained(trial).advice.layers == ("net/l3", "net/l4")


def test_a_child_that_crashed_ends_the_search() -> None:
    """What is known of the failed check is reported all the same."""

    def trial(kept: frozenset[str]) -> Any:
        if not kept:
            return check(chain({"net/l1": 0.4})).check
        raise WorkerError("crashed", "it is gone", ended=True)

    found = explained(trial)
    assert found.advice.exhausted
    assert found.runs[0].origin.path == "net/l1"


def test_a_diagnosis_that_cannot_run_leaves_the_check_as_it_is() -> None:
    """There is neither an origin nor advice."""

    def trial(_: frozenset[str]) -> Any:
        raise WorkerError("memory", "too large")

    failed = check(chain({})).check
    assert failed is not None
    assert check_trials.explain(failed, CHOICES, trial, PLENTY) == failed
    assert replace(failed, advice=None) == failed
