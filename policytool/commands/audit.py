"""``audit``: runs the rules on each model, and counts the findings over all models."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from policytool import rules
from policytool.commands.batch.task import Task
from policytool.commands.inspect import CACHING, Failure, failure_of, separate_failures
from policytool.formats import discovery, format_detection
from policytool.formats.discovery import Input  # noqa: TC001  # TASK evaluates annotations
from policytool.model import reading, rounded_weights
from policytool.releases.releases import KERAS3, loaders_of, newest
from policytool.releases.releases import libraries as libraries_of
from policytool.rules import AuditOptions, Device, Needs, selection
from policytool.rules.base import Audited, Severity, fails, fingerprints, worst
from policytool.rules.selection.suppressions import all_of
from policytool.support import steps
from policytool.support.errors import ModelFileError
from policytool.support.files.remote_path import AnyPath, RemotePath
from policytool.support.spilled_values import SpilledValues

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from policytool.commands.arguments.reading import AuditArguments
    from policytool.rules import Rule, RuleInput
    from policytool.rules.base import Finding, ModelCommand
    from policytool.rules.fixes import FixedModel
    from policytool.rules.selection.suppressions import Suppression, Suppressions


class Audit(Struct, frozen=True, kw_only=True):
    """The result of a call."""

    audited: Sequence[Audited]
    failures: tuple[Failure, ...] = ()
    passed_over: int = 0
    """The number of skipped files from directories and globs that are not models."""

    rules: tuple[Rule, ...] = rules.RULES
    """The rules that were run, including the rules of all findings."""

    releases: tuple[str, ...] = ()
    """The releases that the models were checked for: the targets, or else the newest Keras."""

    fail_on: Severity | None = Severity.WARNING
    """The lowest severity with which a finding makes its model fail; None if no finding does."""

    fixed: tuple[FixedModel, ...] = ()
    """
    With ``--fix`` or ``--diff``, the result for each model that has findings with remedies or fails
    the audit; ``audited`` then contains the remaining findings.
    """


def attempt(source: Input, options: AuditOptions) -> Audited | Failure | None:
    """
    Return the audited model of an input, its failure, or None for a discovered file that is not a
    model.
    """
    try:
        return audit_input(source, options)
    except ModelFileError as error:
        return failure_of(source, error)


TASK: Final = Task(
    module=__name__, attempt=attempt, shown=lambda source: source.display_path, caching=CACHING
)
"""The audit of one file."""


def audit_input(source: Input, options: AuditOptions) -> Audited:
    """
    Return the findings of the rules in one model.

    :raises ModelFileError: if the input is not a readable model.
    """
    with steps.budget(source.display_path):
        return audit_model(read_model(source), source.path, options)


def read_model(source: Input) -> RuleInput:
    """
    Return one model as the input of rules.

    :raises ModelFileError: if the input is not a readable model.
    """
    document = format_detection.document(source.path, source.display_path)
    if document.config_part is None:
        return rules.RuleInput(model=reading.model_of(document), document=document, loaded=None)
    loaded = reading.load_model(document)
    return rules.RuleInput(model=loaded.model, document=document, loaded=loaded)


def audit_model(case: RuleInput, path: AnyPath, options: AuditOptions) -> Audited:
    """
    Return the findings of the rules in a model that was read from ``path``.

    :raises ModelFileError: if the start of the stored values is damaged.
    """
    if any(rule.needs is Needs.WEIGHTS for rule in rules.chosen_rules(options)):
        case = _with_values(case, path, options)
    model = case.model
    findings = tuple(rules.findings(case, options))
    audited = Audited(
        path=model.path,
        config_file=case.document.config_file,
        format=model.format,
        generation=model.generation,
        layers=len(model.layers),
        findings=findings,
        signatures=model.signatures,
        connected_layers=case.loaded.connected_layers
        if options.draws_graph and findings and case.loaded is not None
        else (),
    )
    return with_commands(audited, case, path, options)


def with_commands(
    audited: Audited, case: RuleInput, path: AnyPath, options: AuditOptions
) -> Audited:
    """
    Return the result with the commands that make the model pass, and without the advice that these
    replace; unchanged if the model passes already.
    """
    failing = any(fails(finding, options.fail_on) for finding in audited.findings)
    if not failing or not options.plans_commands:
        return audited
    if isinstance(path, RemotePath) and path.shown != path.url:
        return audited  # a report does not show the whole URL, and a command needs it
    from policytool.commands import model_command  # imports conversions, which few models need

    commands = tuple(model_command.plan_commands(case, path, audited.findings, options))
    findings = tuple(
        replace(finding, advice=None) if is_fixed_by(commands, finding, options) else finding
        for finding in audited.findings
    )
    return replace(audited, findings=findings, commands=commands)


def is_fixed_by(commands: Sequence[ModelCommand], finding: Finding, options: AuditOptions) -> bool:
    """Return whether one of the commands of a model fixes a finding."""
    if finding.rule not in rules.CONVERSION_RULES and not fails(finding, options.fail_on):
        return False
    working = [
        command
        for command in commands
        if command.arguments is not None and finding.rule not in command.leaves
    ]
    loaders = loaders_of([command.target for command in working if command.target is not None])
    return len(working) == len(commands) or finding.detail.partition(" ")[0] in loaders


def without_idle_commands(audited: Audited, options: AuditOptions) -> Audited:
    """Return the result of a model, without commands if all failing findings are suppressed."""
    failing = any(fails(finding, options.fail_on) for finding in audited.findings)
    return audited if failing else replace(audited, commands=())


def checked_releases(options: AuditOptions) -> tuple[str, ...]:
    """Return the names of the targets, or of the newest Keras if there are none."""
    return options.names or (newest(KERAS3).id,)


def audit_options(arguments: AuditArguments) -> AuditOptions:
    """
    Return the options of an audit from the arguments.

    :raises UsageError: if a target or a rule does not exist.
    """
    target, device = arguments.target, arguments.device
    names = tuple(dict.fromkeys((target,) if isinstance(target, str) else target or ()))
    selected = selection.selectors(arguments.select or (), "--select")
    return AuditOptions(
        rules=selection.select_rules(
            selected, selection.selectors(arguments.ignore or (), "--ignore")
        ),
        judges_training=selection.names_training(selected),
        targets=loaders_of(names),
        target_names=names,
        device=Device(device) if device is not None else None,
        weights=arguments.weights,
    )


def audit(path: str, options: AuditOptions) -> Audit:
    """
    Return the audit of the saved model at ``path``.

    :raises ModelFileError: if the input is not a readable model.
    """
    return Audit(
        audited=(audit_input(discovery.named_input(path, remote=True), options),),
        rules=rules.chosen_rules(options),
        releases=checked_releases(options),
    )


def _with_values(case: RuleInput, path: AnyPath, options: AuditOptions) -> RuleInput:
    """
    Return the case with counts of its stored values and of the effects of casting them.

    :raises ModelFileError: if the start of the stored values is damaged.
    """
    from policytool.rules import stored_values  # imports NumPy, and h5py for most files

    libraries = libraries_of(case.loaded.loader, options.targets) if case.loaded is not None else ()
    stored = stored_values.read_values(
        path,
        case.document,
        case.loaded,
        rounded_weights.narrower_dtypes(case.loaded, libraries) if case.loaded is not None else {},
    )
    return replace(case, counts=stored.counts, unread=stored.unread, damaged=stored.damaged)


def collect(results: Iterable[Audited | Failure | None]) -> Audit:
    """Return the results as one value, in the order of the inputs."""
    audited = SpilledValues(Audited)
    failures, passed_over = separate_failures(results, audited.append)
    return Audit(audited=audited.all(), failures=failures, passed_over=passed_over)


@dataclass(kw_only=True, slots=True, eq=False)
class AuditTally:
    """The counts over the models that were added so far."""

    suppressions: Suppressions
    models: int = 0
    worst: Severity | None = None
    suppressed: Counter[str] = field(default_factory=Counter)
    """The number of findings that each kind of suppression hides."""

    unmatched: list[tuple[str, str]] = field(default_factory=list)
    """
    The models to which not all suppressions could be applied, each with the reason as the end of a
    sentence.
    """

    _used: set[int] = field(default_factory=set)
    """The indices of the suppressions that match a finding."""

    _seen: set[str] = field(default_factory=set)
    """The models that are in the baseline."""

    _outdated: int = 0

    def add(self, audited: Audited) -> None:
        """Count a model whose suppressed findings are already separated."""
        self.models += 1
        severities = [
            severity for severity in (self.worst, worst(audited.findings)) if severity is not None
        ]
        self.worst = min(severities, key=lambda severity: severity.rank, default=None)
        self.suppressed.update(suppressed.by for suppressed in audited.suppressed)
        every = all_of(audited)
        of_model = self.suppressions.of_model(audited)
        for finding in every:
            self._used.update(of_model.meant_for(finding))
        if of_model.exceeded:
            self.unmatched.append((audited.path, of_model.exceeded))
        known = self.suppressions.known.get(audited.path)
        if known is not None and audited.path not in self._seen:
            self._seen.add(audited.path)
            self._outdated += (Counter(known) - Counter(fingerprints(every))).total()

    def idle(self) -> tuple[Suppression, ...]:
        """Return the active suppressions that match no finding."""
        return tuple(
            suppression
            for number, suppression in enumerate(self.suppressions.entries)
            if number not in self._used and not suppression.is_expired(self.suppressions.today)
        )

    def outdated_count(self, exists: Callable[[str], bool]) -> int:
        """
        Return the number of findings in the baseline that no longer occur: those in the added
        models, and those in files that no longer exist.
        """
        return self._outdated + sum(
            Counter(known).total()
            for path, known in self.suppressions.known.items()
            if path not in self._seen and not exists(path)
        )


def tally_of(every: Iterable[Audited], suppressions: Suppressions) -> AuditTally:
    """Return the counts of models whose suppressed findings are already separated."""
    tally = AuditTally(suppressions=suppressions)
    for audited in every:
        tally.add(audited)
    return tally
