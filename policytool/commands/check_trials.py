"""
Finds the cause of a failed check, and the layers that must stay in float32 for it to pass. The
check runs again, first as a diagnosis, and then with sets of layers in float32, which the search of
``tune`` selects.

A set is accepted only if the whole check passes with it, with a model as ``migrate`` would write
it.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from policytool.numerics.check_results.verdicts import Advice, excess
from policytool.numerics.tuning import candidate_layers, search
from policytool.numerics.tuning.results import Ending, Trial
from policytool.numerics.tuning.search import ExhaustedError, Hints, Search, Trials
from policytool.numerics.verdicts import origins
from policytool.numerics.verdicts.origins import Blame, Charge
from policytool.support.errors import ModelFileError, UsageError, WorkerError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from policytool.numerics.check_results.checks import Check, CheckRun
    from policytool.numerics.verdicts.origins import Choices

    RunCheck = Callable[[frozenset[str]], Check]
    """
    Runs the check with these layers in float32. With no layers, runs the diagnosis, which takes 1.5
    times as long as the check.
    """

MOST_TRIALS: Final = 16

TIMES: Final = 3.0
"""
The time limit for trials, as a multiple of the time of the check; no trial starts after it. The
whole then takes at most five times as long as a check that passes.
"""

_LEAST_SECONDS: Final = 15.0
"""
Minimum time limit for trials in seconds. The check itself may be fast because an earlier check has
already imported TensorFlow.
"""

_DIAGNOSES: Final = 2.0
"""
Minimum time limit for trials, as a multiple of the time of the diagnosis: the diagnosis and the
trials compare layers in more rows than the check.
"""


class Budget(Struct, frozen=True, kw_only=True):
    """The limits for the trials of a check: their number, and the seconds until the last starts."""

    trials: int
    seconds: float


class Alternative(Struct, frozen=True, kw_only=True):
    """Another policy to try, if the policy of the check does not suit the model."""

    policy: str
    trial: Callable[[], Check]
    """Runs the check with this policy."""


def explain(
    failed: Check,
    choices: Choices | None,
    trial: RunCheck,
    budget: Budget,
    alternative: Alternative | None = None,
) -> Check:
    """
    Return a failed check with the origin of the error in each of its runs, and with advice.

    :param choices: the layers that can be kept in float32; None if the candidate is a second file,
        whose layers cannot be changed
    :param alternative: the policy to try if most layers have to be kept, or if no set of layers is
        found; one trial is reserved for it
    """
    runs = _Runs(trial, budget, reserved=alternative is not None)
    diagnosis = runs.run(frozenset())
    if diagnosis is None:
        return failed
    kept = _find_layers(runs, diagnosis, choices) if choices is not None else None
    explained = [
        _with_origin(run, diagnosed_run, choices, kept)
        for run, diagnosed_run in zip(failed.runs, diagnosis.runs, strict=True)
    ]
    if choices is None or diagnosis.holds:
        return replace(failed, runs=tuple(explained))
    advice = Advice(
        layers=tuple(path for path in choices.paths if kept is not None and path in kept),
        trials=runs.count,
        exhausted=kept is None and not runs.has_run(frozenset(choices.paths)),
        choices=len(choices.paths),
    )
    unfit = advice.is_unfit or not advice.layers
    if alternative is not None and unfit and runs.run_reserved(alternative.trial):
        advice = replace(advice, policy=alternative.policy)
    return replace(failed, runs=tuple(explained), advice=replace(advice, trials=runs.count))


def _with_origin(
    run: CheckRun, diagnosis: CheckRun, choices: Choices | None, kept: frozenset[str] | None
) -> CheckRun:
    """
    Return a run with its origin, and with the calls of the diagnosis, in which each layer ran in
    isolation. The origin is the first charge that the kept layers resolve.
    """
    if not run.has_unexplained_error:
        return run
    if not run.is_isolated:
        run = replace(
            run, inputs=diagnosis.inputs, calls=diagnosis.calls, verdict=diagnosis.verdict
        )
    charges = origins.charges(diagnosis)
    helped = [
        charge
        for charge in charges
        if choices is not None
        and kept
        and origins.deciding_layers(diagnosis, charge.call, choices) & kept
    ]
    first = next(iter([*helped, *charges]), None) or _first_kept(diagnosis, choices, kept)
    return replace(run, origin=origins.origin(diagnosis, first) if first is not None else None)


def _first_kept(
    run: CheckRun, choices: Choices | None, kept: frozenset[str] | None
) -> Charge | None:
    """Return the first call of a kept layer, as the charge if the diagnosis has none."""
    if choices is None or not kept:
        return None
    for place, call in enumerate(run.calls):
        unit = origins.deciding_layers(run, place, choices, producers=False)
        if unit and unit <= kept and not call.is_model:
            return Charge(call=place, blame=Blame.ERROR)
    return None


class _Runs:
    """Runs trials, each set of layers once, within a budget."""

    def __init__(self, trial: RunCheck, budget: Budget, *, reserved: bool = False) -> None:
        """
        Start the time limit of the search.

        :param reserved: whether to keep a part of the budget for the trial of another policy
        """
        self._trial = trial
        self._budget = budget
        self._reserved = int(reserved)
        self._end = time.monotonic() + max(budget.seconds, _LEAST_SECONDS)
        self._latest = 0.0
        self._known: dict[frozenset[str], Check | None] = {}
        self._others = 0
        self.is_exhausted = False

    @property
    def count(self) -> int:
        """The number of trials that were run."""
        return len(self._known) + self._others

    def run(self, kept: frozenset[str]) -> Check | None:
        """Return the check with these layers in float32; None if the trial cannot run."""
        if kept in self._known:
            return self._known[kept]
        if self._is_spent():
            self.is_exhausted = True
            return None
        start = time.monotonic()
        check = self._known[kept] = self._attempt(lambda: self._trial(kept))
        seconds = time.monotonic() - start
        if kept:  # the diagnosis takes longer than the reserved trial
            self._latest = seconds
        else:
            self._end = max(self._end, start + _DIAGNOSES * seconds)
        return check

    def has_run(self, kept: frozenset[str]) -> bool:
        """Return whether a trial ran with these layers in float32."""
        return self._known.get(kept) is not None

    def run_reserved(self, trial: Callable[[], Check]) -> bool:
        """Return whether the check passes in the reserved trial; False if there is no time."""
        self._reserved = 0
        if self._is_spent():
            return False
        self._others += 1
        check = self._attempt(trial)
        return check is not None and check.holds

    def _is_spent(self) -> bool:
        """Return whether no trial is left in the budget, except for the reserved one."""
        end = self._end - self._reserved * self._latest
        return self.count >= self._budget.trials - self._reserved or (
            bool(self._known) and time.monotonic() > end
        )

    def _attempt(self, trial: Callable[[], Check]) -> Check | None:
        """Return the check of a trial; None if the trial cannot run."""
        try:
            return trial()
        except WorkerError as error:
            if error.ended:
                self.is_exhausted = True
            return None  # for example, inputs of an op of Keras 2 now have different dtypes
        except (ModelFileError, UsageError):
            return None


def _find_layers(runs: _Runs, diagnosis: Check, choices: Choices) -> frozenset[str] | None:
    """
    Return a small set of layers with which the check passes if they stay in float32, by the search
    of ``tune``; None if the trials found none.
    """

    def run(kept: frozenset[str]) -> Trial:
        check = runs.run(kept)
        if check is None and runs.is_exhausted:
            raise ExhaustedError(Ending.TRIALS)
        return _trial(kept, check)

    hints = Hints(
        candidates=choices.paths,
        groups=candidate_layers.groups(choices.paths),
        rankings=(next(candidate_layers.rankings(diagnosis, choices.paths)),),
        suggestion=origins.propose(_failed_run(diagnosis), choices),
    )
    trials = Trials(run, search.Budget(trials=math.inf), (_trial(frozenset(), diagnosis),))
    layer_search = Search(hints, trials)
    layer_search.run()
    return frozenset(layer_search.best.kept) if layer_search.best is not None else None


def _trial(kept: frozenset[str], check: Check | None) -> Trial:
    """Return a check as the trial of a set; one that cannot run has failed."""
    judgements = [
        judgement
        for run in (check.runs if check is not None else ())
        for judgement in run.verdict.judgements
    ]
    worst = max(map(excess, judgements), default=math.inf)
    passes = check is not None and check.holds
    return Trial(
        kept=tuple(sorted(kept)),
        excess=min(worst, 1.0) if passes else max(worst, math.nextafter(1, 2)),
        validation=None,
        error=None,
        agreement=None,
        gradient_error=None,
    )


def _failed_run(check: Check) -> CheckRun:
    """Return the first run that failed, or the first run if none failed."""
    failed: Sequence[CheckRun] = [run for run in check.runs if not run.holds]
    return (failed or check.runs)[0]
