"""Which findings are let pass, and by what."""

from __future__ import annotations

from collections import Counter
from datetime import date
from typing import Any

import pytest

from policytool.commands.audit import tally_of
from policytool.rules.base import Audited, Finding, Severity, fingerprints
from policytool.rules.selection.suppressions import (
    PathPattern,
    PerFileIgnore,
    Suppression,
    Suppressions,
    all_of,
    expired_suppressions,
    suppress,
)

DAY = date(2026, 5, 1)


def finding(path: str | None = "mlp/dense_a", rule: str = "PT101") -> Finding:
    """Return a finding."""
    return Finding(rule=rule, severity=Severity.WARNING, message="m", path=path)


def audited(*findings: Finding, path: str = "old/a.h5") -> Audited:
    """Return a model in which these were found."""
    return Audited(path=path, format="h5", generation=None, layers=3, findings=findings)


def suppression(**more: Any) -> Suppression:
    """Return a suppression of PT101, wherever nothing else is said."""
    return Suppression(
        **{"words": ("PT101",), "rules": frozenset({"PT101"}), "reason": "because", **more}
    )


def every_source(*entries: Suppression, **more: Any) -> Suppressions:
    """Return suppressions on the day of the tests."""
    return Suppressions(**{"directory": "/w", "today": DAY, "entries": entries, **more})


def in_files(glob: str) -> PathPattern:
    """Return a pattern of a settings file in the working directory."""
    return PathPattern(glob=glob, base="/w")


@pytest.mark.parametrize(
    ("more", "found", "holds"),
    [
        ({}, finding(), True),
        ({}, finding(None), True),
        ({}, finding(rule="PT102"), False),
        ({"path": in_files("old")}, finding(), True),
        ({"path": in_files("new")}, finding(), False),
        ({"layer": "mlp/dense_a"}, finding(), True),
        ({"layer": "mlp/dense_.*"}, finding(), True),
        ({"layer": "mlp/dense"}, finding(), False),
        ({"layer": "dense_a"}, finding(), False),
        ({"layer": ".*"}, finding(None), False),
        ({"layer": "mlp/d(1)"}, finding("mlp/d(1)"), True),
        ({"expires": date(2026, 5, 2)}, finding(), True),
        ({"expires": DAY}, finding(), False),
        ({"expires": date(2020, 1, 1)}, finding(), False),
    ],
)
def test_suppression_applies_if_all_its_conditions_match(
    more: dict[str, Any], found: Finding, *, holds: bool
) -> None:
    """
    The conditions are rule, file, layer by path or full match, and a day before the expiry date.
    """
    after = suppress(audited(found), every_source(suppression(**more)))
    assert after.findings == (() if holds else (found,))
    assert [(one.finding, one.reason, one.by) for one in after.suppressed] == (
        [(found, "because", "suppression")] if holds else []
    )


def test_suppressions_have_priority_over_ignored_rules_and_baselines() -> None:
    found = finding()
    ignored = PerFileIgnore(pattern=in_files("*.h5"), words=("PT1",), rules=frozenset({"PT101"}))
    known = {"old/a.h5": Counter(fingerprints([found]))}
    assert [
        one.by
        for one in suppress(
            audited(found), every_source(suppression(), per_file=(ignored,), known=known)
        ).suppressed
    ] == ["suppression"]
    both = suppress(audited(found), every_source(per_file=(ignored,), known=known)).suppressed
    assert [(one.by, one.reason) for one in both] == [("per-file-ignores", "matches *.h5:PT1")]
    assert [one.by for one in suppress(audited(found), every_source(known=known)).suppressed] == [
        "baseline"
    ]
    assert suppress(audited(found, path="b.h5"), every_source(known=known)).findings == (found,)


def test_a_baseline_suppresses_as_many_equal_findings_as_it_contains() -> None:
    """Including those that a suppression names."""
    findings = [finding(f"mlp/dense_{number}") for number in range(1, 4)]
    known = {"old/a.h5": Counter(fingerprints(findings[:2]))}
    for suppressions, sources in (
        ((), ["baseline", "baseline"]),
        ((suppression(layer="mlp/dense_1"),), ["suppression", "baseline"]),
    ):
        result = suppress(audited(*findings), every_source(*suppressions, known=known))
        assert result.findings == (findings[2],)
        assert [entry.by for entry in result.suppressed] == sources


def test_each_finding_is_reported_or_suppressed() -> None:
    """Suppressions do not lose or repeat findings."""
    findings = (finding(), finding(None), finding("x", "PT301"))
    result = suppress(audited(*findings), every_source(suppression(layer="mlp/.*")))
    assert sorted(map(repr, all_of(result))) == sorted(map(repr, findings))
    untouched = suppress(audited(*findings), every_source())
    assert (untouched.findings, untouched.suppressed) == (findings, ())


def test_expired_and_unused_suppressions_are_distinguished() -> None:
    """A suppression whose finding an earlier suppression covers is not unused."""
    old, used, hidden, unused = (
        suppression(expires=DAY),
        suppression(layer="mlp/.*"),
        suppression(path=in_files("old/**"), expires=date(2027, 1, 1)),
        suppression(layer="gone"),
    )
    after = suppress(audited(finding()), every_source(old, used, hidden, unused))
    assert expired_suppressions((old, used, hidden, unused), DAY) == (old,)
    given = every_source(old, used, hidden, unused)
    assert tally_of([after], given).idle() == (unused,)
    assert [str(one) for one in (old, used, hidden)] == [
        "PT101",
        "PT101 of mlp/.*",
        "PT101 in old/**",
    ]
