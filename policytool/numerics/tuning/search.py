"""
The search for layers to keep in float32: group testing with sets of layers, within a budget. Each
set is tried at most once.

A set *passes* if its trial meets the objective. The search assumes that a set passes if one of its
subsets passes, which may be wrong if errors cancel out. Every set that the search returns was
tried. For a set that it reports as minimal, the removal of each layer was tried too.
"""

from __future__ import annotations

import itertools
import math
import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from policytool.numerics.tuning.results import Ending, Split
from policytool.support.errors import UsageError, short

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from policytool.numerics.tuning.results import Trial

    Kept = frozenset[str]
    Run = Callable[[Kept], Trial]
    """Runs the model with these layers in float32."""

MAX_TRIALS: Final = 100
"""The default for the maximum number of trials."""

_FEW: Final = 12
"""Up to this number of candidates, the search converts each separately and tries smaller sets."""

_HOPELESS: Final = 3.0
"""
A smaller set is not tried if its expected excess is above this. The expected excess is the root of
the sum of the squared excesses of the layers that the set converts, each converted separately.
"""

_MISSES: Final = 30
"""The search stops after this number of smaller sets that fail in sequence."""

_MANY_KEPT: Final = 6
"""From this number of kept layers on, the search measures the error of each group of layers."""

_GROUPS: Final = 16


