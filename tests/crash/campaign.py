"""
Puts faults into the calls of one write path, and judges what is left of the files.

The path is run undisturbed first, which tells the calls and the result. Then each fault has a run
of its own, and the directory, what was said and the exit code are judged; where the command was not
done, it is run again and has to be done then.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from policytool.support.files.atomic import ASIDE
from tests.crash import judging, tracing
from tests.crash.faults import Case
from tests.crash.judging import State
from tests.crash.runs import NOTHING, Fault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from tests.crash.judging import Held
    from tests.crash.paths import WritePath
    from tests.crash.runs import Run, Server
    from tests.crash.tracing import Call

_TRIES: Final = 3
NO_LINKS: Final = ("linkat:error=EPERM:when=1+", "link:error=EPERM:when=1+")
"""A file system without hard links."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Way:
    """What the file system has."""

    name: str = "O_TMPFILE and links"
    named: bool = False
    links: bool = True

    @property
    def inject(self) -> tuple[str, ...]:
        """What every run meets."""
        return () if self.links else NO_LINKS


WAYS: Final = (
    Way(),
    Way(name="no O_TMPFILE", named=True),
    Way(name="no links", links=False),
    Way(name="no O_TMPFILE, no links", named=True, links=False),
)


@dataclass
class Tally:
    """What runs with one kind of fault left."""

    runs: int = 0
    left: Counter[str] = field(default_factory=Counter)
    codes: Counter[int] = field(default_factory=Counter)
    again: int = 0
    """Runs after which the command was run again, and was done."""


@dataclass
class Outcome:
    """What became of one path in one way."""

    writing: int = 0
    reading: int = 0
    """Calls in the directory."""

    tallies: dict[str, Tally] = field(default_factory=lambda: defaultdict(Tally))
    wrong: list[str] = field(default_factory=list)


