"""
The fixes of ``--fix``: the remedies of a model's findings, merged into one migration, and the
result.

A safe remedy keeps predictions unchanged, bit for bit, and ``--fix`` applies it. Other remedies
also require ``--unsafe-fixes``.

Findings about a release describe the plan of ``migrate --target``.
"""

from __future__ import annotations

from collections import defaultdict
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from policytool.formats.document import LOST_VALUES
from policytool.formats.edits import EditKind
from policytool.migration import planning
from policytool.migration.plan import REBUILD, WEIGHT_REWRITE, WRAPPER_POLICY, NoteSeverity
from policytool.migration.planning import notes
from policytool.migration.planning.options import Assignment, LossScales, Options
from policytool.model.compatibility import stored_variables
from policytool.model.loaded_model import once_per_model
from policytool.model.model import verdict_of
from policytool.releases.dtypes import HALVES
from policytool.releases.releases import release_name, running_release, target_and_containers
from policytool.rules.base import Finding, Fix, Remedy

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from policytool.formats.edits import Cast
    from policytool.migration.plan import Note, Plan
    from policytool.model.loaded_model import LoadedModel
    from policytool.rules.base import RuleInput


_WIDE: Final = frozenset({"float32", "float64"})


class FixOutcome(StrEnum):
    """The outcome of the fixes for a model."""

    FIXED = "fixed"
    """The model was rewritten in place."""

    PLANNED = "planned"
    """The model would be rewritten; ``--diff`` writes nothing."""

    UNCHANGED = "unchanged"
    """The model is unchanged; each finding has the reason."""

    FAILED = "failed"
    """Writing failed; the model is unchanged."""


class UnfixedFinding(Struct, frozen=True, kw_only=True):
    """A finding that was not fixed."""

    finding: Finding
    reason: str
    """The reason, as a sentence without a full stop."""


class FixedModel(Struct, frozen=True, kw_only=True):
    """The result of ``--fix`` for a model that has findings with remedies or fails the audit."""

    path: str
    """The path of the model in reports."""

    outcome: FixOutcome
    arguments: tuple[str, ...] = ()
    """
    The arguments after ``policytool migrate PATH`` for the same result. Empty for ``migrate``
    without options, and if no remedy was applied.
    """

    gone: tuple[Finding, ...] = ()
    """
    The fixed findings: a remedy was applied, and the rule no longer reports them. With ``--diff``,
    the findings that would be fixed.
    """

    left: tuple[UnfixedFinding, ...] = ()
    """
    The findings that were not fixed although they have a remedy, and those without a remedy that
    fail the audit.
    """

    warnings: tuple[str, ...] = ()
    """
    What the rewritten file lost: information, by the warnings of migrate, the releases that loaded
    only the original, and findings that disappeared although they were not fixed.
    """

    backup: str | None = None
    """The path of the backup of the original in reports."""


class Merged(Struct, frozen=True, kw_only=True):
    """The remedies of a model as one migration."""

    options: Options | None = None
    """The options of migrate; None if there is nothing to do."""

    taken: tuple[Finding, ...] = ()
    """The findings whose remedies are merged."""

    left: tuple[UnfixedFinding, ...] = ()

    @property
    def arguments(self) -> tuple[str, ...]:
        """The arguments after ``policytool migrate PATH``."""
        return _together(
            [finding.remedy for finding in self.taken if finding.remedy is not None]
        ).arguments


def merge_remedies(findings: Sequence[Finding], *, unsafe: bool) -> Merged:
    """
    Return the remedies of a model's findings as one migration.

    Remedies that contradict each other are all left out, because no reason prefers one of them. All
    other remedies are applied, because each fixes its finding independently. A safe remedy is left
    out if only an unsafe remedy, which is not allowed, would keep a loss scale: rewriting policies
    drops it.
    """
    fixable = [finding for finding in findings if finding.remedy is not None]
    left_out = {
        index: reason
        for index, finding in enumerate(fixable)
        if (reason := _out_of_reach(finding, unsafe=unsafe)) is not None
    }
    saving = next(
        (
            finding
            for index, finding in enumerate(fixable)
            if index in left_out and finding.remedy is not None and finding.remedy.keep_loss_scale
        ),
        None,
    )
    if saving is not None:
        reason = (
            f"it would drop the loss scale that {saving.rule} reports; --unsafe-fixes moves "
            "the loss scale to the optimizer"
        )
        left_out = {index: left_out.get(index, reason) for index in range(len(fixable))}
    left_out |= _contradictions(
        [(index, finding) for index, finding in enumerate(fixable) if index not in left_out]
    )
    applied = tuple(finding for index, finding in enumerate(fixable) if index not in left_out)
    return Merged(
        options=_options([finding.remedy for finding in applied if finding.remedy is not None])
        if applied
        else None,
        taken=applied,
        left=tuple(
            UnfixedFinding(finding=finding, reason=left_out[index])
            for index, finding in enumerate(fixable)
            if index in left_out
        ),
    )


