"""The search for layers to keep in float32, in models whose error is a formula."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policytool.numerics.check_results.verdicts import Answer
from policytool.numerics.tuning.results import Ending, Promise, Trial
from policytool.numerics.tuning.search import Budget, Hints, Search, Trials
from tests.helpers.marks import THOROUGH, examples

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    Kept = frozenset[str]

UNLIMITED: Final = 10_000
OVERFLOW: Final = math.inf


@dataclass(frozen=True, kw_only=True, slots=True)
class Model:
    """A model whose error is the sum of the errors of its converted layers."""

    errors: Mapping[str, Sequence[float]]
    """What each layer adds to the output in 16 bits; infinity overflows."""

    pairs: frozenset[Kept] = frozenset()
    """Layers that overflow together."""

    validation: float | None = None
    """The error on the validation inputs, as a multiple of that on the others."""

    @property
    def layers(self) -> tuple[str, ...]:
        return tuple(self.errors)

    def excess(self, kept: Kept) -> float:
        """Return the length of the sum of the errors of the converted layers."""
        converted = [path for path in self.layers if path not in kept]
        if any(pair <= set(converted) for pair in self.pairs):
            return OVERFLOW
        added = [self.errors[path] for path in converted]
        if any(math.isinf(part) for item in added for part in item):
            return OVERFLOW
        return math.hypot(*map(math.fsum, zip(*added, strict=True)))

    def trial(self, kept: Kept) -> Trial:
        """Return the trial of a set of layers."""
        excess = self.excess(kept)
        return Trial(
            kept=tuple(path for path in self.layers if path in kept),
            excess=excess,
            validation=None if self.validation is None else excess * self.validation,
            error=excess if math.isfinite(excess) else None,
            agreement=None,
            gradient_error=None,
        )

    def smallest(self, limit: float = 1.0) -> int | None:
        """Return the size of the smallest set that passes, or None."""
        passing = (len(kept) for kept in subsets(self.layers) if self.excess(kept) <= limit)
        return min(passing, default=None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Searched:
    """The result of a search."""

    search: Search
    ending: Ending
    runs: tuple[Kept, ...]
    """Every run of the model."""

    @property
    def kept(self) -> Kept | None:
        best = self.search.best
        return frozenset(best.kept) if best is not None else None


def searched(
    model: Model,
    *,
    trials: int = UNLIMITED,
    seconds: float = math.inf,
    known: Sequence[Trial] = (),
    **hints: Any,
) -> Searched:
    """Search a model."""
    runs: list[Kept] = []

    def run(kept: Kept) -> Trial:
        runs.append(kept)
        return model.trial(kept)

    budget = Budget(trials=trials, seconds=seconds)
    search = Search(
        Hints(candidates=model.layers, **hints),
        Trials(run, budget, known),
    )
    return Searched(ending=search.run(), search=search, runs=tuple(runs))


def subsets(layers: Sequence[str]) -> Iterator[Kept]:
    """Yield all sets of layers, the smallest first."""
    for size in range(len(layers) + 1):
        yield from map(frozenset, itertools.combinations(layers, size))


def named(errors: Sequence[float | Sequence[float]]) -> Mapping[str, Sequence[float]]:
    """Return errors by layer names: l0, l1, and so on."""
    return {
        f"l{place}": [one] if isinstance(one, int | float) else one
        for place, one in enumerate(errors)
    }


def planted(count: int, weak: Sequence[int], error: float = OVERFLOW) -> Model:
    """Return a model with this number of layers, of which only some have large errors."""
    return Model(errors=named([error if place in weak else 0.001 for place in range(count)]))


MAGNITUDES: Final = st.one_of(
    st.floats(-3, 1).map(lambda power: 10.0**power), st.sampled_from([0.0, 0.5, 1.0, OVERFLOW])
)


@st.composite
def monotone_models(draw: st.DrawFn, most: int = 8) -> Model:
    """Draw a model in which each additional converted layer increases the error."""
    errors = named(draw(st.lists(MAGNITUDES, min_size=1, max_size=most)))
    pairs = st.frozensets(st.sampled_from(list(errors)), min_size=2, max_size=2)
    return Model(
        errors=errors,
        pairs=draw(st.frozensets(pairs, max_size=2)) if len(errors) > 1 else frozenset(),
    )


@st.composite
def models(draw: st.DrawFn, most: int = 8) -> Model:
    """Draw a model whose errors have directions, so that they can cancel."""
    part = st.floats(-2, 2, allow_nan=False)
    vectors = st.tuples(part, part, part)
    errors = st.lists(st.one_of(vectors, st.just((OVERFLOW,) * 3)), min_size=1, max_size=most)
    validation = st.one_of(st.none(), st.floats(0.5, 2))
    return Model(errors=named(draw(errors)), validation=draw(validation))


@st.composite
def hints(draw: st.DrawFn, model: Model) -> dict[str, Any]:
    """Draw a possible diagnosis of a model, correct or wrong."""
    some = st.frozensets(st.sampled_from(model.layers))
    return {
        "rankings": tuple(
            {path: draw(MAGNITUDES) for path in model.layers}
            for _ in range(draw(st.integers(0, 2)))
        ),
        "groups": tuple(item for item in draw(st.lists(some, max_size=2)) if len(item) > 1),
    }


@THOROUGH
@settings(max_examples=examples(300))
@given(data=st.data(), model=models())
def test_returned_set_passes(data: st.DataObject, model: Model) -> None:
    """The returned set passes, even if errors cancel or the diagnosis is wrong."""
    result = searched(model, **data.draw(hints(model)))
    if result.ending is Ending.IMPOSSIBLE:
        assert not model.excess(frozenset(model.layers)) <= 1
    else:
        assert result.kept is not None
        assert model.excess(result.kept) <= 1
        assert result.kept in result.runs


@THOROUGH
@settings(max_examples=examples(300))
@given(data=st.data(), model=models())
def test_each_removal_from_a_minimal_set_fails(data: st.DataObject, model: Model) -> None:
    """
    A set is reported as minimal only if each removal of a single layer fails, and a trial shows it,
    which also converts the layer.
    """
    result = searched(model, **data.draw(hints(model)))
    assert result.ending in {Ending.MINIMAL, Ending.IMPOSSIBLE}
    for path in result.kept or ():
        assert result.kept is not None
        trial = model.trial(result.kept - {path})
        assert trial.excess > 1 or trial.is_refuted
        shown = result.search.failure(result.kept, frozenset({path}))
        assert shown is not None
        assert path not in shown.kept
        assert shown.excess > 1 or shown.is_refuted


@THOROUGH
@settings(max_examples=examples(200))
@given(data=st.data(), model=monotone_models())
def test_minimum_is_the_smallest_of_all_sets(data: st.DataObject, model: Model) -> None:
    """The search reports a minimum if no errors cancel."""
    result = searched(model, **data.draw(hints(model)))
    if result.search.is_minimum:
        assert result.kept is not None
        assert len(result.kept) == model.smallest()


@THOROUGH
@settings(max_examples=examples(200))
@given(data=st.data(), model=models(), trials=st.integers(1, 12))
def test_budget_is_not_exceeded(data: st.DataObject, model: Model, trials: int) -> None:
    """The search uses at most its budget of trials and returns the best set so far."""
    result = searched(model, trials=trials, **data.draw(hints(model)))
    assert len(result.runs) <= trials
    assert len(set(result.runs)) == len(result.runs)
    if result.kept is not None:
        assert model.excess(result.kept) <= 1


@settings(max_examples=examples(100))
@given(data=st.data(), model=models())
def test_same_search_has_the_same_result(data: st.DataObject, model: Model) -> None:
    """The same search has the same trials in the same order and the same result."""
    known = data.draw(hints(model))
    first, second = (searched(model, **known) for _ in range(2))
    assert first.search.trials.made == second.search.trials.made
    assert (first.kept, first.ending) == (second.kept, second.ending)


@settings(max_examples=examples(100))
@given(data=st.data(), model=models(), trials=st.integers(1, 12))
def test_continued_search_has_the_result_of_a_complete_search(
    data: st.DataObject, model: Model, trials: int
) -> None:
    """A continued search runs only trials that are not recorded."""
    known = data.draw(hints(model))
    whole = searched(model, **known)
    first = searched(model, trials=trials, **known)
    rest = searched(model, known=first.search.trials.made, **known)
    assert not set(rest.runs) & set(first.runs)
    assert rest.kept is not None or whole.kept is None
    assert rest.ending is whole.ending


@pytest.mark.parametrize("weak", [(0,), (19,), (3, 4), (0, 7, 19), (2, 5, 11, 17)])
@pytest.mark.parametrize("error", [OVERFLOW, 40.0, 3.0])
def test_planted_layers_are_found(weak: tuple[int, ...], error: float) -> None:
    """Layers with large errors are found if the diagnosis ranks them first."""
    model = planted(20, weak, error)
    losses = {path: error if int(path[1:]) in weak else 0.001 for path in model.layers}
    result = searched(model, rankings=(losses,))
    assert set(result.kept or ()) == {f"l{place}" for place in weak}
    assert result.ending is Ending.MINIMAL
    assert len(result.runs) <= 4 + 3 * len(weak)


@THOROUGH
def test_many_small_errors_need_few_trials() -> None:
    """The estimates that each trial corrects replace most removals."""
    runs = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        sizes = np.exp(rng.normal(0, 0.7, 30))
        errors = rng.normal(size=(30, 16))
        errors *= (sizes / np.linalg.norm(errors, axis=1))[:, None]
        errors /= 0.55 * np.linalg.norm(errors.sum(0))
        model = Model(errors=named(errors.tolist()))
        rankings = [
            dict(zip(model.layers, sizes * np.exp(noise * rng.normal(size=30)), strict=True))
            for noise in (0.4, 1.0)
        ]
        runs.append(len(searched(model, rankings=rankings).runs))
    assert sum(runs) <= 22 * len(runs)


@pytest.mark.parametrize("weak", [(0,), (19,), (3, 4), (0, 7, 19), (2, 5, 11, 17)])
def test_planted_layers_are_found_without_a_diagnosis(weak: tuple[int, ...]) -> None:
    """Bisection needs a number of trials that grows logarithmically."""
    model = planted(20, weak)
    result = searched(model)
    assert set(result.kept or ()) == {f"l{place}" for place in weak}
    assert len(result.runs) <= 12 + 10 * len(weak)


def test_one_of_two_layers_that_overflow_together_is_kept() -> None:
    """If two layers overflow only together, one of them is kept."""
    errors = named([0.001] * 6)
    result = searched(Model(errors=errors, pairs=frozenset({frozenset({"l1", "l4"})})))
    assert set(result.kept or ()) in ({"l1"}, {"l4"})
    assert result.search.is_minimum


def test_nothing_is_kept_if_everything_can_be_converted() -> None:
    """If all layers can be converted, the first trial shows it and no layer is kept."""
    result = searched(planted(9, ()))
    assert result.kept == frozenset()
    assert result.runs == (frozenset(),)
    assert result.search.is_minimum


def test_objective_that_float32_does_not_meet_is_impossible() -> None:
    """An objective that float32 does not meet is reported as impossible after few trials."""
    layers = tuple(f"l{place}" for place in range(30))
    run = rows_model(layers, lambda _: Answer.SAFE, lambda _: 2.0)
    search = Search(
        Hints(candidates=layers, rankings=(dict.fromkeys(layers, 0.1),)), Trials(run, Budget())
    )
    assert search.run() is Ending.IMPOSSIBLE
    assert search.best is None
    assert search.closest is not None
    assert len(search.trials.made) <= 4


def test_other_set_is_found_if_the_validation_inputs_refute_one() -> None:
    """Two layers are enough on both halves of the inputs, but not the two that the search found."""
    squares = {"l0": (0.55, 0.95), "l1": (1.5, 1.5), "l2": (0.05, 0.1), "l3": (0.6, 0.6)}
    layers = tuple(squares)

    def run(kept: Kept) -> Trial:
        left = [pair for path, pair in squares.items() if path not in kept]
        excess, validation = (sum(pair[half] for pair in left) ** 0.5 for half in (0, 1))
        return Trial(
            kept=tuple(path for path in layers if path in kept),
            excess=excess,
            validation=validation,
            error=excess,
            agreement=None,
            gradient_error=None,
        )

    ranking = {"l1": 1.2, "l2": 0.8, "l3": 0.77, "l0": 0.74}
    search = Search(
        Hints(candidates=layers, rankings=(ranking,)),
        Trials(run, Budget(), [run(frozenset(layers))]),
    )
    assert search.run() is Ending.MINIMAL
    assert search.best is not None
    assert search.best.kept == ("l0", "l1")


def rows_model(
    layers: Sequence[str], answer: Callable[[Kept], Answer], excess: Callable[[Kept], float]
) -> Callable[[Kept], Trial]:
    """Return a run whose validation rows have this answer for a set."""
    order = tuple(layers)

    def run(kept: Kept) -> Trial:
        return Trial(
            kept=tuple(path for path in order if path in kept),
            excess=excess(kept),
            validation=0.5,
            error=0.0,
            agreement=None,
            gradient_error=None,
            promise=Promise(answer=answer(kept), rows=512),
        )

    return run


def held(
    answer: Callable[[Kept], Answer], weak: Kept = frozenset({"l0"}), *, rows_needed: int = 0
) -> Search:
    """
    Return a search in eight layers, of which the weak ones are needed on the rows of the search.
    """
    layers = tuple(f"l{place}" for place in range(8))
    run = rows_model(layers, answer, lambda kept: 0.5 if weak <= kept else 2.0)
    ranking = {path: 10.0 - place for place, path in enumerate(layers)}
    known = (run(frozenset(layers)),)
    hints = Hints(candidates=layers, rankings=(ranking,), rows_needed=rows_needed)
    search = Search(hints, Trials(run, Budget(trials=40), known))
    assert search.run() is Ending.MINIMAL
    return search


@pytest.mark.parametrize("more", range(7))
def test_layers_are_added_by_rank_until_the_set_holds_on_other_rows(more: int) -> None:
    """No more layers are added than needed; not all layers, which would convert nothing."""
    needed = frozenset(f"l{place}" for place in range(more + 1))
    search = held(lambda kept: Answer.SAFE if needed <= kept else Answer.NOT_SAFE)
    assert search.best is not None
    assert (frozenset(search.best.kept), search.margin) == (needed, more)
    assert search.is_minimum == (not more)


def test_no_layers_are_added_for_an_answer_that_no_set_can_have() -> None:
    """Too few rows are undecided also in float32."""
    search = held(lambda _: Answer.UNDECIDED)
    assert search.best is not None
    assert (search.best.kept, search.margin) == (("l0",), 0)


def test_few_rows_are_not_searched_for_a_set_that_they_do_not_refute_by_chance() -> None:
    """They refute all small sets but one; layers are only added, in the order of the ranking."""
    lucky = frozenset({"l0", "l7"})

    def answer(kept: Kept) -> Answer:
        return Answer.UNDECIDED if len(kept) > 3 or kept == lucky else Answer.NOT_SAFE

    search = held(answer, rows_needed=600)
    assert search.best is not None
    assert (search.best.kept, search.margin) == (("l0", "l1", "l2", "l3"), 3)
    assert lucky not in {frozenset(trial.kept) for trial in search.trials.made}


def test_undecided_set_is_returned_if_only_float32_is_safe() -> None:
    search = held(lambda kept: Answer.SAFE if len(kept) == 8 else Answer.UNDECIDED)
    assert search.best is not None
    assert (search.best.kept, search.margin) == (("l0",), 0)


def test_time_limit_ends_the_search_with_the_best_set() -> None:
    """The search ends at its time limit with the best set, and starts no trial after it."""
    result = searched(planted(20, (3, 9)), seconds=-1)
    assert result.ending is Ending.TIME
    assert result.runs == ()
    assert result.kept is None


def smallest_share(draw: Callable[[np.random.Generator], Model], count: int) -> float:
    """Return the share of models for which the search finds a set of the smallest size."""
    found = 0
    for seed in range(count):
        generator = np.random.default_rng(seed)
        model = draw(generator)
        noise = np.exp(generator.normal(0, 0.5, len(model.layers)))
        losses = {
            path: float(np.linalg.norm(model.errors[path]) * factor)
            for path, factor in zip(model.layers, noise, strict=True)
        }
        kept = searched(model, rankings=(losses,)).kept
        found += kept is not None and len(kept) == model.smallest()
    return found / count


def random_errors(generator: np.random.Generator) -> Model:
    """Return a model of three to eight layers with errors of random size and direction."""
    count = int(generator.integers(3, 9))
    sizes = 10 ** generator.uniform(-3, 0.3, count)
    vectors = generator.normal(size=(count, 8)) * sizes[:, None] / math.sqrt(8)
    return Model(errors=named([tuple(map(float, item)) for item in vectors]))


@THOROUGH
def test_small_models_get_the_smallest_set_nearly_always() -> None:
    """At most 1 of 20 models gets a larger set, because errors cancel."""
    assert smallest_share(random_errors, 150) >= 0.95


@pytest.mark.parametrize("is_reversed", [False, True])
def test_better_of_two_rankings_is_used(*, is_reversed: bool) -> None:
    """A ranking that is wrong costs few trials."""
    errors = [0.5] * 20 + [0.001] * 180
    model = Model(errors=named(errors))
    wrong = {path: float(place) for place, path in enumerate(model.layers)}
    rankings = [wrong, {path: -loss for path, loss in wrong.items()}]
    result = searched(model, trials=60, rankings=rankings[::-1] if is_reversed else rankings)
    assert result.kept is not None
    assert len(result.kept) <= 20
