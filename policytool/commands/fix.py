"""
``audit --fix``: audits each model, applies remedies with a plan of ``migrate``, and audits it
again.

A model is read once for the first audit and the plan, and again after it was written.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from policytool.commands import audit as auditing
from policytool.commands import migrate
from policytool.commands.audit import Audit
from policytool.commands.batch.isolation import failure_from
from policytool.commands.batch.task import WRITE_GRACE, Task
from policytool.commands.destinations import Destination, touched_paths
from policytool.commands.inspect import Failure, failure_of, split_results
from policytool.commands.migrate import MigrateRequest, Migration, Status, Work, apply_plan
from policytool.commands.migration_preview import check_migratable
from policytool.formats.discovery import Input, display_path
from policytool.migration import plan
from policytool.releases.releases import release_name
from policytool.rules import AuditOptions, fixes, training  # TASK evaluates annotations
from policytool.rules.base import Audited, fails
from policytool.rules.fixes import FixedModel, FixOutcome, UnfixedFinding
from policytool.rules.selection.suppressions import Suppressions, suppress
from policytool.support import limits, steps
from policytool.support.errors import ModelFileError, UsageError
from policytool.support.grouping import group_pairs
from policytool.support.processes import crash_guard
from policytool.support.text.phrases import join_and_count

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from policytool.rules import RuleInput
    from policytool.rules.base import Finding
    from policytool.rules.fixes import Merged
    from policytool.support.files.remote_path import AnyPath


class FixOptions(Struct, frozen=True, kw_only=True):
    """The options of ``--fix``."""

    unsafe: bool = False
    """Whether to also apply remedies that change predictions or training."""

    write: bool = True
    """False for ``--diff``."""

    backup: bool = True

    targets: tuple[str, ...] = ()
    """The releases that must still load a fixed model."""


class FixRequest(Struct, frozen=True, kw_only=True):
    """The options for each model."""

    options: FixOptions
    audit_options: AuditOptions
    suppressions: Suppressions
    """The suppressions. Suppressed findings are not fixed."""


class FixAttempt(Struct, frozen=True, kw_only=True):
    """The result of fixing a model."""

    audited: Audited
    """The findings in the model after the fix, including suppressed findings."""

    fixed: FixedModel | None = None
    """
    The applied fixes, and the reasons for the other findings; None if no finding that is not
    suppressed has a remedy or fails the audit.
    """

    migration: Migration | None = None
    """The planned migration, with ``--diff``."""


def attempt(source: Input, request: FixRequest) -> FixAttempt | Failure | None:
    """
    Return the result of fixing an input, with its remaining findings; its failure, or None for a
    discovered file that is not a model.
    """
    with steps.budget(source.display_path):
        return _attempt(source, request)


def _attempt(source: Input, request: FixRequest) -> FixAttempt | Failure | None:
    """Audit a model, fix it, and audit the written result again."""
    crash_guard.set_next_file(source.display_path, auditing.TASK.lost)
    try:
        case = auditing.read_model(source)
        unplanned = replace(request.audit_options, plans_commands=False)
        audited = auditing.audit_model(case, source.path, unplanned)
    except ModelFileError as error:
        return failure_of(source, error)
    before = suppress(audited, request.suppressions)
    if not any(finding.remedy is not None for finding in before.findings):
        unchanged = FixedModel(path=audited.path, outcome=FixOutcome.UNCHANGED)
        audited = auditing.with_commands(audited, case, source.path, request.audit_options)
        unfixed = _with_others(unchanged, audited, request)
        return FixAttempt(audited=audited, fixed=unfixed if unfixed.left else None)
    crash_guard.set_next_file(source.display_path, TASK.lost)
    fixed, migration = _fix(case, source.local_path, before, request.options)
    if fixed.outcome is FixOutcome.PLANNED:
        fixed = _with_others(fixed, audited, request)
        return FixAttempt(audited=audited, fixed=fixed, migration=migration)
    if fixed.outcome is not FixOutcome.FIXED:
        audited = auditing.with_commands(audited, case, source.path, request.audit_options)
        if fixed.outcome is FixOutcome.UNCHANGED:  # else, all have the reason why writing failed
            fixed = _with_others(fixed, audited, request)
        return FixAttempt(audited=audited, fixed=fixed)
    try:
        after = auditing.audit_input(source, request.audit_options)
    except ModelFileError as error:  # another process may have removed the file
        return failure_from(source.display_path, error)
    fixed = _with_remaining(fixed, before, after)
    return FixAttempt(audited=after, fixed=_with_others(fixed, after, request))


def _fix(
    case: RuleInput, source: Path, audited: Audited, options: FixOptions
) -> tuple[FixedModel, Migration | None]:
    """
    Fix a model and return the result, with the planned migration for a diff. If unsafe fixes are
    blocked, only the safe fixes are applied.
    """
    merged, planned = _plan_fixes(case, source, audited, options)
    if options.unsafe and isinstance(planned, str):
        safe, planned_safely = _plan_fixes(case, source, audited, replace(options, unsafe=False))
        if isinstance(planned_safely, Migration):
            merged, planned = _with_reason(safe, merged.taken, planned), planned_safely
    if isinstance(planned, str):
        unfixed = _all_unfixed(merged, planned)
        return FixedModel(path=audited.path, outcome=FixOutcome.UNCHANGED, left=unfixed), None
    fixed = FixedModel(
        path=audited.path,
        outcome=FixOutcome.PLANNED,
        arguments=merged.arguments,
        gone=merged.taken,
        left=merged.left,
        warnings=_warnings(planned),
    )
    if not options.write:
        return fixed, planned
    try:
        destination = Destination(in_place=True, backup=options.backup)
        done_by = apply_plan(Work(plan=planned.plan, source=source), destination)
    except ModelFileError as error:
        unfixed = _all_unfixed(merged, error.message)
        return FixedModel(path=audited.path, outcome=FixOutcome.FAILED, left=unfixed), None
    backup = done_by.written.backup if done_by.written is not None else None
    backup_path = display_path(backup) if backup is not None else None
    return replace(fixed, outcome=FixOutcome.FIXED, backup=backup_path), None


def places(source: Input, request: FixRequest) -> frozenset[AnyPath]:
    """Return the files and directories that are read or written for a model."""
    destination = Destination(in_place=True, write=request.options.write)
    return touched_paths(source.local_path, "", destination, several=False)


TASK: Final = Task(
    module=__name__,
    attempt=attempt,
    shown=lambda source: source.display_path,
    lost=(
        "may not have been fixed: the worker process {how}; the file is intact, either fixed or "
        "unchanged"
    ),
    time=limits.WRITE_SECONDS,
    grace=WRITE_GRACE,
    places=places,
)
"""The fix of one model."""


def collect(
    results: Iterable[FixAttempt | Failure | None],
) -> tuple[Audit, tuple[Migration, ...]]:
    """
    Return the findings that remain in the models after the fixes, in the order of the models, and
    the planned migrations.
    """
    attempts, failures, passed_over = split_results(results)
    audit = Audit(
        audited=tuple(attempt.audited for attempt in attempts),
        failures=failures,
        passed_over=passed_over,
        fixed=tuple(attempt.fixed for attempt in attempts if attempt.fixed is not None),
    )
    return audit, tuple(attempt.migration for attempt in attempts if attempt.migration is not None)


def _all_unfixed(merged: Merged, reason: str) -> tuple[UnfixedFinding, ...]:
    return (
        *merged.left,
        *(UnfixedFinding(finding=finding, reason=reason) for finding in merged.taken),
    )


def _plan_fixes(
    case: RuleInput, source: Path, audited: Audited, options: FixOptions
) -> tuple[Merged, Migration | str]:
    """
    Return the merged remedies, with the planned migration or the reason why nothing is changed.
    """
    merged = fixes.merge_remedies(audited.findings, unsafe=options.unsafe)
    if merged.options is None:
        return merged, "there is nothing to fix"
    if case.loaded is None:
        return merged, "it contains no policy that can be changed"
    destination = Destination(in_place=True, backup=options.backup, write=False)
    try:
        check_migratable(case.document)
        request = MigrateRequest(
            options=merged.options, destination=destination, details=not options.write
        )
        result = migrate.migrate_loaded(case.loaded, source, request)
    except UsageError as error:
        return merged, str(error)
    except ModelFileError as error:
        return merged, error.message
    if result.status is Status.BLOCKED:
        return merged, "; ".join(refusal.message for refusal in result.plan.refusals)
    if result.status is Status.UNCHANGED:
        return merged, "migrate would not change the model"
    if result.plan.conversion is not None:
        return (
            merged,
            (
                "the model must be converted for "
                f"{release_name(result.plan.conversion.target)}, which --fix never does; use "
                "migrate"
            ),
        )
    reason = fixes.reason_not_to_apply(result.plan, options.targets, unsafe=options.unsafe)
    return merged, reason if reason is not None else result


def _with_reason(safe: Merged, planned_findings: tuple[Finding, ...], reason: str) -> Merged:
    """
    Return the safe remedies, with the reason why the other remedies are not applied.

    :param planned_findings: the findings whose remedies were planned, safe and unsafe
    :param reason: why these remedies together cannot be applied
    """
    return replace(
        safe,
        left=tuple(
            replace(unfixed, reason=reason) if unfixed.finding in planned_findings else unfixed
            for unfixed in safe.left
        ),
    )


def _warnings(migration: Migration) -> tuple[str, ...]:
    """Return the warnings of migrate, and the releases that load only the original."""
    planned = migration.plan
    loading = {verdict.loader for verdict in planned.loaders_before if verdict.loads}
    lost = group_pairs(
        (verdict.explanation, release_name(verdict.loader))
        for verdict in planned.loaders_after
        if verdict.reason is not None and verdict.loader in loading
    )
    return (
        *(note.message for note in planned.notes if note.severity is plan.NoteSeverity.WARNING),
        *(
            f"{join_and_count(names, None)} load the original, but not the fixed model: {reason}"
            for reason, names in lost.items()
        ),
    )


def _with_remaining(fixed: FixedModel, before: Audited, after: Audited) -> FixedModel:
    """Return the result of a written model with its fixed and its remaining findings."""
    remaining = {_identity(finding) for finding in after.findings}  # no fix renames a layer
    remaining_findings = {finding for finding in before.findings if _identity(finding) in remaining}
    is_remaining = (
        UnfixedFinding(finding=finding, reason="migrate applied the fix, but the finding remains")
        for finding in fixed.gone
        if finding in remaining_findings
    )
    unfixed = [
        finding
        for finding in before.findings
        if finding not in remaining_findings and finding not in fixed.gone
    ]
    vanished = Counter(
        finding.rule
        for finding in unfixed
        if finding.rule.startswith(_TRAINING) and finding.rule not in _LOSES_NOTHING
    )
    return replace(
        fixed,
        gone=tuple(finding for finding in fixed.gone if finding not in remaining_findings),
        left=(
            *(entry for entry in fixed.left if entry.finding in remaining_findings),
            *is_remaining,
        ),
        warnings=(
            *fixed.warnings,
            *(_vanished_message(rule, count) for rule, count in vanished.items()),
        ),
    )


def _with_others(fixed: FixedModel, remaining: Audited, request: FixRequest) -> FixedModel:
    """
    Return the result with each finding that still fails the audit and has no reason yet.

    :param remaining: the findings in the model after the fix, with the commands for it
    """
    options = request.audit_options
    has_reason = {_identity(entry.finding) for entry in fixed.left}
    has_reason.update(map(_identity, fixed.gone))
    others = tuple(
        UnfixedFinding(finding=finding, reason=_reason(finding, remaining, options))
        for finding in suppress(remaining, request.suppressions).findings
        if fails(finding, options.fail_on) and _identity(finding) not in has_reason
    )
    return replace(fixed, left=(*fixed.left, *others))


def _reason(finding: Finding, audited: Audited, options: AuditOptions) -> str:
    """Return why a finding without a remedy is not fixed."""
    if not audited.commands:
        return "no edit in place fixes it; audit shows whether a conversion does"
    if auditing.is_fixed_by(audited.commands, finding, options):
        return "it needs a conversion, which --fix never does; use the command that audit shows"
    hint = "; see its hint" if finding.advice is not None else ""
    return f"no command fixes it{hint}"


_TRAINING: Final = "PT2"
"""
The family of rules about settings that can be lost silently. Other findings that disappear with a
fix are resolved.
"""

_LOSES_NOTHING: Final = frozenset(
    {training.ineffective_loss_scale.id, training.unnecessary_loss_scaling.id}
)
"""Rules of this family whose findings are about settings without an effect."""


def _vanished_message(rule: str, count: int) -> str:
    """Return a warning about findings that disappeared without a fix: a setting may be lost."""
    return (
        f"{rule} no longer occurs ({count} finding{'s' if count > 1 else ''}), although no "
        "applied fix explains this"
    )


def _identity(finding: Finding) -> tuple[str, str | None, str]:
    return finding.rule, finding.path, finding.detail