def _out_of_reach(finding: Finding, *, unsafe: bool) -> str | None:
    remedy = finding.remedy
    if remedy is not None and remedy.retrace:
        return "it requires TensorFlow, which audit never runs; use migrate --retrace"
    if remedy is not None and remedy.fix is Fix.UNSAFE and not unsafe:
        return "it changes numerics or training; use --unsafe-fixes to apply it"
    return None


def _contradictions(findings: Iterable[tuple[int, Finding]]) -> dict[int, str]:
    """
    Return the reason for each finding whose remedy sets the same option to another value than the
    remedy of another finding.
    """
    values_by_option: defaultdict[str, defaultdict[str, list[tuple[int, Finding]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for index, finding in findings:
        for option, value in _asks(finding.remedy):
            values_by_option[option][value].append((index, finding))
    reasons: dict[int, str] = {}
    for option, values in values_by_option.items():
        if len(values) > 1:
            conflict = " and ".join(
                f"{option}{value} ({holders[0][1].rule})" for value, holders in values.items()
            )
            reasons |= {
                index: f"the fixes conflict: {conflict}"
                for holders in values.values()
                for index, _ in holders
            }
    return reasons


def _asks(remedy: Remedy | None) -> Iterator[tuple[str, str]]:
    """Yield the options that a remedy sets, with their values."""
    if remedy is not None:
        if remedy.to is not None:
            yield "--to ", remedy.to
        if remedy.target is not None:
            yield "--target ", remedy.target
        for path, policy in remedy.assignments:
            yield f"--set {path}=", policy


def _together(remedies: Sequence[Remedy]) -> Remedy:
    """Merge remedies that do not contradict each other."""
    return Remedy(
        fix=Fix.UNSAFE if any(remedy.fix is Fix.UNSAFE for remedy in remedies) else Fix.SAFE,
        assignments=tuple(
            dict.fromkeys(pair for remedy in remedies for pair in remedy.assignments)
        ),
        to=next((remedy.to for remedy in remedies if remedy.to is not None), None),
        keep_loss_scale=any(remedy.keep_loss_scale for remedy in remedies),
        target=next((remedy.target for remedy in remedies if remedy.target is not None), None),
    )


def _options(remedies: Sequence[Remedy]) -> Options:
    merged = _together(remedies)
    return Options(
        to=merged.to,
        assignments=tuple(
            Assignment(pattern=path, policy=policy) for path, policy in merged.assignments
        ),
        loss_scale=LossScales.KEEP if merged.keep_loss_scale else LossScales.DROP,
        target=merged.target,
    )


def reason_not_to_apply(plan: Plan, targets: Sequence[str], *, unsafe: bool) -> str | None:
    """
    Return the reason why a plan must not be applied; None if it may be applied.

    A fix must not make one of the user's targets fail to load the model. A safe fix of any rule
    edits only policy formats, keeps all stored values, and keeps all information for training.
    """
    for target in targets:
        before = verdict_of(plan.loaders_before, target)
        after = verdict_of(plan.loaders_after, target)
        if after is None or after.reason is None:
            continue
        if before is None or before.reason is None:
            return (
                f"{release_name(target)} loads the original, but would fail to load the result: "
                f"{after.reason}"
            )
    if (change := plan.note(WRAPPER_POLICY)) is not None:
        return change.message
    if unsafe:
        return None
    if (
        not all(map(_is_exact, plan.casts))
        or plan.state is not None
        or any(edit.kind is not EditKind.FORMAT for edit in plan.edits)
    ):
        return "it would change more than the policy format; use --unsafe-fixes to apply it"
    dropped = next(
        (
            note
            for note in plan.notes
            if note.code == "loss-scale-dropped" and note.severity is NoteSeverity.WARNING
        ),
        None,
    )
    return (
        f"it would change training: {dropped.message}; use --unsafe-fixes to apply it"
        if dropped is not None
        else None
    )


def is_unloadable(case: RuleInput) -> bool:
    """
    Return whether no release loads a file because of its config or its stored variables, and
    ``migrate`` does not resolve that, as it does for quantized attention layers.
    """
    if case.damaged or any(case.observations(*LOST_VALUES)):
        return True
    if stored_variables.damage(case.model.loaders) is None:
        return False
    return case.loaded is None or _stays_unloadable(case.loaded)


@once_per_model
def _stays_unloadable(loaded: LoadedModel) -> bool:
    return stored_variables.damage(planning.plan(loaded, Options()).loaders_after) is not None


def with_possible_remedy(case: RuleInput, finding: Finding) -> Finding:
    """
    Return a finding, without its remedy if no edit is a fix: no release loads the file because of
    its config or its stored variables, or Keras 3 would compute layers of the edited file in other
    dtypes.
    """
    if finding.remedy is None:
        return finding
    if is_unloadable(case):
        return replace(finding, remedy=None)
    if case.loaded is None or finding.remedy.fix is Fix.UNSAFE:
        return finding
    return finding if _wrapper_policy(case.loaded) is None else replace(finding, remedy=None)


@once_per_model
def _wrapper_policy(loaded: LoadedModel) -> Note | None:
    """Return the note of ``migrate`` about the layers that Keras 3 computes in other dtypes."""
    if not any(notes.layers_with_other_policies(loaded)):
        return None
    return planning.plan(loaded, Options()).note(WRAPPER_POLICY)


def _is_exact(cast: Cast) -> bool:
    """Return whether a cast keeps all values unchanged, such as from bfloat16 to float32."""
    return cast.before in HALVES and cast.after in _WIDE and cast.through in {None, cast.before}


def conversion_advice(case: RuleInput, target: str, otherwise: str) -> str | None:
    """
    Return advice for making a release load the model. None if migrate converts it, because the
    report then has the command for the model.

    :param otherwise: the advice if migrate does not convert the model
    """
    plan, _ = _plan(case, target)
    if plan is None or (plan.conversion is None and not plan.refusals):
        return otherwise
    if plan.refusals:
        message = plan.refusals[0].message
        if otherwise not in message:  # a refusal may have advice on the same model, in more words
            message = f"{message.partition(f'; {REBUILD}')[0]}; {otherwise}"
        return f"migrate cannot convert the model: {message}"
    verdict = verdict_of(plan.loaders_after, target)
    if verdict is None or verdict.not_judged is None:
        return None
    name = release_name(target)
    return (
        f"migrate --target {target} converts the model, but its compatibility with {name} is "
        f"unknown: {verdict.not_judged}"
    )


def lacks_class(case: RuleInput, target: str) -> bool:
    """Return whether migrate refuses a conversion because the target has no class of a layer."""
    plan, _ = _plan(case, target)
    return plan is not None and any(refusal.code == "class" for refusal in plan.refusals)


def doubt_advice(case: RuleInput, target: str, name: str, otherwise: str) -> str:
    """
    Return advice for making a release certainly load the model.

    :param name: the user's name of the target
    :param otherwise: the advice if no conversion removes the doubt
    """
    plan, option = _plan(case, target)
    if plan is None or plan.conversion is None or plan.refusals:
        return conversion_advice(case, target, otherwise) or otherwise
    if conversion_advice(case, target, otherwise) is not None:
        return otherwise  # the verdict on the result is also unknown
    return f"migrate --target {name}{option} converts the model"


def _plan(case: RuleInput, target: str) -> tuple[Plan | None, str]:
    """
    Return the plan of migrate, and the option that it needs in addition to ``--target``. The plan
    is None for a model without a config, and for the result of another plan.
    """
    if case.loaded is None or case.is_planned:
        return None, ""
    from policytool.migration.convert import conversion_plan

    loader, containers = target_and_containers(target)
    options = Options(target=loader, containers=containers, running=running_release(target))
    plan = conversion_plan.plan(case.loaded, options, None)
    if plan.refusals and all(refusal.code == WEIGHT_REWRITE for refusal in plan.refusals):
        allowed = conversion_plan.plan(
            case.loaded, replace(options, allow_weight_rewrite=True), None
        )
        if not allowed.refusals:
            return allowed, " --allow weight-rewrite"
    return plan, ""
