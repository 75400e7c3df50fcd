"""
Random models that ``migrate --target`` converts to the other library load there, predict the same,
keep their dtypes and the state of their optimizers, and come back.

``make fuzz-convert`` does this with as many others as one likes.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

import pytest

from tests.helpers.sampling import EVERY_CASE, sampled
from tests.random_models.campaign import run_campaign
from tests.random_models.outcomes import GOOD
from tests.random_models.recipes import LIBRARIES, recipe_from_seed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.random_models.outcomes import Outcome

pytestmark = pytest.mark.compat

SEEDS: Final = sampled("random models", range(30), share=5)

Outcomes = dict[int, "Outcome"]


@pytest.fixture(scope="session")
def outcomes(
    compat_python: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Outcomes]:
    """Return a function that gives what came of the models of a library."""

    @cache
    def outcomes_of(library: str) -> Outcomes:
        recipes = [recipe_from_seed(seed, library) for seed in SEEDS]
        folder = tmp_path_factory.mktemp(library).resolve()
        return {item.seed: item for item in run_campaign(recipes, compat_python, folder)}

    return outcomes_of


def _cases() -> list[object]:
    return [
        pytest.param(
            library,
            seed,
            marks=pytest.mark.xdist_group(f"random models of {library}"),
        )
        for library in LIBRARIES
        for seed in SEEDS
    ]


@pytest.mark.parametrize(("library", "seed"), _cases())
def test_converted_random_models_are_correct_or_rejected(
    outcomes: Callable[[str], Outcomes], library: str, seed: int
) -> None:
    """A rejected model has a reason."""
    one = outcomes(library)[seed]
    if one.word == "reference failed":
        pytest.skip(f"{library} does not build the model: {one.reason}")
    assert one.word in GOOD or (one.word.startswith("refused") and one.reason), one


@pytest.mark.parametrize(
    "library",
    [
        pytest.param(item, marks=pytest.mark.xdist_group(f"random models of {item}"))
        for item in LIBRARIES
    ],
)
def test_most_random_models_are_converted(
    outcomes: Callable[[str], Outcomes], library: str
) -> None:
    """A test in which every model is rejected would prove nothing."""
    built = [item for item in outcomes(library).values() if item.word != "reference failed"]
    # Of the few of a sample, more can be among those that are refused.
    built_share, good_share = (0.8, 0.6) if EVERY_CASE else (0.5, 0.3)
    assert len(built) > built_share * len(SEEDS)
    assert sum(item.word in GOOD for item in built) > good_share * len(built)