class ExhaustedError(Exception):
    """The budget does not allow another trial."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending)
        self.ending = ending


@dataclass(frozen=True, kw_only=True, slots=True)
class Budget:
    """The limits of a search."""

    trials: float = MAX_TRIALS
    """The number of trials; infinite if only the time is limited."""

    seconds: float = math.inf


def parse_budget(text: str) -> Budget:
    """
    Return the budget that ``--budget`` describes: a number of trials, or of seconds with ``s``.

    :raises UsageError: if the text has another form, or the number is 0.
    """
    match = re.fullmatch(r"([0-9]{1,9})(s?)", text)
    if match is None or not int(match[1]):
        raise UsageError(
            f"the budget {short(text)!r} is neither a number of trials, such as 50, nor of "
            "seconds, such as 600s"
        )
    number = int(match[1])
    return Budget(trials=math.inf, seconds=number) if match[2] else Budget(trials=number)


@dataclass(frozen=True, kw_only=True, slots=True)
class Hints:
    """The information for a search before its first trial."""

    candidates: tuple[str, ...]
    """The paths of the candidate layers, in the order of the model."""

    groups: tuple[frozenset[str], ...] = ()
    """Candidates that are best kept together, such as a wrapper and its layer."""

    proposals: tuple[frozenset[str], ...] = ()
    """Sets to try first."""

    losses: Mapping[str, float] = field(default_factory=dict)
    """The expected loss of each candidate in 16 bits, in any unit."""


class Trials:
    """The trials of a search: runs each set at most once, within the budget."""

    def __init__(
        self,
        run: Run,
        budget: Budget,
        known: Sequence[Trial] = (),
        *,
        start: float | None = None,
    ) -> None:
        """Start a search; the time budget counts from ``start``, or from now if it is None."""
        self._run = run
        self._budget = budget
        self._start = time.monotonic() if start is None else start
        self._by_set: dict[Kept, Trial] = {frozenset(trial.kept): trial for trial in known}

    @property
    def made(self) -> tuple[Trial, ...]:
        """All trials in the order in which they ran."""
        return tuple(self._by_set.values())

    def known(self, kept: Kept) -> Trial | None:
        """Return the trial of a set; None if it was not tried."""
        return self._by_set.get(kept)

    def __call__(self, kept: Kept) -> Trial:
        """
        Return the trial of a set.

        :raises ExhaustedError: if the budget does not allow it.
        """
        if kept not in self._by_set:
            if len(self._by_set) >= self._budget.trials:
                raise ExhaustedError(Ending.TRIALS)
            if time.monotonic() - self._start > self._budget.seconds:
                raise ExhaustedError(Ending.TIME)
            self._by_set[kept] = self._run(kept)
        return self._by_set[kept]


class Search:
    """A search. Its best set so far can be read at any time."""

    def __init__(self, hints: Hints, trials: Trials) -> None:
        self.hints = hints
        self.trials = trials
        self.uses_validation = False
        """
        Whether a trial must also pass on the validation inputs, because a set failed on them.
        """

        self.is_minimum = False
        self._everything = frozenset(hints.candidates)
        self._place = {path: place for place, path in enumerate(hints.candidates)}
        self._losses = {path: hints.losses.get(path, 0.0) for path in hints.candidates}

    @property
    def best(self) -> Trial | None:
        """
        The passing trial with the fewest layers, preferably one that also passes on the validation
        inputs; None if no trial passes.
        """
        passing_trials = self._passing()
        valid = [trial for trial in passing_trials if self._is_valid(trial)]
        return min(valid or passing_trials, key=self._rank, default=None)

    @property
    def _smallest(self) -> Trial | None:
        """The passing trial with the fewest layers, from which the search continues."""
        return min(self._passing(), key=self._rank, default=None)

    @property
    def closest(self) -> Trial | None:
        """The trial with the smallest excess; if several are equal, with the fewest kept layers."""
        return min(
            self.trials.made, key=lambda trial: (self.excess(trial), len(trial.kept)), default=None
        )

    def split_of(self, split: Split) -> Split:
        """Return the inputs that validate the result, according to the split of the inputs."""
        return Split.USED if self.uses_validation else split

    def run(self) -> Ending:
        """Search until a minimal set passes on the validation inputs, or the budget ends."""
        try:
            ending = self._find()
            if ending is Ending.MINIMAL and not self._is_valid(self._smallest):
                self.uses_validation = True
                ending = self._find()
        except ExhaustedError as error:
            return Ending.MINIMAL if self._is_proven_minimal() else error.ending
        return ending

    def _is_proven_minimal(self) -> bool:
        """Return whether the removal of each layer from the best set was tried, and failed."""
        best = self.best
        if best is None or best is not self._smallest:
            return False
        removals = [self.trials.known(frozenset(best.kept) - {path}) for path in best.kept]
        return all(trial is not None and not self._passes(trial) for trial in removals)

    def _find(self) -> Ending:
        """Search a minimal set, and return why the search ended."""
        self.is_minimum = False
        if self._passes_with(frozenset()):
            self.is_minimum = True
            return Ending.MINIMAL
        if not self._passes_with(self._everything):
            return Ending.IMPOSSIBLE
        self._start()
        self._keep_ends()
        self._weigh_groups()
        self._shrink()
        self._minimize()
        return Ending.MINIMAL

    def excess(self, trial: Trial) -> float:
        """Return the excess of a trial, on the validation inputs too if the search uses them."""
        if self.uses_validation and trial.validation is not None:
            return max(trial.excess, trial.validation)
        return trial.excess

    def _passes(self, trial: Trial) -> bool:
        return self.excess(trial) <= 1

    @staticmethod
    def _is_valid(trial: Trial | None) -> bool:
        """Return whether a trial passes on the validation inputs, or there are none."""
        return trial is None or trial.validation is None or trial.validation <= 1

    def _passes_with(self, kept: Kept) -> bool:
        return self._passes(self.trials(kept))

    def _passing(self) -> list[Trial]:
        return [trial for trial in self.trials.made if self._passes(trial)]

    def _rank(self, trial: Trial) -> tuple[float, ...]:
        return len(trial.kept), self.excess(trial)

    def _smallest_passing(self) -> Kept:
        smallest = self._smallest
        return frozenset(smallest.kept) if smallest is not None else self._everything

    def _start(self) -> None:
        """Try the proposed sets, and then the layers with the largest losses."""
        for kept in self.hints.proposals:
            if kept < self._smallest_passing() and self._passes_with(kept):
                break
        self._keep_most_lossy()

    def _keep_most_lossy(self) -> None:
        """Find by bisection how many of the layers with the largest losses must be kept."""
        groups = sorted(
            self._groups(self._everything),
            key=lambda group: (-self._loss(group), len(group), self._places(group)),
        )
        sets = [_union(groups[:count]) for count in range(len(groups) + 1)]
        sets = [kept for kept in sets if len(kept) < len(self._smallest_passing())]
        failing_count, passing_count = 0, len(sets)
        count = 1
        while count < passing_count and not self._passes_with(sets[count]):
            failing_count, count = count, count * 2
        self._bisect(sets, failing_count, min(passing_count, count))

    def _keep_ends(self) -> None:
        """
        Keep the first or the last layers instead, if fewer of them are sufficient. If many small
        errors add up, the effect of a layer depends on the number of layers that follow it.
        """
        order = self.hints.candidates
        if len(order) <= _FEW:
            return
        for layers in (order, order[::-1]):
            sets = [frozenset(layers[:count]) for count in range(len(layers) + 1)]
            sets = [kept for kept in sets if len(kept) < len(self._smallest_passing())]
            if self._passes_with(sets[-1]):
                self._bisect(sets, 0, len(sets) - 1)

    def _bisect(self, sets: Sequence[Kept], failing: int, passing: int) -> None:
        """
        Find the smallest passing set by bisection.

        :param sets: sets in ascending order, each of which contains the previous one
        :param failing: the index of a set that fails, or 0
        :param passing: the index of a set that passes, or the number of sets
        """
        while passing - failing > 1:
            middle = (passing + failing) // 2
            if self._passes_with(sets[middle]):
                passing = middle
            else:
                failing = middle

    def _shrink(self) -> None:
        """
        Convert more layers of the best set, until the conversion of any other layer fails. First
        try to convert groups of layers together, and then halves of them.
        """
        while True:
            kept = self._smallest_passing()
            groups = sorted(self._groups(kept), key=self._need)
            kept = self._without(kept, groups)
            for group in groups:
                if len(group) > 1:
                    parts = [frozenset({path}) for path in self._by_need(group & kept)]
                    kept = self._without(kept, parts)
            smaller = [path for path in self._by_need(kept) if self._passes_with(kept - {path})]
            if not smaller and self._smallest_passing() == kept:
                return

    def _without(self, kept: Kept, groups: Sequence[Kept]) -> Kept:
        """Return a set without the groups that it does not need to pass."""
        if not groups:
            return kept
        smaller_set = kept - _union(groups)
        if self._passes_with(smaller_set):
            return smaller_set
        if len(groups) == 1:
            return kept
        half = (len(groups) + 1) // 2
        kept = self._without(kept, groups[:half])
        return self._without(kept, groups[half:])

    def _weigh_groups(self) -> None:
        """
        Measure the effect of each part of a deep model on its outputs, rank the layers by it, and
        search again. If many small errors add up, the effect of a layer depends on its position.
        """
        if len(self._smallest_passing()) < _MANY_KEPT or len(self.hints.candidates) <= _FEW:
            return
        order = self.hints.candidates
        size = -(-len(order) // _GROUPS)
        for start in range(0, len(order), size):
            part = order[start : start + size]
            excess = self.excess(self.trials(self._everything - set(part)))
            total = math.hypot(*(self._losses[path] for path in part))
            for path in part:
                share = self._losses[path] / total if 0 < total < math.inf else len(part) ** -0.5
                self._losses[path] = excess * share
        self._keep_most_lossy()

    def _minimize(self) -> None:
        """Try smaller sets, if there are few candidates."""
        order = self.hints.candidates
        if len(order) > _FEW:
            return
        excess_by_layer = {
            path: self.excess(self.trials(self._everything - {path})) for path in order
        }
        self._losses.update(excess_by_layer)
        needed = frozenset(path for path in order if excess_by_layer[path] > 1)
        before, was_cut = None, False
        while before != self._smallest_passing() and not was_cut:
            before = self._smallest_passing()
            for misses, (kept, expected) in enumerate(
                self._untried_sets(needed, len(before) - 1, excess_by_layer)
            ):
                was_cut = expected > _HOPELESS or misses == _MISSES
                if was_cut or self._passes_with(kept):
                    break
        self._shrink()
        self.is_minimum = not was_cut

    def _untried_sets(
        self, needed: Kept, size: int, excess_by_layer: Mapping[str, float]
    ) -> Iterator[tuple[Kept, float]]:
        """
        Yield the sets of a size that may pass and were not tried, the most promising first.

        A set has the needed layers and some other candidates. Its expected excess adds up that of
        the candidates that it converts, each measured separately, like independent errors.

        :param excess_by_layer: the excess if only this candidate is converted
        """
        others = [path for path in self.hints.candidates if path not in needed]
        if size < len(needed):
            return
        sets = [
            needed | frozenset(added_layers)
            for added_layers in itertools.combinations(others, size - len(needed))
        ]
        expected = {
            kept: math.hypot(*(excess_by_layer[path] for path in others if path not in kept))
            for kept in sets
        }
        for kept in sorted(
            sets, key=lambda layer_set: (expected[layer_set], self._places(layer_set))
        ):
            if not self._is_known_to_fail(kept):
                yield kept, expected[kept]

    def _is_known_to_fail(self, kept: Kept) -> bool:
        """Return whether this set, or a larger set that contains it, was tried and failed."""
        return any(
            kept <= frozenset(trial.kept) and not self._passes(trial) for trial in self.trials.made
        )

    def _groups(self, kept: Kept) -> list[Kept]:
        """Return the layers of a set in groups, in the order of the model."""
        remaining = set(kept)
        groups: list[Kept] = []
        for group in (*self.hints.groups, *(frozenset({path}) for path in self.hints.candidates)):
            if part := frozenset(group & remaining):
                groups.append(part)
                remaining -= part
        return sorted(groups, key=self._places)

    def _by_need(self, kept: Kept) -> list[str]:
        """Return the layers of a set, the least needed first."""
        return sorted(kept, key=lambda path: self._need(frozenset({path})))

    def _need(self, group: Kept) -> tuple[float, ...]:
        """Return the sort key of a group. The group with the lowest loss is converted first."""
        return (self._loss(group), *self._places(group))

    def _loss(self, group: Kept) -> float:
        """Return the largest loss of the layers in a group."""
        return max((self._losses[path] for path in group), default=0.0)

    def _places(self, kept: Kept) -> tuple[int, ...]:
        """Return the positions of layers in the model, as a sort key."""
        return tuple(sorted(self._place[path] for path in kept))


def _union(groups: Sequence[frozenset[str]]) -> frozenset[str]:
    return frozenset().union(*groups)
