"""
What can be done to many files at once, by name; a task's modules are imported when it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from policytool.formats.discovery import Input
from policytool.support import limits
from policytool.support.text.codec import AnyJson, Codec, codec

if TYPE_CHECKING:
    from policytool.commands import fix as mending
    from policytool.commands import migrate as migration
    from policytool.commands import saved_plans
    from policytool.commands.inspect import Failure
    from policytool.model.model import Model
    from policytool.rules import AuditOptions
    from policytool.rules.finding import Audited
    from policytool.support.limits import Limit

Item = TypeVar("Item")
Asked = TypeVar("Asked")
Result = TypeVar("Result")

_GRACE: Final = 5.0
"""
Seconds: a process that writes is in the middle of a block of some MiB, or waits for the disk, and
then has a draft to remove.
"""

_LOST: Final = (
    "has no report: the process that migrated it {how}; what it was to write is whole, or as it was"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Wire(Generic[Item, Asked, Result]):
    """How a task's values go from one process to another."""

    item: Codec[Item]
    asked: Codec[Asked]
    result: Codec[Result]


@dataclass(frozen=True, kw_only=True, slots=True)
class Task(Generic[Item, Asked, Result]):
    """One thing that is done to each of many files, on its own."""

    name: str
    attempt: Callable[[Item, Asked], Result]
    """Returns what became of a file; a failure to read or write it is a result."""

    wire: Callable[[], Wire[Item, Asked, Result]]
    """Imports the classes of all values, of which a single process needs few."""

    shown: Callable[[Item], str]
    """Returns the file as reports show it."""

    lost: str = "was not read: the process that read it {how}"
    """What is said of a file over which a process ended, after its name."""

    time: Limit = limits.READ_SECONDS
    """What one file may take."""

    grace: float = 0.0
    """Seconds that a process has to take back what it began, when it is ended over a file."""

    drafts: Callable[[Item, Asked], Iterable[Path]] = lambda _, __: ()
    """Returns the directories in which drafts are made."""


def inspect() -> Task[Input, None, Model | Failure | None]:
    """Return the task of ``inspect``."""
    from policytool.commands import inspect as inspection

    def wire() -> Wire[Input, None, Model | Failure | None]:
        from policytool.formats import document
        from policytool.model import model
        from policytool.releases import policy

        named = (document.Address, policy.Dynamic, policy.Fixed, policy.Quantization)
        names = {"Mapping": Mapping, **_classes(*named)}
        return Wire(
            item=_input(),
            asked=codec(None, {}),
            result=codec(model.Model | inspection.Failure | None, names),
        )

    return Task(
        name="inspect",
        attempt=lambda found, _: inspection.attempted(found),
        wire=wire,
        shown=_shown,
    )


def audit() -> Task[Input, AuditOptions, Audited | Failure | None]:
    """Return the task of ``audit``."""
    from policytool.commands import audit as auditing
    from policytool.commands import inspect as inspection

    def wire() -> Wire[Input, AuditOptions, Audited | Failure | None]:
        from policytool import rules
        from policytool.rules import finding

        names = _of_findings()
        return Wire(
            item=_input(),
            asked=codec(rules.AuditOptions, names),
            result=codec(finding.Audited | inspection.Failure | None, names),
        )

    return Task(name="audit", attempt=auditing.attempted, wire=wire, shown=_shown)


def mend() -> Task[mending.Case, mending.Asked, mending.Attempt | Failure]:
    """Return the task of ``audit --fix``."""
    from policytool.commands import fix as mending
    from policytool.commands import inspect as inspection

    def wire() -> Wire[mending.Case, mending.Asked, mending.Attempt | Failure]:
        from policytool import rules
        from policytool.commands import migrate as migration
        from policytool.rules import finding, fixes

        more = (
            Input,
            mending.Mending,
            finding.Finding,
            finding.Audited,
            rules.AuditOptions,
            fixes.Mended,
            migration.Migration,
            inspection.Failure,
        )
        names = {**_of_findings(), **_of_migrations(), **_classes(*more)}
        return Wire(
            item=codec(mending.Case, names),
            asked=codec(mending.Asked, names),
            result=codec(mending.Attempt | inspection.Failure, names),
        )

    return Task(
        name="mend",
        attempt=mending.attempted,
        wire=wire,
        shown=lambda case: case.found.shown,
        lost="has no report: the process that mended it {how}; the file is whole, mended or as it "
        "was",
        time=limits.WRITE_SECONDS,
        grace=_GRACE,
        drafts=mending.directories,
    )


