"""The same with a new interpreter for each run, as a user has it: killed by strace at calls that write."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.crash import runs
from tests.crash.faults import Case, thinned
from tests.crash.runs import Fault

if TYPE_CHECKING:
    from tests.crash.campaign import Subject

KIND: Final = "SIGKILL, in a new interpreter"
KIND_OTHERS: Final = "SIGKILL, of processes that it started"


def check(subject: Subject) -> None:
    """Kill a process of its own at calls that write in the directory, each name on each file, and judge what is left."""
    arguments, place = subject.path.command(subject.models), subject.models.parent
    subject.path.prepare(subject.models)
    undisturbed = runs.in_a_new_interpreter(arguments, place)
    for call in thinned([call for call in undisturbed.calls if call.writes and call.concerns(subject.models)]):
        subject.path.prepare(subject.models)
        fault = Fault(inject=(f"{call.name}:signal=KILL:when={call.number}",))
        run = runs.in_a_new_interpreter(arguments, place, fault, trace=[call.name])
        subject.judge(Case(kind=KIND, fault=fault, at=call, killed=True, may_leave=True), run)
