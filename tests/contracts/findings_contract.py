"""What all rules find in fixtures and in models with faults, as the text of golden files."""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from policytool.commands import audit as auditing
from policytool.formats import discovery
from policytool.formats.discovery import Input
from policytool.rules import FAMILIES, AuditOptions, Device, Rule
from policytool.rules.base import Audited
from policytool.support.grouping import group_pairs
from tests.contracts.reporter_contract import compared
from tests.helpers.paths import FIXTURES
from tests.rules.faults import FAULTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from policytool.rules.base import Finding
    from tests.rules.faults import Fault

_TARGETS: Final = ("tf2.15", "keras3.15")
_WITH_FAULT: Final = "with a fault"
QUESTIONS: Final[Mapping[str, tuple[AuditOptions, tuple[str, ...]]]] = {
    "CPU, weights": (
        AuditOptions(device=Device.CPU, weights=True, plans_commands=False),
        (
            *("attacks", "checkpoints", "keras2.2.4", "keras3.3", "keras3.15", "tf1.15", "tf2.0"),
            *("tf2.3", "tf2.5", "tf2.15", "tfjs4.22"),
        ),
    ),
    f"targets {', '.join(_TARGETS)}": (
        AuditOptions(targets=_TARGETS, plans_commands=False),
        ("keras3.15", "tf2.3", "tf2.15"),
    ),
}
"""
The options of an audit, with the folders of fixtures that are audited with them. Other releases
write files like those of these folders.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditedModel:
    """A model of the golden files, and its findings."""

    question: str
    """The options of the audit; for a model with a fault, that it has one."""

    name: str
    findings: tuple[Finding, ...]


@cache
def audited_fixtures() -> tuple[AuditedModel, ...]:
    """Return the fixtures that are models, audited with the options of each question."""
    return tuple(
        AuditedModel(
            question=question,
            name=source.local_path.relative_to(FIXTURES).as_posix(),
            findings=audited.findings,
        )
        for question, (options, folders) in QUESTIONS.items()
        for source in discovery.inputs(str(FIXTURES / folder) for folder in folders)
        if isinstance(audited := auditing.attempt(source, options), Audited)
    )


@cache
def audited_faults() -> tuple[AuditedModel, ...]:
    """Return the models with faults, audited by the rules of the family of their rule."""
    return tuple(
        AuditedModel(question=_WITH_FAULT, name=fault.name, findings=fault_findings(fault))
        for fault in FAULTS
    )


def fault_findings(fault: Fault) -> tuple[Finding, ...]:
    """Return the findings of a rule's family in a model with a fault."""
    with tempfile.TemporaryDirectory() as folder:
        return findings_in(fault, fault.make(Path(folder)))


def findings_in(fault: Fault, path: Path) -> tuple[Finding, ...]:
    """Return the findings of the family of a fault in a model, which is named without its path."""
    source = Input(path=path, exact=True, shown="model")
    options = replace(fault.options, plans_commands=False)
    return tuple(
        finding
        for finding in auditing.audit_input(source, options).findings
        if finding.rule[:3] == fault.rule[:3]
    )


def rule_findings(rule: str, path: Path) -> tuple[Finding, ...]:
    """Return the findings of a rule in a model."""
    audited = auditing.audit_input(
        Input(path=path, exact=True), AuditOptions(rules=frozenset({rule}), plans_commands=False)
    )
    return audited.findings


def findings_text(prefix: str, models: Iterable[AuditedModel]) -> str:
    """Return the findings of a family: by rule, each with the models that have it."""
    _, about, rules = FAMILIES[prefix]
    listed = tuple(models)
    return "\n".join((f"{prefix}: {about}\n", *(_rule_text(rule, listed) for rule in rules)))


def _rule_text(rule: Rule, models: Iterable[AuditedModel]) -> str:
    lines = [f"{rule.id} {rule.name}"]
    by_question = group_pairs(
        (model.question, (text, model.name))
        for model in models
        for text in _finding_texts(rule, model)
    )
    for question, entries in by_question.items():
        lines += ["", f"({question})"]
        for text, names in group_pairs(entries).items():
            is_fault = question == _WITH_FAULT
            lines += [
                text,
                *((f"    {name}" for name in names) if is_fault else _name_lines(names)),
            ]
    return "\n".join((*lines, ""))


def _finding_texts(rule: Rule, model: AuditedModel) -> Iterator[str]:
    for finding in model.findings:
        if finding.rule != rule.id:
            continue
        detail = f" [{finding.detail}]" if finding.detail else ""
        place = f" at {finding.address.pointer}" if finding.address is not None else ""
        text = f"{finding.severity} {finding.path or 'model'}{detail}{place}\n  {finding.message}"
        if finding.remedy is not None:
            words = " ".join(("migrate", *finding.remedy.arguments))
            text += f"\n  {finding.remedy.fix} fix: {words}"
        yield text + (f"\n  hint: {finding.advice}" if finding.advice is not None else "")


def _name_lines(names: Iterable[str]) -> Iterator[str]:
    """Yield the names of models; a file with the same name in several folders is one line."""
    for file, folders in group_pairs(name.partition("/")[::-2] for name in names).items():
        yield f"    {file}: {', '.join(folders)}"


def assert_golden(prefix: str, models: Iterable[AuditedModel], name: str) -> None:
    """Compare the findings of a family with its golden file."""
    text = findings_text(prefix, models)
    assert not re.search(r"/tmp|\bat 0x", text), "a finding depends on the machine"  # noqa: S108
    compared(text, f"{name}-{FAMILIES[prefix][0]}.txt")
