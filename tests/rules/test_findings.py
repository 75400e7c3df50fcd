"""What the rules find in fixtures and in models with faults, compared with golden files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from policytool.formats import format_detection
from policytool.model import reading, untrusted_code
from policytool.rules import BY_ID, FAMILIES, RULES
from policytool.rules.base import Remedy, Severity
from tests.conftest import run
from tests.contracts.findings_contract import (
    assert_golden,
    audited_faults,
    audited_fixtures,
    findings_in,
)
from tests.helpers.cases import for_each
from tests.helpers.marks import THOROUGH
from tests.rules.faults import FAULTS, Fault

if TYPE_CHECKING:
    from pathlib import Path

    from policytool.rules.base import Finding


@THOROUGH
@pytest.mark.parametrize("prefix", FAMILIES)
def test_findings_in_fixtures_are_the_golden_ones(prefix: str) -> None:
    """Each finding of each rule, with the fixtures that have it."""
    assert_golden(prefix, audited_fixtures(), "findings")


@THOROUGH
@pytest.mark.parametrize("prefix", FAMILIES)
def test_findings_in_models_with_faults_are_the_golden_ones(prefix: str) -> None:
    """Each finding of each rule, with the models that have it."""
    assert_golden(prefix, audited_faults(), "faults")


@THOROUGH
def test_findings_are_sentences_about_the_model() -> None:
    """A message has no full stop, and a remedy is of a rule that declares one."""
    for model in (*audited_fixtures(), *audited_faults()):
        for finding in model.findings:
            assert finding.message, model.name
            assert not finding.message.endswith("."), finding.message
            assert "\n" not in finding.message, finding.message
            assert len(finding.message) < 500, finding.message
            assert finding.remedy is None or BY_ID[finding.rule].fix is not None, finding.rule


@THOROUGH
def test_no_layer_has_a_finding_twice() -> None:
    """A SavedModel describes a layer several times."""
    for model in (*audited_fixtures(), *audited_faults()):
        places = [
            (finding.rule, finding.path, finding.detail, finding.address)
            for finding in model.findings
        ]
        assert len(set(places)) == len(places), model.name


@THOROUGH
def test_every_rule_has_models_with_and_without_a_finding() -> None:
    """A rule without either was not tried."""
    models = (*audited_fixtures(), *audited_faults())
    counts = {
        rule.id: sum(any(found.rule == rule.id for found in model.findings) for model in models)
        for rule in RULES
    }
    assert [rule for rule, count in counts.items() if not 0 < count < len(models)] == []


@THOROUGH
@pytest.mark.parametrize(
    "fault", [fault for fault in FAULTS if fault.is_fixed], ids=lambda fault: fault.name
)
def test_remedy_fixes_the_finding(fault: Fault, tmp_path: Path) -> None:
    """After `migrate` with its arguments, the rule finds nothing to fix, and no rule more."""
    path = fault.make(tmp_path)
    before = findings_in(fault, path)
    (remedy,) = _remedies(fault, before)
    fixed = tmp_path / f"fixed{path.suffix}"
    assert run("migrate", path, *remedy.arguments, "-o", fixed).code == 0
    after = findings_in(fault, fixed)
    assert _remedies(fault, after) == set()
    assert {finding.rule for finding in after} <= {finding.rule for finding in before}


def _remedies(fault: Fault, findings: tuple[Finding, ...]) -> set[Remedy]:
    return {
        finding.remedy
        for finding in findings
        if finding.rule == fault.rule and finding.remedy is not None
    }


@THOROUGH
@for_each("fault", [fault for fault in FAULTS if fault.rule[:3] == "PT6"])
def test_models_that_harm_are_not_run(
    fault: Fault, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A finding is also a reason not to run the model, unless it is a note."""
    path = fault.make(tmp_path_factory.mktemp("fault"))
    findings = {
        finding.message
        for finding in findings_in(fault, path)
        if finding.severity is not Severity.NOTE
        and not finding.detail.startswith(("soft-link", "ambiguous-format"))
    }
    document = format_detection.document(path, "model")
    if document.config_part is None:
        return
    reasons = {
        reason.what
        for reason in untrusted_code.reasons_not_to_run(reading.load_model(document))
        if not reason.is_custom and not reason.what.startswith("saved_model.pb contains 2 graphs")
    }
    if fault.name in OTHER_REASONS:
        assert reasons == OTHER_REASONS[fault.name]
    else:
        assert reasons == findings


_CALLS: Final = "net/double is a Lambda that calls the Python function"
OTHER_REASONS: Final = {
    "code as the loss in HDF5": {
        (
            "a config contains Python bytecode (__lambda__), which runs when the model loads "
            "without safe mode"
        )
    },
    "a Lambda that calls a function": {f"{_CALLS} double"},
    "a Lambda that calls a harmful function": {
        f"{_CALLS} Popen",
        "net/double calls subprocess.Popen, which does not belong in a model",
    },
    "XlaCallModule": {
        "the graph contains the op XlaCallModule, which is not on the allow-list of ops"
    },
}
"""Models whose reasons have other words than the findings."""
