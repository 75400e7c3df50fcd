"""
Finds one command that makes a model pass its audit. The result of the command is audited before
the command is printed.

``migrate`` plans each attempt, and the rules check the planned document. Only values that the plan
casts are read, and nothing is written.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from policytool import rules
from policytool.commands import migration_preview
from policytool.commands.batch.isolation import cause
from policytool.commands.destinations import (
    Destination,
    container_to_name,
    default_name,
    target_of,
)
from policytool.formats.discovery import display_path
from policytool.migration import planning
from policytool.migration.plan import CUSTOM_CODE, WEIGHT_REWRITE, WRAPPER_POLICY
from policytool.migration.planning.options import Assignment, LossScales, Options
from policytool.model import reading
from policytool.model.compatibility import file_names
from policytool.model.model import Effect, verdict_of
from policytool.releases.releases import (
    TFJS,
    conversion_target,
    loaders_of,
    running_release,
    target_and_containers,
)
from policytool.rules import Needs, RuleInput, fixes, loading, safety
from policytool.rules.base import Finding, Fix, ModelCommand, Remedy, Severity, fails
from policytool.support.errors import (
    ModelFileError,
    PolicytoolError,
    SpellingError,
    UsageError,
)
from policytool.support.files import opening
from policytool.support.files.remote_path import AnyPath, RemotePath
from policytool.support.processes import interrupts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from policytool.migration.plan import Plan
    from policytool.model.loaded_model import LoadedModel
    from policytool.rules import AuditOptions

_NEWEST: Final = "keras3"
"""The default target if the user specifies none."""

_UNPLANNED: Final = frozenset({Needs.WEIGHTS, Needs.BASELINE, Needs.FORBID})
"""
The options of rules that need more than the planned document, so that only a remedy can resolve
their findings.
"""

_UNREADABLE: Final = frozenset({safety.external_data.id, safety.oversized_dataset.id})
"""The rules about stored values that no command can copy."""

_LOADING: Final = frozenset(
    {
        rule.id
        for rule in (
            loading.incompatible_with_target,
            loading.no_compatible_release,
            loading.newest_keras_fails,
            loading.tensorflow_js_fails,
        )
    }
)
"""The rules whose findings have a remedy only if edits of the file are sufficient."""

_ARCHIVE: Final = "keras"


class _Attempt(Struct, frozen=True, kw_only=True):
    """A call of ``migrate`` to try."""

    target: str | None = None
    allow_weight_rewrite: bool = False
    remedies: tuple[Remedy, ...] = ()
    output: AnyPath | None = None
    """The value of ``-o``; None for the default name."""

    to: str | None = None
    """The value of ``--to``, which sets the policies that the remedies set layer by layer."""

    patterns: tuple[tuple[str, str], ...] = ()
    """Values of ``--set`` that set the same policies as those of the remedies."""

    def options(self) -> Options:
        """Return the options of ``migrate``."""
        loader, containers = target_and_containers(self.target) if self.target else (None, ())
        scaled = any(remedy.keep_loss_scale for remedy in self.remedies)
        return Options(
            to=self.to
            or next((remedy.to for remedy in self.remedies if remedy.to is not None), None),
            assignments=tuple(Assignment(pattern=path, policy=name) for path, name in self._sets()),
            loss_scale=LossScales.KEEP if scaled else LossScales.DROP,
            target=loader,
            running=running_release(self.target),
            containers=containers,
            allow_weight_rewrite=self.allow_weight_rewrite,
        )

    @property
    def suffix(self) -> str:
        """
        The suffix of the output's name. It contains the target as the user specified it. The plan
        does not depend on that name, so that it can be shared with the plans of rules.
        """
        return replace(self.options(), target_name=self.target).suffix

    def arguments(self) -> tuple[str, ...]:
        """Return the arguments after ``policytool migrate PATH``."""
        options = self.options()
        remedy = Remedy(
            fix=Fix.UNSAFE,
            assignments=self._sets(),
            to=options.to,
            keep_loss_scale=options.loss_scale is LossScales.KEEP,
            target=self.target,
        )
        rewrite = ("--allow", "weight-rewrite") if self.allow_weight_rewrite else ()
        output = ("-o", display_path(self.output)) if self.output is not None else ()
        return (*remedy.arguments, *rewrite, *output)

    def effect(self, plan: Plan) -> Effect:
        """Return the effect of the call, according to its plan."""
        if any(remedy.fix is Fix.UNSAFE for remedy in self.remedies):
            return Effect.CHANGED
        if plan.note(CUSTOM_CODE) is not None:
            return Effect.CUSTOM_CODE
        return Effect.RESCALED if self.allow_weight_rewrite else Effect.UNCHANGED

    def shorter(self, loaded: LoadedModel) -> Iterator[_Attempt]:
        """Yield attempts with fewer options, which may set the same policies."""
        policies = dict(self._sets())
        if len(policies) < 2:  # noqa: PLR2004  # a single option cannot become shorter
            return
        options = self.options()
        if options.to is None and len(set(policies.values())) == 1:
            yield replace(self, to=next(iter(policies.values())))
        short = planning.with_layers(loaded, replace(options, assignments=()), policies)
        if len(short.assignments) < len(policies):
            pairs = ((entry.pattern, entry.policy) for entry in short.assignments)
            yield replace(self, patterns=tuple(pairs))

    def _sets(self) -> tuple[tuple[str, str], ...]:
        """Return the values of ``--set``, without duplicates."""
        if self.to is not None:
            return ()
        pairs = (pair for remedy in self.remedies for pair in remedy.assignments)
        return self.patterns or tuple(dict.fromkeys(pairs))


class _Outcome(Struct, frozen=True, kw_only=True):
    """The outcome of an attempt, according to its plan."""

    attempt: _Attempt
    reason: str | None = None
    """Why ``migrate`` would fail or block the plan; None if it would write the result."""

    effect: Effect | None = None
    """The effect of the plan; None if ``migrate`` writes no result."""

    refusals: tuple[str, ...] = ()
    """The codes of the refusals of the plan."""

    left: tuple[Finding, ...] = ()
    """The findings because of which the result fails the audit."""

    existing: AnyPath | None = None
    """The output, if it already exists."""

    can_replace_original: bool = False
    """Whether ``--in-place`` keeps the format, and no other target needs the original."""

    policies: tuple[tuple[str, str | None], ...] = ()
    """The paths of the layers of the result, with their policies."""

    required: Severity = Severity.WARNING
    """The severity from which on a finding that is left makes the attempt fail."""

    output: tuple[str, ...] = ()
    """``-o`` with a local name, if ``migrate`` cannot write next to the source; otherwise empty."""

    @property
    def failing(self) -> tuple[Finding, ...]:
        """The findings that are left, of the required severity."""
        return _failing(self.left, self.required)

    @property
    def passes(self) -> bool:
        """Whether no finding of the required severity is left."""
        return self.reason is None and not self.failing

    def command(self, target: str | None) -> ModelCommand:
        """
        Return the command. If its output exists, a run of the command may have left the original,
        which fails the audit: the command then replaces the original, if the format stays.
        """
        existing: str | None = None
        overwrite: tuple[str, ...] = ()
        if self.existing is not None and self.can_replace_original:
            overwrite = ("--in-place",)
        elif self.existing is not None:
            existing, overwrite = display_path(self.existing), ("--existing", "replace")
        return ModelCommand(
            target=target,
            arguments=(*self.attempt.arguments(), *self.output, *overwrite),
            effect=self.effect,
            leaves=tuple(sorted({finding.rule for finding in self.left})),
            existing=existing,
        )


def plan_commands(
    case: RuleInput, source: AnyPath, findings: Sequence[Finding], options: AuditOptions
) -> Iterator[ModelCommand]:
    """
    Yield the commands for each target for which a model fails the audit; nothing for a model that
    passes. The first command of a target is planned before the second one.
    """
    if not any(fails(finding, options.fail_on) for finding in findings):
        return
    if not options.names:
        yield from _plan_command(_untargeted_planner(case, source, options, findings), None)
        return
    if len(options.names) == 1:
        yield from _plan_command(_Planner(case, source, options, findings), options.names[0])
        return
    known: set[tuple[tuple[str, ...] | None, str | None]] = set()
    for name in options.names:
        single = replace(options, targets=loaders_of((name,)), target_names=(name,))
        own_findings = rules.findings(case, single)
        planner = _Planner(case, source, single, own_findings, has_other_targets=True)
        for command in _plan_command(planner, name) if planner.failing else ():
            if (command.arguments, command.reason) not in known:
                known.add((command.arguments, command.reason))
                yield command


def _untargeted_planner(
    case: RuleInput, source: AnyPath, options: AuditOptions, findings: Sequence[Finding]
) -> _Planner:
    """
    Return the planner if the user specified no target. If the newest Keras fails to load the model,
    the planner is for this target, so that the command is the same as with it.
    """
    failing = _failing(findings, options.fail_on)
    if any(finding.rule == loading.newest_keras_fails.id for finding in failing):
        options = replace(options, targets=loaders_of((_NEWEST,)), target_names=(_NEWEST,))
        findings = tuple(rules.findings(case, options))
    return _Planner(case, source, options, findings)


def _plan_command(planner: _Planner, target: str | None) -> Iterator[ModelCommand]:
    """
    Yield the commands for a target: first the one that fixes only the errors, if it keeps
    predictions and the command for all findings may not. If planning exceeds a limit, the result
    has no command, and the limit as the reason. The findings of the model are not affected.
    """
    if planner.needs_only_name:  # the findings have the command
        return
    try:
        partial = None
        if planner.may_change_predictions and (errors := planner.with_errors_only()).failing:
            partial = errors.command(target)
            if _keeps_predictions(partial):
                yield partial
        full_command = planner.command(target)
        if partial is None or not _keeps_predictions(partial) or _is_beside(full_command, partial):
            yield full_command
    except (PolicytoolError, MemoryError, RecursionError, OSError) as error:
        interrupts.check()
        reason = f"no command was planned: {cause(error)}"
        yield ModelCommand(target=target, reason=reason, is_beyond_limit=True)


def _keeps_predictions(command: ModelCommand) -> bool:
    """Return whether a command exists and changes neither predictions nor training."""
    return command.effect in {Effect.UNCHANGED, Effect.RESCALED, Effect.CUSTOM_CODE}


def _is_beside(full_command: ModelCommand, partial: ModelCommand) -> bool:
    """Return whether the command for all findings exists and differs from that for the errors."""
    return full_command.arguments not in (None, partial.arguments)


class _Planner:
    """The search for the command of one model and one target."""

    def __init__(
        self,
        case: RuleInput,
        source: AnyPath,
        options: AuditOptions,
        findings: Iterable[Finding],
        required: Severity | None = None,
        *,
        has_other_targets: bool = False,
    ) -> None:
        """
        Set the model and its findings.

        :param required: the severity from which on the command has to fix findings; by default,
            that for which the audit fails
        :param has_other_targets: whether the original may be meant for another target
        """
        self._case = case
        self._source = source
        self._is_read_only = isinstance(source, RemotePath) and _is_read_only(source)
        self._options = options
        self._has_other_targets = has_other_targets
        self._outcomes: dict[_Attempt, _Outcome] = {}
        self._findings = _failing(findings, options.fail_on)
        self._required = required or options.fail_on
        self.failing = _failing(self._findings, self._required)

    @property
    def may_change_predictions(self) -> bool:
        """Whether the fix of a finding that is not an error changes predictions."""
        return any(
            finding.severity is not Severity.ERROR and _sets_dtypes(finding)
            for finding in self.failing
        )

    @property
    def needs_only_name(self) -> bool:
        """Whether the model passes under another name, so that no conversion is needed."""
        names = self._options.targets or (self._case.loaded.loader if self._case.loaded else "",)
        verdicts = (verdict_of(self._case.model.loaders, name) for name in names)
        failing = [verdict for verdict in verdicts if verdict is not None and verdict.reason]
        return bool(failing) and (
            all(file_names.needed_name(verdict) is not None for verdict in failing)
            and all(finding.rule in _LOADING for finding in self.failing)
        )

    def with_errors_only(self) -> _Planner:
        """Return the planner of a command that fixes errors; other findings may be left."""
        return _Planner(
            self._case,
            self._source,
            self._options,
            self._findings,
            Severity.ERROR,
            has_other_targets=self._has_other_targets,
        )

    def command(self, target: str | None) -> ModelCommand:
        """Return the first command whose result passes, or why there is none."""
        outcomes: list[_Outcome] = []
        for attempt in self._attempts(target):
            outcome = self._outcome(attempt)
            if outcome.passes:
                return self._shortest(outcome).command(target)
            outcomes.append(outcome)
        return ModelCommand(
            target=target,
            reason=_no_command(outcomes),
            is_beyond_limit=any(reading.BEYOND in outcome.refusals for outcome in outcomes),
        )

    def _shortest(self, outcome: _Outcome) -> _Outcome:
        """Return the outcome of a shorter call that sets the same policies, or else the same."""
        loaded = self._case.loaded
        for attempt in outcome.attempt.shorter(loaded) if loaded is not None else ():
            other = self._outcome(attempt)
            if (
                other.passes
                and (other.policies, other.effect) == (outcome.policies, outcome.effect)
                and {finding.rule for finding in other.left}
                <= {finding.rule for finding in outcome.left}
            ):
                return other
        return outcome

    def _attempts(self, target: str | None) -> Iterator[_Attempt]:
        """Yield the calls to try, in the order of how much they change."""
        remedies = [finding.remedy for finding in self.failing if finding.remedy is not None]
        setting = tuple(
            finding.remedy for finding in self.failing if finding.remedy and _sets_dtypes(finding)
        )
        keeps_format = not any(
            finding.rule in _LOADING and finding.remedy is None for finding in self.failing
        )
        if any(remedy.fix is Fix.SAFE for remedy in remedies) and not setting and keeps_format:
            yield _Attempt()
        fixed = tuple(remedy for remedy in remedies if not remedy.retrace)
        if fixed and keeps_format:
            yield _Attempt(remedies=fixed)
        written = conversion_target(target) if target else self._own_target()
        converted = _Attempt(target=written, remedies=setting)
        yield from self._with_remedies(converted)
        if set(self._outcome(converted).refusals) == {WEIGHT_REWRITE}:
            yield from self._with_remedies(replace(converted, allow_weight_rewrite=True))
        is_open = (
            setting or self._outcome(converted).failing
        )  # an archive may resolve more than edits
        if is_open and self._case.document.format != _ARCHIVE:
            archive = self._archive(converted)
            yield from self._with_remedies(replace(converted, output=archive))

    def _own_target(self) -> str:
        """Return the target of the command if the user specified none."""
        fails_in_browsers = any(
            finding.rule == loading.tensorflow_js_fails.id for finding in self.failing
        )
        return TFJS if fails_in_browsers else _NEWEST

    def _archive(self, attempt: _Attempt) -> AnyPath:
        """Return the path of a new archive, the only format from which Keras 3 loads optimizers."""
        name = default_name(self._source, attempt.suffix, _ARCHIVE)
        return Path(name) if self._is_read_only else self._source.with_name(name)

    def _with_remedies(self, attempt: _Attempt) -> Iterator[_Attempt]:
        """Yield an attempt, and then the attempt with remedies for its remaining findings."""
        yield attempt
        outcome = self._outcome(attempt)
        rules_left = {finding.rule for finding in outcome.failing}
        remedies = tuple(
            finding.remedy
            for finding in (*self.failing, *outcome.failing)
            if finding.remedy is not None
            and (finding.rule in rules_left or finding.remedy in attempt.remedies)
        )
        if outcome.failing and set(remedies) != set(attempt.remedies):
            yield replace(attempt, remedies=remedies)

    def _outcome(self, attempt: _Attempt) -> _Outcome:
        """Return the outcome of a call of ``migrate``, which is planned only once."""
        if attempt not in self._outcomes:
            self._outcomes[attempt] = self._find_outcome(attempt)
        return self._outcomes[attempt]

    def _find_outcome(self, attempt: _Attempt) -> _Outcome:
        """
        Plan a call of ``migrate``, audit the planned result, and return the findings that are left.
        """
        loaded = self._case.loaded
        options = attempt.options()
        if fixes.is_unloadable(self._case):
            refusal = next(planning.unloadable(self._case.model.loaders), None)
            reason = refusal.message if refusal is not None else _DAMAGED_VALUES
            return _Outcome(attempt=attempt, reason=reason)
        try:
            migration_preview.check_migratable(
                self._case.document, converts=options.target is not None
            )
            if loaded is None:
                return _Outcome(attempt=attempt, reason="the model has no layers")
            destination = Destination(output=attempt.output, write=False)
            plan = migration_preview.plan_migration(loaded, options, destination)
            preview = migration_preview.preview(plan, self._source, destination, loaded=loaded)
        except ModelFileError as error:
            return _Outcome(attempt=attempt, reason=error.message)
        except (UsageError, SpellingError) as error:
            return _Outcome(attempt=attempt, reason=str(error))
        if preview.target is None:  # nothing changes
            return _Outcome(attempt=attempt, left=self._findings, required=self._required)
        if refusals := preview.plan.refusals:
            return _Outcome(
                attempt=attempt,
                reason=refusals[0].message,
                refusals=tuple(refusal.code for refusal in refusals),
            )
        if (change := preview.plan.note(WRAPPER_POLICY)) is not None:
            return _Outcome(attempt=attempt, reason=change.message)
        container = container_to_name(plan, self._source)
        output = target_of(
            self._source, attempt.suffix, destination, several=False, container=container
        )
        output_arguments: tuple[str, ...] = ()
        if self._is_read_only and attempt.output is None:
            output = Path(output.name)
            output_arguments = ("-o", output.name)
        planned = migration_preview.planned_model(loaded, options, destination, plan)
        return _Outcome(
            attempt=attempt,
            effect=attempt.effect(preview.plan),
            left=self._remaining_findings(planned, attempt),
            required=self._required,
            existing=output if opening.is_taken(output) else None,
            can_replace_original=isinstance(self._source, Path)
            and attempt.output is None
            and (options.target is None or not self._has_other_targets)
            and container != TFJS
            and plan.written_format == plan.format,
            output=output_arguments,
            policies=tuple((layer.path, layer.policy) for layer in planned.layers),
        )

    def _remaining_findings(self, planned: LoadedModel, attempt: _Attempt) -> tuple[Finding, ...]:
        """Return the findings because of which a planned result fails the audit."""
        result = RuleInput(
            model=planned.model, document=planned.document, loaded=planned, is_planned=True
        )
        rule_options = replace(self._options, weights=False, signatures={})
        remaining = _failing(rules.findings(result, rule_options), self._options.fail_on)
        rules_left = {finding.rule for finding in remaining}
        is_unresolved = (
            finding
            for finding in self._findings
            if finding.remedy not in attempt.remedies
            and (
                _is_unplanned(finding) or (_sets_dtypes(finding) and finding.rule not in rules_left)
            )
        )
        return (*remaining, *is_unresolved)


_DAMAGED_VALUES: Final = (
    "the model cannot be loaded: stored values are missing or damaged; save the model again, or "
    "copy the file again"
)


def _is_unplanned(finding: Finding) -> bool:
    """Return whether a planned document cannot show if a finding remains."""
    return finding.rule in _UNREADABLE or rules.BY_ID[finding.rule].needs in _UNPLANNED


def _sets_dtypes(finding: Finding) -> bool:
    """
    Return whether the remedy of a finding sets policies of layers. A conversion must not resolve
    such a finding by itself, as for wrappers of Keras 3: it would change predictions, and the
    comparison of predictions would fail.
    """
    return finding.remedy is not None and bool(finding.remedy.assignments)


def _is_read_only(source: RemotePath) -> bool:
    """Return whether ``migrate`` cannot write next to a remote file."""
    from policytool.commands.remote_migration import WRITABLE  # only URLs need it

    return source.protocol not in WRITABLE


def _failing(findings: Iterable[Finding], fail_on: Severity) -> tuple[Finding, ...]:
    return tuple(finding for finding in findings if fails(finding, fail_on))


def _no_command(outcomes: Sequence[_Outcome]) -> str:
    """Return why no command helps, according to the attempt with the fewest remaining findings."""
    converted = [outcome for outcome in outcomes if outcome.attempt.target is not None]
    without_reason = [outcome for outcome in converted if outcome.reason is None]
    if not without_reason:
        return str(converted[0].reason)
    nearest = min(without_reason, key=lambda outcome: len(outcome.failing))
    first = nearest.failing[0]
    others = sorted({finding.rule for finding in nearest.failing} - {first.rule})
    further_targets = f" ({', '.join(others)} too)" if others else ""
    arguments = " ".join(("migrate", *nearest.attempt.arguments()))
    return f"{first.rule} still occurs after {arguments}{further_targets}: {first.message}"
