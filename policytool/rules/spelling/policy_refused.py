"""
Policies spelled in a way that a target refuses.

TF 2.1 to 2.4 read mixed policies as ``Policy`` dicts alone, TF 2.4 to tf_keras read ``PolicyV1`` too, Keras 3.4 and later write ``DTypePolicy`` dicts
that no Keras 2 reads, and no Keras 3 from 3.3 on reads a dict of Keras 2. The bare name is read by TF 2.5 and every later loader. This is about the
spelling alone: what else of the file a target refuses is said by the rules about loading.

Sources: measured by loading 872 files of 17 releases, and 250 that ``migrate`` wrote, with 15 loaders; the table in docs/loaders.md.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from policytool import features, planning, reading
from policytool.finding import Fix, Remedy, Severity
from policytool.planning.applied import applied
from policytool.policy import PolicyMap
from policytool.refusals import LOADERS, REFUSALS, Evidence
from policytool.rules._base import Needs, Rule
from policytool.rules.spelling._spelled import everywhere, told

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.finding import Finding
    from policytool.planning.subject import Subject
    from policytool.reading import Analysis
    from policytool.refusals import Refusal
    from policytool.rules._base import Case, Question

_WORD: Final = "needs-word"
"""The code of a migration's refusal where only the user knows a policy's successor."""

ABOUT_POLICIES: Final = ("a policy dict is", "PolicyV1 came", "a mixed policy is", "policies are", "quantised policies", "int4, GPTQ")
"""What the reasons of the rows on policies begin with."""


def check(case: Case, question: Question) -> Iterator[Finding]:
    """Yield a finding for each target that refuses them."""
    if case.subject is None or not case.model.loaders:
        return
    for target in question.targets:
        for row, layers, path in _refused(case.subject, target):
            message = f"{target} does not read the policy of {layers}: {row.reason}"
            remedy, advice = _mended(case.subject, target)
            yield RULE.finding(message, path=path, detail=target, remedy=remedy, advice=advice)


def _refused(subject: Subject, target: str) -> Iterator[tuple[Refusal, str, str | None]]:
    """Yield the first row by which a target refuses policies, with the layers that have them."""
    evidence = _evidence(subject.analysis)
    row = _first(evidence, target)
    if row is not None:
        those = [one for one in everywhere(subject) if row.shows(replace(evidence, features=features.of({"dtype": one.value})))]
        path, layers = told(those) if those else (None, "some layer")
        yield row, layers, path


def _first(evidence: Evidence, target: str) -> Refusal | None:
    position = LOADERS.index(target)
    for row in REFUSALS:
        reaches = LOADERS.index(row.first) <= position <= LOADERS.index(row.last) and evidence.document.format in row.formats
        if reaches and row.reason.startswith(ABOUT_POLICIES) and row.shows(evidence):
            return row
    return None


def _evidence(analysis: Analysis) -> Evidence:
    document = analysis.document
    objects = (document.parts[node.part] for node in document.nodes.values() if node.part is not None)
    marks = features.of(document.config, document.training, objects)
    return Evidence(document=document, features=marks, releases=frozenset(origin.release.id for origin in analysis.origins))


def _mended(subject: Subject, target: str) -> tuple[Remedy | None, str | None]:
    """Return the migration after which the target reads the policies, to the spelling of the newest or else to its own; or else what to know."""
    advice = f"{target} refuses the file for more than its policies; what for, the rules about loading say"
    if any(isinstance(found, PolicyMap) or found.quantization for found in subject.spelled.values()):
        advice = "no spelling of it is read there"
    for asked in (None, target):
        made = planning.plan(subject.analysis, planning.Options(target=asked))
        after = reading.analysed(replace(applied(subject.document, made.edits, ()), traces=()))
        if made.edits and not made.refusals and _first(_evidence(after), target) is None:
            return Remedy(fix=Fix.SAFE, target=asked), None
        advice = next((f"migrate asks for a word: {refusal.message}" for refusal in made.refusals if refusal.code == _WORD), advice)
    return None, advice


RULE: Final = Rule(
    id="PT104",
    name="policy-refused",
    severity=Severity.ERROR,
    fix=Fix.SAFE,
    check=check,
    doc=__doc__,
    example='--target keras3 and "dtype": {"class_name": "Policy", "config": {"name": "mixed_float16"}}',
    needs=Needs.TARGET,
)
