"""
Others who work on the same files meanwhile: a run is stopped after each call that writes, someone
does something, and the run goes on.

What someone else wrote is never lost, and nothing is mixed; a command may refuse, with a sentence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from policytool.support.files.atomic import ASIDE
from tests.crash import judging
from tests.crash.faults import thinned
from tests.crash.runs import Fault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.crash.campaign import Subject
    from tests.crash.judging import Held
    from tests.crash.runs import Run, Server
    from tests.crash.tracing import Call

FOREIGN: Final = b'{"class_name": "Sequential", "config": {"name": "theirs", "layers": []}}'
"""What someone else writes: a model, which not even a report replaces."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Meddler:
    """What someone does meanwhile."""

    kind: str
    act: Callable[[Path, Subject, Server], None]


def _same_command(_: Path, subject: Subject, other: Server) -> None:
    """Run the same command, whole."""
    other.run(subject.path.command(subject.models))


def _rewrites_input(models: Path, subject: Subject, _: Server) -> None:
    """Save the model anew, as editors and trainers do: beside it, then renamed over it."""
    target = _first_file(models, subject)
    if target.exists():
        new = target.with_name("saving")
        new.write_bytes(FOREIGN)
        new.replace(target)


def _makes_output(models: Path, subject: Subject, _: Server) -> None:
    """Make files of the names that the command is about to give, where nothing has them yet."""
    for name in _names_given(subject):
        place = models / name
        if not place.exists() and place.parent.is_dir():
            place.write_bytes(FOREIGN)


MEDDLERS: Final = (
    Meddler(kind="the same command at once", act=_same_command),
    Meddler(kind="the input is saved anew meanwhile", act=_rewrites_input),
    Meddler(kind="the output is made by someone meanwhile", act=_makes_output),
)


def check(subject: Subject, other: Server) -> None:
    """
    Stop a run after calls of it that write, let each meddler act, and judge what is left; of what
    is written to a draft, which nobody sees, some.
    """
    for call in thinned([call for call in subject.own if call.writes]):
        for meddler in MEDDLERS:
            _checked(subject, other, call, meddler)


def _checked(subject: Subject, other: Server, call: Call, meddler: Meddler) -> None:
    subject.path.prepare(subject.models)
    foreign: dict[str, bytes] = {}

    def act() -> None:
        before = judging.held(subject.models)
        meddler.act(subject.models, subject, other)
        foreign.update(
            {
                name: data
                for name, (_, data) in judging.held(subject.models).items()
                if data == FOREIGN and name not in before
            }
        )
        if meddler.act is _rewrites_input:
            foreign.update(
                {
                    name: data
                    for name, (_, data) in judging.held(subject.models).items()
                    if data == FOREIGN
                }
            )

    run = subject.run(
        Fault(inject=(f"{call.name}:signal=STOP:when={call.number}",)),
        trace=[call.name],
        when_stopped=act,
    )
    result = judging.visible(subject.held())
    subject.note(meddler.kind, run, call, list(_wrong(subject, run, result, foreign, meddler)))


def _wrong(
    subject: Subject, run: Run, found: Held, foreign: dict[str, bytes], meddler: Meddler
) -> Iterator[str]:
    if (
        run.code not in {subject.path.code, 0, 1, 3}
        or "Traceback" in run.said
        or "is a bug" in run.said
    ):
        yield f"ended with {run.code}: {run.said[-300:]}"
    whole = {data for files in (subject.before, subject.after) for _, data in files.values()} | {
        FOREIGN
    }
    for name, (_, data) in found.items():
        if data not in whole:
            yield f"{judging.LOST}: {name} has bytes that nobody wrote"
    contents = [data for _, data in found.values()]
    if foreign and FOREIGN not in contents and "--existing=replace" not in subject.path.arguments:
        yield f"{judging.LOST}: what someone else wrote is gone"
    if meddler.act is _same_command:
        if found != subject.after:
            yield f"{judging.LOST}: {sorted(found)} is not what one run leaves"
        return
    for name, (_, data) in subject.before.items():
        kept = name in subject.after and subject.after[name][1] == data
        if kept and name not in foreign and found.get(name, (0, b""))[1] != data:
            yield f"{judging.LOST}: {name} is no longer what it was"


def _first_file(models: Path, subject: Subject) -> Path:
    """
    Return the file that someone saves anew: the model, or of a directory the file that changes; a
    name that nothing has while the directory is aside.
    """
    name = next(iter(subject.path.models))
    if (models / name).is_file():
        return models / name
    changed = [
        item
        for item in subject.before
        if subject.after.get(item) != subject.before[item] and (models / item).is_file()
    ]
    return models / (
        changed[0]
        if changed
        else min((item for item in subject.before if (models / item).is_file()), default=name)
    )


def _names_given(subject: Subject) -> list[str]:
    """
    Return the names that are new after an undisturbed run, those of directories rather than of what
    is in them.
    """
    new = [name for name in subject.after if name not in subject.before]
    return [name for name in new if not any(name.startswith(f"{other}/") for other in new)] or [
        f"{next(iter(subject.path.models))}{ASIDE}"
    ]
