"""
The page of ``audit``: the number of models with findings, then the findings of each model and the
command that fixes them; with charts in HTML.

Equal messages of a rule about several layers are displayed once, with the names of the layers.
Other reports of an audit use the texts of this module.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from policytool.model.model import Effect
from policytool.releases.releases import release_name
from policytool.reports import layout
from policytool.reports.page import (
    Bar,
    Bars,
    Block,
    Command,
    Fact,
    Facts,
    Figures,
    Graph,
    Item,
    Listing,
    Page,
    Sentence,
    Tone,
    Verdict,
)
from policytool.reports.words import (
    EFFECTS,
    failure_facts,
    generation_words,
    many,
    migrate_words,
)
from policytool.rules.base import Fix, Severity, fingerprints
from policytool.rules.base import worst as worst_severity
from policytool.rules.fixes import FixOutcome
from policytool.support.grouping import group_pairs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from policytool.commands.audit import Audit
    from policytool.model.model import Layer
    from policytool.reports.layout import View
    from policytool.rules import Rule
    from policytool.rules.base import Audited, Finding, ModelCommand, Remedy, Suppressed
    from policytool.rules.fixes import FixedModel


TONES: Final = {
    Severity.ERROR: Tone.BAD,
    Severity.WARNING: Tone.CAUTION,
    Severity.NOTE: Tone.DIM,
}

OUTCOMES: Final = {FixOutcome.FIXED: "fixed", FixOutcome.PLANNED: "would be fixed"}


class FindingGroup(Struct, frozen=True, kw_only=True):
    """The findings of a rule in a file with the same severity."""

    rule: Rule
    severity: Severity
    findings: tuple[Finding, ...]


class Totals(Struct, frozen=True, kw_only=True):
    """The totals of an audit."""

    models: int
    clean: int
    """The number of models without findings, except suppressed findings."""

    severities: Mapping[Severity, int]
    fixes: Mapping[Fix, int]
    """The number of findings that ``migrate`` fixes, by the effect of the fix."""

    within_reach: Mapping[Fix, int]
    """The number of findings that ``audit`` can fix, because they do not need TensorFlow."""

    suppressed: int
    failures: int


def rules_of(audit: Audit) -> Mapping[str, Rule]:
    """Return the rules of an audit, by id."""
    return {rule.id: rule for rule in audit.rules}


def groups(audit: Audit, audited: Audited) -> list[FindingGroup]:
    """
    Return the findings of a model by rule and severity, the most severe first; within a severity,
    in the order of the findings.
    """
    findings_by_rule = group_pairs(
        ((finding.rule, finding.severity), finding) for finding in audited.findings
    )
    rules = rules_of(audit)
    finding_groups = [
        FindingGroup(rule=rules[rule], severity=severity, findings=tuple(findings))
        for (rule, severity), findings in findings_by_rule.items()
    ]
    return sorted(finding_groups, key=lambda group: group.severity.rank)


def annotation(audited: Audited, finding: Finding) -> str:
    """Return sentences about a finding and its fix, for reports that show it alone."""
    fixes = fix_sentences(audited, finding)
    return f"{whole_message(finding)}. {fixes}" if fixes else f"{whole_message(finding)}."


def whole_message(finding: Finding) -> str:
    """Return the message of a finding with its subject."""
    message, subject = finding.message, finding.path
    if subject is not None and subject in message:
        return message
    if message.startswith("fails to "):
        return f"{subject or 'the model'} {message}"
    return f"{subject}: {message}" if subject is not None else message


def layer_message(finding: Finding) -> str:
    """
    Return the message about a layer for display next to the path of the layer: without the path at
    its start.
    """
    return finding.message.removeprefix(f"{finding.path} ") if finding.path else finding.message


def paths_by_message(findings: Iterable[Finding]) -> list[tuple[str, tuple[str, ...]]]:
    """Return each message about layers, with the paths of the layers that have it."""
    paths_by_text = group_pairs((layer_message(finding), finding.path) for finding in findings)
    return [
        (text, tuple(path for path in dict.fromkeys(paths) if path is not None))
        for text, paths in paths_by_text.items()
    ]


def remedies(findings: Iterable[Finding]) -> list[Remedy]:
    """
    Return the remedies of findings, each once. Remedies that set policies of different layers are
    merged; the result re-exports the model if one of them does.
    """
    remedies_by_kind = group_pairs(
        (
            replace(remedy, assignments=(), retrace=remedy.retrace and not remedy.assignments),
            remedy,
        )
        for finding in findings
        if (remedy := finding.remedy) is not None
    )
    return [_merge_remedies(remedies) for remedies in remedies_by_kind.values()]


def _merge_remedies(remedies: Sequence[Remedy]) -> Remedy:
    assignments = dict.fromkeys(pair for remedy in remedies for pair in remedy.assignments)
    retrace = any(remedy.retrace for remedy in remedies)
    return replace(remedies[0], assignments=tuple(assignments), retrace=retrace)


def advice(findings: Iterable[Finding]) -> list[str]:
    """Return the advice of findings, without duplicates."""
    return list(dict.fromkeys(finding.advice for finding in findings if finding.advice is not None))


def commands(audited: Audited) -> Iterator[tuple[str, tuple[str, ...]]]:
    """
    Yield the commands for a model, each with a label: those that fix it, or the remedies of its
    notes if it passes already.
    """
    for command in audited.commands:
        if command.arguments is not None:
            target = f" for {release_name(command.target)}" if command.target is not None else ""
            yield (
                f"fix{target} ({_effects(command)})",
                migrate_words(audited.path, command.arguments),
            )
    for remedy in remedies(audited.findings) if not audited.commands else ():
        if not remedy.retrace:
            effect = Effect.UNCHANGED if remedy.fix is Fix.SAFE else Effect.CHANGED
            yield f"fix ({EFFECTS[effect]})", migrate_words(audited.path, remedy.arguments)


def _effects(command: ModelCommand) -> str:
    """
    Return the effect of a command, the rules for which the result still fails the audit, and how to
    end a repetition: the command does not change the model, which then fails again.
    """
    parts = [EFFECTS[command.effect]] if command.effect is not None else []
    if command.leaves:
        verb = "remains" if len(command.leaves) == 1 else "remain"
        parts.append(f"{', '.join(command.leaves)} {verb}")
    if command.existing is not None:
        parts.append(
            f"{layout.file(command.existing)} exists: if it is the result, audit it instead"
        )
    return "; ".join(parts)


def obstacles(audited: Audited) -> Iterator[tuple[str, str]]:
    """Yield the reasons why no command makes a model pass, each with a label."""
    for command in audited.commands:
        if command.reason is not None:
            target = f" for {release_name(command.target)}" if command.target is not None else ""
            rule = next(
                (
                    finding.rule
                    for finding in audited.findings
                    if finding.advice is not None and command.reason in finding.advice
                ),
                None,
            )
            reason = command.reason if rule is None else f"the hint of {rule} contains the reason"
            yield f"no command fixes it{target}", reason


def fix_sentences(audited: Audited, finding: Finding) -> str:
    """Return sentences about the fix of a finding; empty if no fix is known."""
    by_target: dict[str | None, str] = {}
    for command in audited.commands if finding.severity is not Severity.NOTE else ():
        if command.arguments is not None and finding.rule not in command.leaves:
            words = layout.command(migrate_words(audited.path, command.arguments))
            subject = "this" if command.leaves else "the model"
            sentence = f"`{words}` fixes {subject} ({_effects(command)})."
            by_target.setdefault(command.target, sentence)
    sentences = list(by_target.values())
    if finding.advice is not None:
        sentences.append(f"Hint: {finding.advice}.")
    return " ".join(sentences)


def with_fingerprints(audited: Audited) -> list[tuple[Finding, str]]:
    """Return the findings with their fingerprints."""
    return list(
        zip(audited.findings, audited.fingerprints or fingerprints(audited.findings), strict=True)
    )


def places(findings: Iterable[Finding]) -> str:
    """Return the layers that findings are about, each once."""
    return ", ".join(
        dict.fromkeys(
            finding.path if finding.path is not None else "the model" for finding in findings
        )
    )


def totals(audit: Audit) -> Totals:
    """Return the numbers of models, findings, fixes and failures."""
    clean_count = suppressed = 0
    severities = Counter[Severity]()
    fixes, within_reach = Counter[Fix](), Counter[Fix]()
    for audited in audit.audited:
        clean_count += not audited.findings
        suppressed += len(audited.suppressed)
        severities.update(finding.severity for finding in audited.findings)
        remedies = [finding.remedy for finding in audited.findings if finding.remedy is not None]
        fixes.update(remedy.fix for remedy in remedies)
        within_reach.update(remedy.fix for remedy in remedies if not remedy.retrace)
    return Totals(
        models=len(audit.audited),
        clean=clean_count,
        severities={severity: severities[severity] for severity in Severity},
        fixes={fix: fixes[fix] for fix in Fix},
        within_reach={fix: within_reach[fix] for fix in Fix},
        suppressed=suppressed,
        failures=len(audit.failures),
    )


def summary(audit: Audit) -> str:
    """Return the totals in one or more sentences; empty if there is nothing to count."""
    count = totals(audit)
    sentences = []
    if count.models:
        finding_counts = _severity_words(count.severities)
        failing = count.models - count.clean
        model_words = f" in {many(failing, 'model')}" if finding_counts and count.models > 1 else ""
        checked_for = _releases(audit)
        sentences.append(
            f"Checked {many(count.models, 'model')}{checked_for}: "
            f"{finding_counts or 'no findings'}{model_words}"
        )
    safe, unsafe = count.within_reach[Fix.SAFE], count.within_reach[Fix.UNSAFE]
    if safe or unsafe:
        parts = [f"{safe} fixable with --fix"] * bool(safe) + [
            f"{unsafe} {'more ' if safe else ''}fixable with --unsafe-fixes"
        ] * bool(unsafe)
        sentences.append(", ".join(parts))
    if count.suppressed:
        sentences.append(f"{count.suppressed} suppressed")
    if count.failures:
        sentences.append(f"{many(count.failures, 'file')} could not be read")
    return "; ".join(sentences)


def headline(audit: Audit) -> str:
    """Return the number of findings in a model, and the releases for which it was checked."""
    finding_counts = counts(finding for audited in audit.audited for finding in audited.findings)
    return f"{finding_counts or 'no findings'}; checked{_releases(audit)}"


def _releases(audit: Audit) -> str:
    names = ", ".join(generation_words(name).strip() for name in audit.releases)
    return f" for {names}" if names else ""


def counts(findings: Iterable[Finding]) -> str:
    """Return the number of findings of each severity as text; empty without findings."""
    return _severity_words(Counter(finding.severity for finding in findings))


def _severity_words(severities: Mapping[Severity, int]) -> str:
    return ", ".join(
        many(severities[severity], severity.value)
        for severity in Severity
        if severities.get(severity)
    )


_CLASS: Final = re.compile(r"^\((\w+)\)")
_SHOWN: Final = 8
"""The maximum number of layers named for a finding; HTML and JSON name all."""


def page(audit: Audit, view: View) -> Page:
    """Return the page; models without anything to report are only in the totals."""
    fixed_by_path = {fixed.path: fixed for fixed in audit.fixed}
    visible_models = [
        audited
        for audited in audit.audited
        if audited.findings
        or audited.path in fixed_by_path
        or (audited.suppressed and view.suppressed)
    ]
    models = [
        tuple(_model(audit, audited, fixed_by_path.get(audited.path), view))
        for audited in visible_models
    ]
    failures = failure_facts(audit.failures)
    text = summary(audit)
    if not text:
        return Page(groups=())
    worst = worst_severity(finding for audited in audit.audited for finding in audited.findings)
    verdict = Verdict.whole(text=text, tone=TONES[worst] if worst is not None else Tone.GOOD)
    first: list[Block] = [verdict]
    if view.is_searchable:
        first += [_figures(audit), *charts(audit)]
    return Page(groups=(tuple(first), *models), failures=failures)


def _figures(audit: Audit) -> Figures:
    """Return the number of findings of each severity, and of those that can be fixed."""
    count = totals(audit)
    severities = [
        Fact(
            label=f"{severity.value}s",
            text=f"{number:,}",
            tone=TONES[severity] if number else Tone.DIM,
        )
        for severity, number in count.severities.items()
    ]
    fixable = Fact(label="fixable", text=f"{sum(count.within_reach.values()):,}")
    return Figures(figures=(*severities, fixable))


def _model(
    audit: Audit, audited: Audited, fixed_model: FixedModel | None, view: View
) -> Iterator[Block]:
    worst = worst_severity(audited.findings)
    yield Verdict.whole(
        subject=audited.path,
        text=counts(audited.findings) or "no findings",
        tone=TONES[worst] if worst is not None else Tone.PLAIN,
    )
    finding_groups = groups(audit, audited)
    if finding_groups:
        yield Listing(items=tuple(item for group in finding_groups for item in _items(group)))
    for label, words in commands(audited):
        yield Command(label=label, words=words)
    if view.is_searchable and (drawing := _graph(audited)):
        yield drawing
    if reasons := tuple(Fact(label=label, text=reason) for label, reason in obstacles(audited)):
        yield Facts(facts=reasons)
    if view.suppressed and audited.suppressed:
        yield Facts(facts=tuple(_suppressed_facts(audited.suppressed)))
    if fixed_model is not None and (facts := tuple(_fixes(fixed_model))):
        yield Facts(facts=facts)


def _graph(audited: Audited) -> Graph | None:
    """
    Return the graph of the layers, coloured by the worst finding; None if no finding is about a
    layer of the graph.
    """
    from policytool.reports import layer_graph  # only HTML needs it

    findings_by_path = group_pairs((finding.path, finding) for finding in audited.findings)

    def mark(layer: Layer) -> layer_graph.LayerMark:
        findings = findings_by_path.get(layer.path, ())
        severity = worst_severity(findings)
        return layer_graph.LayerMark(
            text=", ".join(dict.fromkeys(finding.rule for finding in findings)),
            tone=TONES[severity] if severity is not None else Tone.PLAIN,
            details=tuple(
                Fact(label=finding.rule, text=layer_message(finding)) for finding in findings
            ),
        )

    if not any(layer.path in findings_by_path for layer in audited.connected_layers):
        return None
    return layer_graph.layer_graph(
        "Layers by worst finding, from input to output", audited.connected_layers, mark, _LEGEND
    )


_LEGEND: Final = (
    Sentence(text="no finding"),
    *(Sentence(text=severity.value, tone=tone) for severity, tone in reversed(TONES.items())),
)
"""The colours of layers in the graph."""


def _items(group: FindingGroup) -> Iterator[Item]:
    label = f"{group.rule.id} {group.severity.value}"
    tone = TONES[group.severity]
    full_messages = {layer_message(finding): finding.message for finding in group.findings}
    for text, paths in paths_by_message(group.findings):
        has_several_paths = len(paths) > 1
        yield Item(
            label=label,
            tone=tone,
            text=_of_several(text, len(paths)) if has_several_paths else full_messages[text],
            names=tuple(paths) if has_several_paths else (),
            most=_SHOWN,
        )
    for text in advice(group.findings):
        yield Item(label="", tone=Tone.PLAIN, text=f"hint: {text}")


def _of_several(text: str, count: int) -> str:
    """Return the message of a rule about layers, which may start with a class in parentheses."""
    return _CLASS.sub(r"\1", text) + f" ({count} layers)"


def _suppressed_facts(suppressed_findings: Iterable[Suppressed]) -> Iterator[Fact]:
    """Yield the suppressed findings by rule and reason."""
    paths_by_reason = group_pairs(
        (
            (suppressed.finding.rule, suppressed.by, suppressed.reason),
            suppressed.finding.path or suppressed.finding.message,
        )
        for suppressed in suppressed_findings
    )
    for (rule, by_what, reason), paths in paths_by_reason.items():
        reason_words = reason if by_what in reason else f"{by_what}{': ' if reason else ''}{reason}"
        yield Fact(
            label=f"{rule} suppressed",
            text=f"{', '.join(dict.fromkeys(paths))} ({reason_words})",
            tone=Tone.DIM,
        )


def _fixes(fixed_model: FixedModel) -> Iterator[Fact]:
    """Yield the fixed findings, the others with their reasons, and the lost information."""
    for rule, findings in group_pairs(
        (finding.rule, finding) for finding in fixed_model.gone
    ).items():
        yield Fact(
            label=f"{rule} {OUTCOMES[fixed_model.outcome]}", text=places(findings), tone=Tone.GOOD
        )
    unfixed = group_pairs(
        ((entry.finding.rule, entry.reason), entry.finding) for entry in fixed_model.left
    )
    for (rule, reason), findings in unfixed.items():
        yield Fact(
            label=f"{rule} not fixed",
            text=f"{places(findings)}: {reason}",
            tone=Tone.CAUTION,
        )
    yield from (
        Fact(label="warning", text=text, tone=Tone.CAUTION) for text in fixed_model.warnings
    )
    if fixed_model.backup is not None:
        yield Fact(label="original", text=f"kept in {fixed_model.backup}", tone=Tone.DIM)


_MOST: Final = 20
"""The maximum number of bars in a chart."""


def charts(audit: Audit) -> Iterator[Bars]:
    """Yield the chart of findings by rule, and by model if there are several models."""
    known = rules_of(audit)
    rules, models = Counter[str](), Counter[str]()
    worst: dict[str, Severity] = {}
    for audited in audit.audited:
        for finding in audited.findings:
            rule = f"{finding.rule} {known[finding.rule].name}"
            rules[rule] += 1
            models[audited.path] += 1
            for name in (rule, audited.path):
                previous_severity = worst.setdefault(name, finding.severity)
                worst[name] = min(
                    previous_severity, finding.severity, key=lambda severity: severity.rank
                )
    if rules:
        yield _chart("Findings by rule", rules, worst)
    if len(models) > 1:
        yield _chart("Findings by model", models, worst)


def _chart(title: str, counts: Mapping[str, int], worst: Mapping[str, Severity]) -> Bars:
    ranked_counts = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    hidden_count = len(ranked_counts) - _MOST
    return Bars(
        title=title + (f" (the first {_MOST} of {len(ranked_counts)})" if hidden_count > 0 else ""),
        bars=tuple(
            Bar(label=name, value=count, text=f"{count:,}", tone=TONES[worst[name]])
            for name, count in ranked_counts[:_MOST]
        ),
    )
