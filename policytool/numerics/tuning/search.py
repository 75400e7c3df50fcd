"""
The search for layers to keep in float32: group testing with sets of layers, within a budget. Each
set is tried at most once.

A set *passes* if its trial meets the objective. The search assumes that a set passes if one of its
subsets passes, which may be wrong if errors cancel out. Every set that the search returns was
tried. For a set that it reports as minimal, trials show that it fails without each of its layers.

The search uses one half of the inputs. A set *holds* if the other half shows as much as it can. If
the minimal set does not hold, the search adds layers by its ranking until the set holds. These sets
contain each other, so the bound of the last one needs no correction for the number of sets: the
rows that hide the changes of a set also hide those of each larger set. If the rows are too few for
a bound, a set must pass on both halves from the start, and layers are added only while these rows
refute it. Sets that do not contain each other are not compared by their changed predictions: one of
many would change few of these rows by chance.
"""

from __future__ import annotations

import itertools
import math
import re
import time
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from policytool.numerics.check_results.verdicts import Answer
from policytool.numerics.tuning.results import Ending
from policytool.support.errors import UsageError, short

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from policytool.numerics.tuning.results import Trial

    Kept = frozenset[str]
    Run = Callable[[Kept], Trial]
    """Runs the model with these layers in float32."""

MAX_TRIALS: Final = 100
"""The default for the maximum number of trials."""

_EXPECTED: Final = 0.9
"""The expected excess for which layers are converted together, rather than one by one."""

_LIKELY: Final = 1.2
"""A set is not tried instead of a larger one if its expected excess is above this."""

_MISSES: Final = 4
"""
The search stops after this number of smaller sets of other layers that fail in sequence. It tries
none with as many layers or more: if so many errors add up, some sets pass by chance.
"""

_SPARE: Final = 2
"""The number of layers by which the smaller sets may differ from those with the largest losses."""

_LEAST_EXCESS: Final = 0.05
"""A smaller excess, such as that of no changed class, is not exact."""

_ROUNDS: Final = 8
"""The number of times that the losses are scaled to the excess of each trial."""

_INFINITE: Final = 1e3
"""The factor by which an infinite loss is above the largest finite one, to compare sums."""


