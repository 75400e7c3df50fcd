"""
The same with a new interpreter for each run, as a user has it: killed by strace at calls that
write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.crash import runs
from tests.crash.faults import Case, thinned
from tests.crash.runs import Fault

if TYPE_CHECKING:
    from tests.crash.campaign import Subject

KIND: Final = "SIGKILL, in a new interpreter"
KIND_OTHERS: Final = "SIGKILL, of processes that it started"
_TRIES: Final = 5


def check(subject: Subject) -> None:
    """
    Kill a process of its own at calls that write in the directory, each name on each file, and
    judge what is left.
    """
    arguments, place = subject.path.command(subject.models), subject.models.parent
    subject.path.prepare(subject.models)
    undisturbed = runs.in_a_new_interpreter(arguments, place)
    for call in thinned(
        [call for call in undisturbed.calls if call.writes and call.concerns(subject.models)]
    ):
        fault = Fault(inject=(f"{call.name}:signal=KILL:when={call.number}",))
        for _ in range(_TRIES):
            # which of two processes takes which file, and so how many calls it makes, is not always
            # the same
            subject.path.prepare(subject.models)
            run = runs.in_a_new_interpreter(arguments, place, fault, trace=[call.name])
            if run.killed:
                break
        itself = run.code < 0 or not run.killed
        subject.judge(
            Case(
                kind=KIND if itself else KIND_OTHERS,
                fault=fault,
                at=call,
                killed=itself,
                may_leave=True,
            ),
            run,
        )
