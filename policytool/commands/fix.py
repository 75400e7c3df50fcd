"""``audit --fix``: carry out the remedies of what counts by migrate's plan, and look again."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from policytool.commands import audit as auditing
from policytool.commands import migrate as migration
from policytool.commands.batch import file_conflicts, parallel, tasks
from policytool.commands.destinations import Destination, places_of
from policytool.commands.inspect import Failure
from policytool.commands.migrate import Migration, Status, Work, carried_out
from policytool.formats.discovery import shown
from policytool.migration import plan
from policytool.rules import fixes
from policytool.rules.finding import Severity
from policytool.rules.fixes import Mended, Outcome, Unmended
from policytool.rules.selection.suppressions import narrowed
from policytool.support.errors import ModelFileError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from policytool.commands.audit import Audit
    from policytool.formats.discovery import Input
    from policytool.rules import AuditOptions
    from policytool.rules.finding import Audited, Finding
    from policytool.rules.fixes import Merged
    from policytool.rules.selection.suppressions import Passing


@dataclass(frozen=True, kw_only=True, slots=True)
class Mending:
    """How to mend."""

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
class Case:
    """One model, and what counts in it."""

    found: Input
    audited: Audited


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """What is to be done to each model."""

    mending: Mending
    options: AuditOptions
    """What it is audited for afterwards."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """What was done to one model."""

    mended: Mended
    migration: Migration | None = None
    """What would be written, for a diff."""

    after: Audited | Failure | None = None
    """What is found in a model that was written; None for one that was not."""


def mended(
    audit: Audit, inputs: Sequence[Input], asked: Asked, passing: Passing, jobs: int | None = 1
) -> tuple[Audit, tuple[Migration, ...]]:
    """
    Return an audit after what counts in it was mended, and the migrations that would do so; each
    written model is audited again.

    Each model is mended on its own: what fails with one is said there, and is no matter of the
    others.
    """
    by_path = {found.shown: found for found in inputs}
    cases = [Case(found=by_path[one.path], audited=narrowed(one, passing)) for one in audit.audited]
    cases = [
        case
        for case in cases
        if any(finding.remedy is not None for finding in case.audited.findings)
    ]
    results = parallel.each(
        tasks.mend(),
        cases,
        asked,
        jobs,
        lambda: file_conflicts.after([_places(case) for case in cases]),
    )
    attempts = {case.audited.path: result for case, result in zip(cases, results, strict=True)}
    audited: list[Audited] = []
    failures = list(audit.failures)
    done: list[Attempt] = []
    for one in audit.audited:
        attempt = attempts.get(one.path)
        remains = (
            attempt
            if isinstance(attempt, Failure)
            else attempt.after
            if attempt is not None
            else None
        )
        if isinstance(remains, Failure):  # someone else may have removed it meanwhile
            failures.append(remains)
            continue
        audited.append(one if remains is None else remains)
        if isinstance(attempt, Attempt):
            done.append(attempt)
    migrations = tuple(attempt.migration for attempt in done if attempt.migration is not None)
    return replace(
        audit,
        audited=tuple(audited),
        failures=tuple(failures),
        mended=tuple(attempt.mended for attempt in done),
    ), migrations


def attempted(case: Case, asked: Asked) -> Attempt:
    """Return what became of a model, and what is found in it then."""
    attempt = _carried_out(case.found, case.audited, asked.mending)
    if attempt.mended.outcome is not Outcome.MENDED:
        return attempt
    try:
        after = auditing.audited(case.found, asked.options)
    except ModelFileError as error:
        return replace(
            attempt, after=Failure(path=error.path, code=error.code, message=error.message)
        )
    return _looked_at_again(attempt, case.audited, after)


def _carried_out(found: Input, audited: Audited, mending: Mending) -> Attempt:
    """Return what became of a model; where the whole is refused, the safe part is done alone."""
    merged, planned = _planned(found, audited, mending, unsafe=mending.unsafe)
    if mending.unsafe and isinstance(planned, str):
        safe, planned_safely = _planned(found, audited, mending, unsafe=False)
        if isinstance(planned_safely, Migration):
            merged, planned = _with_reason(safe, merged.taken, planned), planned_safely
    if isinstance(planned, str):
        return Attempt(
            mended=Mended(path=audited.path, outcome=Outcome.LEFT, left=_all_left(merged, planned))
        )
    done = Mended(
        path=audited.path,
        outcome=Outcome.PLANNED,
        arguments=merged.arguments,
        gone=merged.taken,
        left=merged.left,
        warnings=_warnings(planned),
    )
    if not mending.write:
        return Attempt(mended=done, migration=planned)
    try:
        destination = Destination(in_place=True, backup=mending.backup, overwrite=mending.overwrite)
        done_by = carried_out(Work(plan=planned.plan, source=found.path), destination)
    except ModelFileError as error:
        return Attempt(
            mended=Mended(
                path=audited.path, outcome=Outcome.FAILED, left=_all_left(merged, error.message)
            )
        )
    backup = done_by.written.backup if done_by.written is not None else None
    return Attempt(
        mended=replace(
            done, outcome=Outcome.MENDED, backup=shown(backup) if backup is not None else None
        )
    )


def directories(case: Case, _asked: Asked) -> frozenset[Path]:
    """Return where drafts of a model are made."""
    return frozenset(place.parent for place in _places(case))


def _places(case: Case) -> frozenset[Path]:
    return places_of(case.found.path, "", Destination(in_place=True), several=False)


def _all_left(merged: Merged, reason: str) -> tuple[Unmended, ...]:
    return (*merged.left, *(Unmended(finding=finding, reason=reason) for finding in merged.taken))


def _planned(
    found: Input, audited: Audited, mending: Mending, *, unsafe: bool
) -> tuple[Merged, Migration | str]:
    """
    Return the merged remedies with what migrate would do, or with the reason why it does nothing.
    """
    merged = fixes.merge_remedies(audited.findings, unsafe=unsafe)
    if merged.options is None:
        return merged, "nothing is left to be done"
    destination = Destination(in_place=True, backup=mending.backup, write=False)
    try:
        result = migration.attempted(
            found,
            migration.Asked(
                options=merged.options, destination=destination, parts=not mending.write
            ),
        )
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
    held = fixes.holding_back(result.plan, mending.targets, unsafe=unsafe)
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
        note.message for note in migration.plan.notes if note.severity is plan.Severity.WARNING
    )


def _looked_at_again(attempt: Attempt, before: Audited, after: Audited) -> Attempt:
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
                *(_vanished(rule, count) for rule, count in vanished.items()),
            ),
        ),
    )


_TRAINING: Final = "PT2"
"""
The family about what gets lost without a word; any other finding that goes with what was mended is
gone for good, and a note lost nothing.
"""


def _vanished(rule: str, count: int) -> str:
    """Say that something is gone which nothing mended: what it was about may have been lost."""
    return (
        f"{rule} is no longer found ({count} finding{'s' if count > 1 else ''}), and nothing that "
        "was done is its remedy"
    )


def _identity(finding: Finding) -> tuple[str, str | None, str]:
    return finding.rule, finding.path, finding.detail