class ExhaustedError(Exception):
    """The budget does not allow another trial."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending)
        self.ending = ending


class Budget(Struct, frozen=True, kw_only=True):
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


class Hints(Struct, frozen=True, kw_only=True):
    """The information for a search before its first trial."""

    candidates: tuple[str, ...]
    """The paths of the candidate layers, in the order of the model."""

    groups: tuple[frozenset[str], ...] = ()
    """Candidates that are best kept together, such as a wrapper and its layer."""

    rankings: tuple[Mapping[str, float], ...] = ()
    """
    Estimates of the loss of each candidate in 16 bits, in any unit; the best estimate is first.
    """

    suggestion: frozenset[str] = frozenset()
    """A set that may pass, which is tried first; empty without one."""

    rows_needed: int = 0
    """The number of validation rows below which no set can be safe."""


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
        self.is_minimum = False
        self.margin = 0
        """The number of layers that were added to the minimal set until it held."""

        self._promised: Trial | None = None
        self._together = 1
        """The number of layers of which the next removal is tried."""

        self.uses_validation = False
        """Whether a set must also pass on the validation inputs."""

        self._everything = frozenset(hints.candidates)
        self._place = {path: place for place, path in enumerate(hints.candidates)}
        first = next(iter(hints.rankings), {})
        self._losses: Mapping[str, float] = {
            path: first.get(path, 0.0) for path in hints.candidates
        }

    @property
    def best(self) -> Trial | None:
        """
        The passing trial with the fewest layers, preferably one that holds, or else one that the
        validation inputs do not refute; None if no trial passes.
        """
        if self._promised is not None:
            return self._promised
        passing_trials = [trial for trial in self.trials.made if trial.excess <= 1]
        converting = [trial for trial in passing_trials if len(trial.kept) < len(self._everything)]
        valid = [trial for trial in passing_trials if not trial.is_refuted]
        holding = [trial for trial in converting if self._holds(trial)]
        return min(holding or valid or passing_trials, key=self._rank, default=None)

    @property
    def _smallest(self) -> Trial | None:
        """The passing trial with the fewest layers, from which the search continues."""
        return min(self._passing(), key=self._rank, default=None)

    @property
    def closest(self) -> Trial | None:
        """The trial with the smallest excess; if several are equal, with the fewest kept layers."""
        return min(
            self.trials.made, key=lambda trial: (trial.excess, len(trial.kept)), default=None
        )

    def run(self) -> Ending:
        """Search until a minimal set holds on the validation inputs, or the budget ends."""
        try:
            self.trials(frozenset())
            self.uses_validation = not any(map(self._can_be_safe, self.trials.made))
            ending = self._find()
            if ending is Ending.MINIMAL:
                self._add_margin()
        except ExhaustedError as error:
            return Ending.MINIMAL if self._is_proven_minimal() else error.ending
        return ending

    def _holds(self, trial: Trial) -> bool:
        """
        Return whether a set is safe on the validation inputs, or at least not refuted if these
        could not show it even for all layers in float32.
        """
        if trial.is_refuted or trial.promise is None or not self._has_bound:
            return not trial.is_refuted
        return trial.promise.answer is Answer.SAFE

    def _can_be_safe(self, trial: Trial) -> bool:
        """Return whether the validation inputs of a trial are enough for a bound."""
        promise = trial.promise
        return promise is not None and (
            promise.rows >= self.hints.rows_needed or promise.metric is not None
        )

    @property
    def _has_bound(self) -> bool:
        """Whether the validation inputs can show that a set is safe; false if they are too few."""
        everything = self.trials.known(self._everything)
        promise = everything.promise if everything is not None else None
        return promise is not None and promise.answer is Answer.SAFE

    def _add_margin(self) -> None:
        """
        Add the layers with the largest losses to the minimal set, until it holds; search again on
        all inputs if no set can be safe.
        """
        minimal = self._smallest
        self._promised = minimal
        if minimal is None:
            return
        is_safe = minimal.promise is not None and minimal.promise.answer is Answer.SAFE
        if not is_safe and not self.uses_validation:
            self.trials(self._everything)
        if self._holds(minimal):
            return
        promised = minimal
        if not self._has_bound and not self.uses_validation:
            self.uses_validation = True
            self._find()
            promised = self._smallest or self.trials(self._everything)
        if not self._holds(promised):
            promised = self._held(frozenset(promised.kept))
        self._promised = promised
        self.margin = max(len(promised.kept) - len(minimal.kept), 0)
        self.is_minimum = self.is_minimum and not self.margin

    def _held(self, kept: Kept) -> Trial:
        """
        Return the trial of this set with the layers of the largest losses that make it hold; of the
        set itself if only all candidates together do and it is not refuted.
        """
        losses = next(iter(self.hints.rankings), {})
        groups = sorted(
            self._groups(self._everything - kept),
            key=lambda group: (-_loss(losses, group), self._places(group)),
        )
        failing, count = 0, 1
        while count < len(groups) and not self._holds_with(kept | _union(groups[:count])):
            failing, count = count, 2 * count
        holding = min(count, len(groups))
        while holding - failing > 1:
            count = (holding + failing) // 2
            if self._holds_with(kept | _union(groups[:count])):
                holding = count
            else:
                failing = count
        is_kept = holding == len(groups) and not self.trials(kept).is_refuted
        return self.trials(kept if is_kept else kept | _union(groups[:holding]))

    def _holds_with(self, kept: Kept) -> bool:
        trial = self.trials(kept)
        return self._passes(trial) and self._holds(trial)

    def _is_proven_minimal(self) -> bool:
        """Return whether trials show that the best set fails without each of its layers."""
        best = self.best
        if best is None or best is not self._smallest:
            return False
        kept = frozenset(best.kept)
        return all(self.failure(kept, frozenset({path})) is not None for path in kept)

    def _find(self) -> Ending:
        """Search a minimal set, and return why the search ended."""
        self.is_minimum = False
        if self._passes_with(frozenset()):
            self.is_minimum = True
            return Ending.MINIMAL
        if self.hints.suggestion:
            self.trials(self.hints.suggestion)
        for place, losses in enumerate(self.hints.rankings or ({},)):
            self._keep_most_lossy(losses, is_first=not place)
            if self._smallest is None:
                return Ending.IMPOSSIBLE
        while self._estimates():
            pass
        while self._removes() or self._exchanges():
            pass
        self.is_minimum = len(self._smallest_passing()) == 1  # none is not enough
        return Ending.MINIMAL

    def _excess(self, trial: Trial) -> float:
        """Return the excess of a trial on the inputs that the search uses."""
        return trial.largest_excess if self.uses_validation else trial.excess

    def _passes(self, trial: Trial) -> bool:
        return self._excess(trial) <= 1

    def _passes_with(self, kept: Kept) -> bool:
        return self._passes(self.trials(kept))

    def _passing(self) -> list[Trial]:
        return [trial for trial in self.trials.made if self._passes(trial)]

    def _rank(self, trial: Trial) -> tuple[float, ...]:
        return len(trial.kept), self._excess(trial)

    def _smallest_passing(self) -> Kept:
        smallest = self._smallest
        return frozenset(smallest.kept) if smallest is not None else self._everything

    def _keep_most_lossy(self, losses: Mapping[str, float], *, is_first: bool) -> None:
        """
        Find how many of the layers with the largest losses must be kept, if fewer are enough. A
        ranking after the first is used if this is likely.
        """
        groups = sorted(
            self._groups(self._everything),
            key=lambda group: (-_loss(losses, group), len(group), self._places(group)),
        )
        sets = [_union(groups[:count]) for count in range(len(groups) + 1)]
        smallest = self._smallest
        if smallest is not None:
            sets = [kept for kept in sets if len(kept) < len(smallest.kept)]
            if not is_first and not self._is_likely(sets[-1]):
                return
        failing, passing, step = 0, len(sets), 1
        while passing - failing > 1:
            if passing < len(sets):
                count = max(min(self._expected_count(sets), passing - step), failing + 1)
            elif smallest is None:
                count = min(max(self._expected_count(sets), failing + step), passing - 1)
            else:
                count = passing - 1
            if not self._passes_with(sets[count]):
                failing, step = count, 2 * step
            else:
                passing, step = count, 2 * step if passing < len(sets) else 1

    def _expected_count(self, sets: Sequence[Kept]) -> int:
        """Return the number of the first set whose expected excess is small enough."""
        self._fit_losses()
        counts = range(1, len(sets))
        return next(
            (count for count in counts if self._expected_excess(sets[count]) <= 1), len(sets)
        )

    def _estimates(self) -> bool:
        """
        Return whether a smaller set of the layers with the largest losses passes, if enough of them
        for the expected excess are fewer. Each trial corrects the expectation.
        """
        size = len(self._smallest_passing())
        for _ in range(_MISSES if self.hints.rankings else 0):
            kept = self._expected_set()
            if len(kept) >= size or self._is_known_to_fail(kept):
                break
            if self._passes_with(kept):
                return True
        return False

    def _expected_set(self) -> Kept:
        """Return the layers with the largest losses, as many as the expected excess needs."""
        self._fit_losses()
        groups = sorted(self._groups(self._everything), key=self._need, reverse=True)
        sets = (_union(groups[:count]) for count in range(len(groups)))
        return next(
            (kept for kept in sets if self._expected_excess(kept) <= _EXPECTED), self._everything
        )

    def _removes(self) -> bool:
        """
        Return whether the best set passes without some of its groups or layers. The least needed
        are tried first, except those without which a larger set failed: several together while each
        first removal passes, if this is likely to pass, and then each layer.
        """
        self._fit_losses()
        kept = self._smallest_passing()
        groups = [group for group in self._groups(kept) if len(group) > 1]
        layers = [frozenset({path}) for path in kept]
        for parts in filter(None, (groups, layers)):
            needless = sorted(
                (part for part in parts if self.failure(kept, part) is None),
                key=lambda part: (self._is_known_to_fail(kept - part), self._need(part)),
            )
            several = [_union(needless[: self._together])] if self._together > 1 else []
            for place, part in enumerate((*several, *needless)):
                is_likely = len(part) == 1 or self._is_likely(kept - part)
                if is_likely and self._passes_with(kept - part):
                    self._together = 1 if place else 2 * len(part)
                    return True
        return False

    def failure(self, kept: Kept, part: Kept) -> Trial | None:
        """
        Return the trial that shows that a passing set fails without a part of its layers; None if
        no trial shows it.

        This is the trial of that set, or one that also converts the part, and fewer other layers.
        Then the part causes NaN or infinity, or an error so large that those of the other layers
        cannot cancel it out: by the triangle inequality, the error of the part is at least the
        difference that it makes in another set.
        """
        rest = kept - part
        known = self.trials.known(rest)
        if known is not None:
            return None if self._passes(known) else known
        passing = self.trials.known(kept)
        if passing is None:
            return None
        for trial in self.trials.made:
            others = frozenset(trial.kept)
            if rest <= others and not part & others and trial.failure is None:
                without = self.trials.known(others | part)
                least = self._excess(trial) - self._excess(without) if without is not None else 0.0
                if math.isinf(self._excess(trial)) or least - self._excess(passing) > 1:
                    return trial
        return None

    def _exchanges(self) -> bool:
        """
        Return whether a smaller set of other layers passes, of those whose expected excess is small
        enough. Each trial corrects the expectation.
        """
        size = len(self._smallest_passing()) - 1
        for _ in range(_MISSES if size < _MISSES else 0):
            self._fit_losses()
            kept = self._most_promising(size)
            if kept is None or self._expected_excess(kept) > _LIKELY:
                break
            if self._passes_with(kept):
                return True
        return False

    def _most_promising(self, size: int) -> Kept | None:
        """
        Return the set of this size with the lowest expected excess that was not tried and is not
        known to fail; None if there is none among the sets of the layers with the largest losses.
        """
        ranked = sorted(self.hints.candidates, key=lambda path: -self._losses[path])
        sets = map(frozenset, itertools.combinations(ranked[: size + _SPARE], size))
        return min(
            (
                kept
                for kept in sets
                if not self.trials.known(kept) and not self._is_known_to_fail(kept)
            ),
            key=lambda kept: (self._expected_excess(kept), self._places(kept)),
            default=None,
        )

    def _is_likely(self, kept: Kept) -> bool:
        """Return whether a set may pass according to its expected excess, or without a ranking."""
        self._fit_losses()
        return not self.hints.rankings or self._expected_excess(kept) <= _LIKELY

    def _expected_excess(self, kept: Kept) -> float:
        return math.hypot(*(loss for path, loss in self._losses.items() if path not in kept))

    def _fit_losses(self) -> None:
        """
        Scale the losses so that the root of the sum of squares of the layers that a trial converts
        is its excess, in all trials as far as possible (multiplicative algebraic reconstruction:
        Gordon, Bender and Herman, Journal of Theoretical Biology 29, 1970).
        """
        finite = [loss for loss in self._losses.values() if 0 < loss < math.inf]
        least, most = (min(finite), max(finite)) if finite else (1.0, 1.0)
        losses = {
            path: min(max(loss, least), _INFINITE * most) for path, loss in self._losses.items()
        }
        if all(math.isinf(self._excess(trial)) for trial in self.trials.made):
            total = math.hypot(*(loss for loss in losses.values() if loss <= most)) or 1.0
            losses = {path: loss / total for path, loss in losses.items()}
        else:
            for trial in _ROUNDS * self.trials.made:
                converted = [path for path in losses if path not in trial.kept]
                expected = math.hypot(*(losses[path] for path in converted))
                excess = max(self._excess(trial), _LEAST_EXCESS)
                if converted and (math.isfinite(excess) or expected < _LIKELY):
                    factor = min(excess, _INFINITE) / expected
                    losses.update((path, losses[path] * factor) for path in converted)
        self._losses = losses

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

    def _need(self, group: Kept) -> tuple[float, ...]:
        """Return the sort key of a group. The group with the lowest loss is converted first."""
        return (_loss(self._losses, group), *self._places(group))

    def _places(self, kept: Kept) -> tuple[int, ...]:
        """Return the positions of layers in the model, as a sort key."""
        return tuple(sorted(self._place[path] for path in kept))


def _union(groups: Sequence[frozenset[str]]) -> frozenset[str]:
    return frozenset().union(*groups)


def _loss(losses: Mapping[str, float], group: Kept) -> float:
    """Return the largest loss of the layers in a group."""
    return max((losses.get(path, 0.0) for path in group), default=0.0)
