"""
SARIF against its published JSON schema, and JUnit against the XML schema of Jenkins' xUnit plugin.

The schemas are no part of this tree: where a directory ``shared/reference/schemas`` lies beside it,
or beside one that holds it, they are read there.
"""

from __future__ import annotations

import io
import json
from functools import cache
from typing import TYPE_CHECKING, Final

import jsonschema
import pytest
from hypothesis import given

from policytool.commands.audit import Audit
from policytool.reports import View
from policytool.reports.findings import junit, sarif
from policytool.rules import RULES
from tests.helpers import example_audits
from tests.helpers.marks import THOROUGH
from tests.helpers.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable

    import xmlschema

_PLACE: Final = "shared/reference/schemas"
SCHEMAS: Final = next(
    (found for parent in ROOT.parents if (found := parent / _PLACE).is_dir()), None
)
pytestmark = [
    pytest.mark.usefixtures("in_the_root"),
    pytest.mark.skipif(SCHEMAS is None, reason=f"no {_PLACE} beside this tree"),
]


@cache
def of_sarif() -> jsonschema.Draft4Validator:
    """Return the validator of the published SARIF 2.1.0 schema, which checks URLs."""
    assert SCHEMAS is not None
    schema = json.loads((SCHEMAS / "sarif-schema-2.1.0.json").read_text(encoding="utf-8"))
    jsonschema.Draft4Validator.check_schema(schema)
    return jsonschema.Draft4Validator(
        schema, format_checker=jsonschema.Draft4Validator.FORMAT_CHECKER
    )


@cache
def of_junit() -> xmlschema.XMLSchema10:
    """Return the validator of the published JUnit schema."""
    import xmlschema

    assert SCHEMAS is not None
    return xmlschema.XMLSchema10(str(SCHEMAS / "junit-10.xsd"))


EMPTY: Final = Audit(audited=())
CASES: Final[dict[str, Callable[[], Audit]]] = {
    "real": example_audits.real,
    "made": example_audits.made,
    "empty": lambda: EMPTY,
    "all rules": lambda: Audit(audited=(), rules=(*RULES, *example_audits.RULES)),
}


@pytest.mark.parametrize("name", CASES)
def test_sarif_is_of_the_published_schema(name: str) -> None:
    """
    Reports of real files, of all kinds of findings, of no models, and with the texts of every rule
    match the schema.
    """
    of_sarif().validate(json.loads(sarif.REPORTER.render(CASES[name](), View(suppressed=True))))


@THOROUGH
@given(example_audits.audits())
def test_sarif_matches_the_published_schema_for_all_names(audit: Audit) -> None:
    """Names and messages are arbitrary."""
    of_sarif().validate(json.loads(sarif.REPORTER.render(audit, View(suppressed=True))))


@THOROUGH
@pytest.mark.parametrize("name", CASES)
def test_junit_is_of_the_published_schema(name: str) -> None:
    """Reports of real files, of all kinds of findings, and of no models match the schema."""
    of_junit().validate(
        io.StringIO(junit.REPORTER.render(CASES[name](), View(suppressed=True)).partition("\n")[2])
    )


@THOROUGH
@given(example_audits.audits())
def test_junit_matches_the_published_schema_for_all_names(audit: Audit) -> None:
    """Names and messages are arbitrary."""
    of_junit().validate(
        io.StringIO(junit.REPORTER.render(audit, View(suppressed=True)).partition("\n")[2])
    )


def test_validators_reject_invalid_reports() -> None:
    """A schema that accepts everything would prove nothing."""
    report = json.loads(sarif.REPORTER.render(example_audits.made(), View(suppressed=True)))
    report["runs"][0]["results"][0]["level"] = "fatal"
    assert not of_sarif().is_valid(report)
    text = junit.REPORTER.render(example_audits.made(), View(suppressed=True)).partition("\n")[2]
    assert of_junit().is_valid(io.StringIO(text))
    assert not of_junit().is_valid(
        io.StringIO(text.replace("<failure ", "<fault ").replace("</failure>", "</fault>"))
    )
