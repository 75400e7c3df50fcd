"""The severity of rules on what affects only training."""

from __future__ import annotations

import pytest

import policytool
from policytool.rules.base import Severity
from tests.helpers.paths import FIXTURES


@pytest.mark.parametrize(
    ("select", "severity"),
    [
        ((), Severity.NOTE),
        (("ALL",), Severity.NOTE),
        (("PT201,PT5",), Severity.WARNING),
        (("loss-scale-dropped",), Severity.WARNING),
        (("ALL", "PT2"), Severity.WARNING),
    ],
)
def test_selecting_training_rules_makes_their_findings_warnings(
    select: tuple[str, ...], severity: Severity
) -> None:
    """Without the selection, exported models pass, because predictions are unchanged."""
    path = FIXTURES / "tf2.3/exp_mf16_fixed128_uncompiled.h5"
    audited = policytool.audit(path, select=select or None)
    assert [finding.severity for finding in audited.findings if finding.rule == "PT201"] == [
        severity
    ]