class Subject:
    """One path in one way: the directory, the undisturbed run, and the judgement of others."""

    def __init__(self, path: WritePath, way: Way, directory: Path, server: Server) -> None:
        self.path = path
        self._way = way
        self.models = directory / "models"
        self._server = server
        self.outcome = Outcome()
        self._learn()

    def _learn(self) -> None:
        """Run undisturbed: what calls are made, and what is there then."""
        self.path.prepare(self.models)
        self.before = judging.held(self.models)
        first = self.run(trace=None)
        problems = list(tracing.unknown(list(first.calls), self.models))
        if first.code != self.path.code:
            problems.append(f"ended with {first.code}: {first.said}")
        self.after = judging.held(self.models)
        if judging.hidden(self.after):
            problems.append(f"left {judging.hidden(self.after)}")
        self.every = [
            call for call in first.calls if call.pid == first.calls[0].pid or self.path.processes
        ]
        self.own = [call for call in self.every if call.concerns(self.models)]
        if not self.path.stands_in:
            problems += [
                f"{call.name}({call.text}) is another process'"
                for call in first.calls
                if call.writes and call.concerns(self.models) and call not in self.own
            ]
        self.outcome.writing = sum(call.writes for call in self.own)
        self.outcome.reading = len(self.own) - self.outcome.writing
        self.outcome.wrong += [
            f"{self.path.name}, {self._way.name}: {problem}" for problem in problems
        ]

    @property
    def largest(self) -> int:
        """How many bytes the largest file has that is written."""
        return max(
            (
                len(data)
                for name, (_, data) in self.after.items()
                if self.before.get(name, (0, b""))[1] != data
            ),
            default=0,
        )

    def run(
        self,
        fault: Fault = NOTHING,
        *,
        trace: Sequence[str] | None = (),
        when_stopped: Callable[[], None] | None = None,
    ) -> Run:
        """Run the command."""
        taken = tuple(item.partition(":")[0] for item in self._way.inject)
        inject = (
            *(item for item in fault.inject if item.partition(":")[0] not in taken),
            *self._way.inject,
        )
        if inject and trace is not None and not trace:
            trace = ("linkat", "link")
        fault = Fault(inject=inject, largest=fault.largest)
        return self._server.run(
            self.path.command(self.models),
            fault,
            trace=trace,
            named=self._way.named,
            when_stopped=when_stopped,
        )

    def check(self, cases: Iterable[Case]) -> None:
        """Run each case and judge it."""
        for case in cases:
            if case.at is not None and any(
                item.startswith(f"{case.at.name}:") for item in self._way.inject
            ):
                continue  # it fails in this way anyway, and changes nothing
            run = self._met(case)
            if run is not None:
                self.judge(case, run)

    def _met(self, case: Case) -> Run | None:
        """Return a run that met its fault where it should."""
        for _ in range(_TRIES):
            self.path.prepare(self.models)
            run = self.run(case.fault, trace=self._traced(case))
            if case.at is None or _meets(run.calls, case.at, self.every):
                return run
        self._wrong(case, "the fault was not met where it should be")
        return None

    def note(self, kind: str, run: Run, at: Call, problems: Sequence[str]) -> None:
        """Count a run that others disturbed, which was judged already."""
        left = judging.state(
            self.held(),
            self.before,
            self.after,
            backup_goes=self.path.backup_goes,
            separate=self.path.separate,
        )
        tally = self.outcome.tallies[kind]
        tally.runs += 1
        tally.codes[run.code] += 1
        lost = any(problem.startswith(judging.LOST) for problem in problems)
        tally.left[
            judging.LOST
            if lost
            else left.value
            if isinstance(left, State)
            else "with what others wrote"
        ] += 1
        for problem in problems:
            self._wrong(Case(kind=kind, fault=NOTHING, at=at), problem)

    def _traced(self, case: Case) -> list[str]:
        """
        Return what is traced of a run: what a fault is put into, and what writes, by which one sees
        that it was met where it should be.
        """
        if case.at is None:
            return []
        injected = {item.partition(":")[0] for item in case.fault.inject}
        return sorted({case.at.name, *injected, *(call.name for call in self.own if call.writes)})

    def judge(self, case: Case, run: Run) -> None:
        """
        Hold what a run left, and how it ended, against what is allowed, and run the command again
        where it was not done.
        """
        result = self.held()
        left = judging.state(
            result,
            self.before,
            self.after,
            backup_goes=self.path.backup_goes,
            separate=self.path.separate,
        )
        tally = self.outcome.tallies[case.kind]
        tally.runs += 1
        tally.left[left.value if isinstance(left, State) else judging.LOST] += 1
        tally.codes[run.code] += 1
        for problem in judging.wrong(
            run.said,
            run.code,
            left,
            expected=self.path.code,
            killed=case.killed,
            separate=self.path.separate,
        ):
            self._wrong(case, problem)
        if (
            judging.hidden(result)
            and not case.may_leave
            and not (self.path.removes and left in {State.NEW, State.SPARE})
        ):
            self._wrong(case, f"left {judging.hidden(result)}")
        if result == self.before:
            tally.again += 1  # what is there is what the undisturbed run began with
        elif left not in {State.NEW, State.SPARE}:
            tally.again += self._again(case, left)

    def _again(self, case: Case, left: State | str) -> bool:
        """Return whether the command, run again, does what it should."""
        if left is State.ASIDE:
            self._bring_back(case)
        run = self.run()
        result = self.held()
        done = run.code == self.path.code and judging.state(result, self.before, self.after) in {
            State.NEW,
            State.SPARE,
        }
        if not done:
            self._wrong(case, f"run again it ended with {run.code}: {run.said[-300:]}")
        elif judging.hidden(result):
            self._wrong(case, f"run again it left {judging.hidden(result)}")
        return done

    def _bring_back(self, case: Case) -> None:
        """Do what the next run says: rename the backup back."""
        missing = [
            name for name in self.before if os.sep not in name and not (self.models / name).exists()
        ]
        run = self.run()
        if (
            run.code == self.path.code
        ):  # it makes the output anew; the one that was there is still aside
            return
        if "Rename the backup to the original name" not in run.said:
            self._wrong(
                case,
                f"the next run ended with {run.code} and does not say how to go on: "
                f"{run.said[-300:]}",
            )
        for name in missing:
            aside = self.models / f"{name}{ASIDE}"
            if aside.exists():
                aside.rename(self.models / name)

    def held(self) -> Held:
        """
        Return what is in the directory; any whole report stands for the one that is expected,
        because what it says depends on the run: the working directory, or a failure.
        """
        found = judging.held(self.models)
        name = self.path.report
        if name in found and name in self.after:
            (mode, data), expected = found[name], self.after[name][1]
            if judging.is_whole_report(data, expected):
                found[name] = (mode, expected)
        return found

    def _wrong(self, case: Case, what: str) -> None:
        where = (
            f"{case.at.name} {case.at.number} ({case.at.text[:160]})"
            if case.at is not None
            else f"{case.fault.largest} bytes"
        )
        self.outcome.wrong.append(
            f"{self.path.name}, {self._way.name}, {case.kind} at {where}: {what}"
        )


def _meets(found: Sequence[Call], at: Call, every: Sequence[Call]) -> bool:
    """
    Return whether a run made the calls of the undisturbed one up to where the fault is, so that it
    was met there.
    """
    traced = {call.name for call in found}
    ahead = [call.name for call in every[: every.index(at) + 1] if call.name in traced]
    return at.name in traced and [call.name for call in found[: len(ahead)]] == ahead


def total(outcome: Outcome) -> int:
    """Return how many runs were judged."""
    return sum(tally.runs for tally in outcome.tallies.values())
