"""``audit --fix`` of one model: carry out remedies by migrate's plan, and audit it again."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from policytool.commands import audit as auditing
from policytool.commands import migrate as migration
from policytool.commands.batch.task import WRITE_GRACE, Task
from policytool.commands.destinations import Destination, places_of
from policytool.commands.inspect import Failure
from policytool.commands.migrate import MigrateRequest, Migration, Status, Work, apply_plan
from policytool.formats.discovery import Input, display_path
from policytool.migration import plan
from policytool.rules import AuditOptions, fixes  # TASK evaluates annotations
from policytool.rules.finding import Audited, Severity
from policytool.rules.fixes import FixOutcome, Mended, Unmended
from policytool.support import limits
from policytool.support.errors import ModelFileError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from policytool.rules.finding import Finding
    from policytool.rules.fixes import Merged


@dataclass(frozen=True, kw_only=True, slots=True)
class FixOptions:
    """Which fixes to apply, and how."""

    unsafe: bool = False
    """Whether remedies that change numerics or training are carried out too."""

    write: bool = True
    """False for ``--diff``."""

    backup: bool = True
    overwrite: bool = False
    """Whether a backup that exists is replaced."""

    targets: tuple[str, ...] = ()
    """The loaders that must not lose a model by a fix."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelToFix:
    """One model, and what counts in it."""

    found: Input
    audited: Audited


