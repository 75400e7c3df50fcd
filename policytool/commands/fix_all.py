"""``audit --fix`` for many models."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from policytool.commands.batch import parallel
from policytool.commands.fix import TASK, FixAttempt, ModelToFix
from policytool.commands.inspect import Failure
from policytool.rules.selection.suppressions import suppress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from policytool.commands.audit import Audit
    from policytool.commands.fix import FixRequest
    from policytool.commands.migrate import Migration
    from policytool.formats.discovery import Input
    from policytool.rules.finding import Audited
    from policytool.rules.selection.suppressions import Suppressions


def fix_all(
    audit: Audit,
    inputs: Sequence[Input],
    request: FixRequest,
    passing: Suppressions,
    jobs: int | None = 1,
) -> tuple[Audit, tuple[Migration, ...]]:
    """
    Return an audit after what counts in it was mended, and the migrations that would do so; each
    written model is audited again.

    Each model is mended on its own: what fails with one is said there, and is no matter of the
    others.
    """
    by_path = {found.display_path: found for found in inputs}
    cases = [
        ModelToFix(found=by_path[one.path], audited=suppress(one, passing)) for one in audit.audited
    ]
    cases = [
        case
        for case in cases
        if any(finding.remedy is not None for finding in case.audited.findings)
    ]
    results = parallel.run_all(TASK, cases, request, jobs)
    attempts = {case.audited.path: result for case, result in zip(cases, results, strict=True)}
    audited: list[Audited] = []
    failures = list(audit.failures)
    done: list[FixAttempt] = []
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
        if isinstance(attempt, FixAttempt):
            done.append(attempt)
    migrations = tuple(attempt.migration for attempt in done if attempt.migration is not None)
    return replace(
        audit,
        audited=tuple(audited),
        failures=tuple(failures),
        mended=tuple(attempt.mended for attempt in done),
    ), migrations