def migrate() -> Task[Input, migration.Asked, migration.Result]:
    """Return the task of ``migrate``."""
    from policytool.commands import migrate as migration

    def wire() -> Wire[Input, migration.Asked, migration.Result]:
        from policytool.commands import destinations
        from policytool.migration.planning import options

        names = {**_of_migrations(), **_classes(options.Options, destinations.Destination)}
        return Wire(item=_input(), asked=codec(migration.Asked, names), result=_migrated())

    return Task(
        name="migrate",
        attempt=migration.attempted,
        wire=wire,
        shown=_shown,
        lost=_LOST,
        time=limits.WRITE_SECONDS,
        grace=_GRACE,
        drafts=migration.directories,
    )


def migrate_saved() -> Task[saved_plans.Saved, saved_plans.Asked, migration.Result]:
    """Return the task of ``migrate --plan``."""
    from policytool.commands import saved_plans

    def wire() -> Wire[saved_plans.Saved, saved_plans.Asked, migration.Result]:
        from policytool.commands import destinations

        names = {**_of_migrations(), **_classes(destinations.Destination)}
        return Wire(
            item=codec(saved_plans.Saved, names),
            asked=codec(saved_plans.Asked, names),
            result=_migrated(),
        )

    return Task(
        name="migrate_saved",
        attempt=saved_plans.attempted,
        wire=wire,
        shown=lambda saved: str(saved.path),
        lost=_LOST,
        time=limits.WRITE_SECONDS,
        grace=_GRACE,
        drafts=saved_plans.directories,
    )


TASKS: Final[Mapping[str, Callable[[], Task[Any, Any, Any]]]] = {
    "inspect": inspect,
    "audit": audit,
    "mend": mend,
    "migrate": migrate,
    "migrate_saved": migrate_saved,
}


def _shown(found: Input) -> str:
    return found.shown


def _input() -> Codec[Input]:
    return codec(Input, {"Path": Path})


def _migrated() -> Codec[migration.Result]:
    from policytool.commands import inspect as inspection
    from policytool.commands import migrate as migration

    return codec(migration.Migration | inspection.Failure | None, _of_migrations())


def _of_findings() -> dict[str, object]:
    """Return what the annotations of audits mention."""
    from policytool.formats import document

    return {"Mapping": Mapping, **_classes(document.Address, document.Signature)}


def _of_migrations() -> dict[str, object]:
    """Return what the annotations of migrations mention."""
    from policytool.formats import casting, document, edits, new_model, rewriting
    from policytool.migration import plan
    from policytool.model import model
    from policytool.numerics import reexport, verification
    from policytool.numerics.reexport import run as anew
    from policytool.releases import behaviour
    from policytool.support.text import jsontext

    contents = (new_model.Content, new_model.Group, new_model.Placement, document.Tensor)
    classes = (
        *contents,
        casting.Counts,
        document.Address,
        edits.Cast,
        edits.Edit,
        edits.Slot,
        behaviour.Proof,
        jsontext.Absent,
        model.Verdict,
        plan.Plan,
        reexport.Held,
        verification.Comparison,
        rewriting.Written,
        anew.Retraced,
    )
    return {"Mapping": Mapping, "Json": AnyJson, "Path": Path, **_classes(*classes)}


def _classes(*classes: type) -> dict[str, object]:
    """Return classes by the names that annotations have for them."""
    return {cls.__name__: cls for cls in classes}