@dataclass(frozen=True, kw_only=True, slots=True)
class FixRequest:
    """What is to be done to each model."""

    options: FixOptions
    audit_options: AuditOptions
    """What it is audited for afterwards."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FixAttempt:
    """What was done to one model."""

    mended: Mended
    migration: Migration | None = None
    """What would be written, for a diff."""

    after: Audited | Failure | None = None
    """What is found in a model that was written; None for one that was not."""


def attempt(case: ModelToFix, request: FixRequest) -> FixAttempt:
    """Return what became of a model, and what is found in it then."""
    done = _fix(case.found, case.audited, request.options)
    if done.mended.outcome is not FixOutcome.MENDED:
        return done
    try:
        after = auditing.audit_input(case.found, request.audit_options)
    except ModelFileError as error:
        return replace(done, after=Failure(path=error.path, code=error.code, message=error.message))
    return _with_remaining(done, case.audited, after)


def _fix(found: Input, audited: Audited, options: FixOptions) -> FixAttempt:
    """Return what became of a model; where the whole is refused, the safe part is done alone."""
    merged, planned = _plan_fixes(found, audited, options, unsafe=options.unsafe)
    if options.unsafe and isinstance(planned, str):
        safe, planned_safely = _plan_fixes(found, audited, options, unsafe=False)
        if isinstance(planned_safely, Migration):
            merged, planned = _with_reason(safe, merged.taken, planned), planned_safely
    if isinstance(planned, str):
        return FixAttempt(
            mended=Mended(
                path=audited.path, outcome=FixOutcome.LEFT, left=_all_left(merged, planned)
            )
        )
    done = Mended(
        path=audited.path,
        outcome=FixOutcome.PLANNED,
        arguments=merged.arguments,
        gone=merged.taken,
        left=merged.left,
        warnings=_warnings(planned),
    )
    if not options.write:
        return FixAttempt(mended=done, migration=planned)
    try:
        destination = Destination(in_place=True, backup=options.backup, overwrite=options.overwrite)
        done_by = apply_plan(Work(plan=planned.plan, source=found.path), destination)
    except ModelFileError as error:
        return FixAttempt(
            mended=Mended(
                path=audited.path, outcome=FixOutcome.FAILED, left=_all_left(merged, error.message)
            )
        )
    backup = done_by.written.backup if done_by.written is not None else None
    return FixAttempt(
        mended=replace(
            done,
            outcome=FixOutcome.MENDED,
            backup=display_path(backup) if backup is not None else None,
        )
    )


def places(case: ModelToFix, _request: FixRequest) -> frozenset[Path]:
    """Return the files and directories that are read or written for a model."""
    return places_of(case.found.path, "", Destination(in_place=True), several=False)


TASK: Final = Task(
    module=__name__,
    attempt=attempt,
    shown=lambda case: case.found.display_path,
    lost="has no report: the process that mended it {how}; the file is whole, mended or as it was",
    time=limits.WRITE_SECONDS,
    grace=WRITE_GRACE,
    places=places,
)
"""The fix of one model."""


def _all_left(merged: Merged, reason: str) -> tuple[Unmended, ...]:
    return (*merged.left, *(Unmended(finding=finding, reason=reason) for finding in merged.taken))


def _plan_fixes(
    found: Input, audited: Audited, options: FixOptions, *, unsafe: bool
) -> tuple[Merged, Migration | str]:
    """
    Return the merged remedies with what migrate would do, or with the reason why it does nothing.
    """
    merged = fixes.merge_remedies(audited.findings, unsafe=unsafe)
    if merged.options is None:
        return merged, "nothing is left to be done"
    destination = Destination(in_place=True, backup=options.backup, write=False)
    try:
        request = MigrateRequest(
            options=merged.options, destination=destination, parts=not options.write
        )
        result = migration.attempt(found, request)
    except UsageError as error:
        return merged, str(error)
    match result:
        case None:
            return merged, "it holds no policy that could be changed"
        case Failure():
            return merged, result.message
    if result.status is Status.REFUSED:
        return merged, "; ".join(refusal.message for refusal in result.plan.refusals)
    if result.status is Status.UNCHANGED:
        return merged, "migrate finds nothing to change in it"
    if result.plan.conversion is not None:
        return (
            merged,
            (
                f"the model would be written anew for {result.plan.conversion.target}, which --fix "
                "never does; migrate does it"
            ),
        )
    held = fixes.holding_back(result.plan, options.targets, unsafe=unsafe)
    return merged, held if held is not None else result


def _with_reason(safe: Merged, taken: tuple[Finding, ...], reason: str) -> Merged:
    """
    Return the safe part, whose other findings are left for the reason that the whole was refused
    for.
    """
    return replace(
        safe,
        left=tuple(
            replace(one, reason=reason) if one.finding in taken else one for one in safe.left
        ),
    )


def _warnings(migration: Migration) -> tuple[str, ...]:
    return tuple(
        note.message for note in migration.plan.notes if note.severity is plan.NoteSeverity.WARNING
    )


def _with_remaining(attempt: FixAttempt, before: Audited, after: Audited) -> FixAttempt:
    """Return a written attempt with what is gone and what is still there."""
    there = {_identity(finding) for finding in after.findings}  # no fix renames a layer
    still = {finding for finding in before.findings if _identity(finding) in there}
    done = attempt.mended
    stays = (
        Unmended(finding=finding, reason="migrate did what mends it, and it is found as before")
        for finding in done.gone
        if finding in still
    )
    unmended = [
        finding for finding in before.findings if finding not in still and finding not in done.gone
    ]
    vanished = Counter(
        finding.rule
        for finding in unmended
        if finding.rule.startswith(_TRAINING) and finding.severity is not Severity.NOTE
    )
    return replace(
        attempt,
        after=after,
        mended=replace(
            done,
            gone=tuple(finding for finding in done.gone if finding not in still),
            left=(*(one for one in done.left if one.finding in still), *stays),
            warnings=(
                *done.warnings,
                *(_vanished_message(rule, count) for rule, count in vanished.items()),
            ),
        ),
    )


_TRAINING: Final = "PT2"
"""
The family about what gets lost without a word; any other finding that goes with what was mended is
gone for good, and a note lost nothing.
"""


def _vanished_message(rule: str, count: int) -> str:
    """Say that something is gone which nothing mended: what it was about may have been lost."""
    return (
        f"{rule} is no longer found ({count} finding{'s' if count > 1 else ''}), and nothing that "
        "was done is its remedy"
    )


def _identity(finding: Finding) -> tuple[str, str | None, str]:
    return finding.rule, finding.path, finding.detail
