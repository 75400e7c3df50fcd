"""
JUnit's XML as Jenkins reads it (junit-10.xsd of its xUnit plugin), and with it GitLab and most
others.

A file is a test suite, a finding a failed test. A note is a test that passed and says something,
what is suppressed and shown a skipped one, a file without findings one test that passed, a file
that could not be read one with an error. Nothing takes time here, so no times are told.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final
from xml.etree import ElementTree as ET

from policytool.reports.findings._content import fixing, rules_of
from policytool.reports.layout import clean
from policytool.reports.reporter import Reporter
from policytool.reports.rule_reference import plain
from policytool.rules.finding import Severity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from policytool.commands.audit import Audit
    from policytool.commands.inspect import Failure
    from policytool.reports.layout import View
    from policytool.rules import Rule
    from policytool.rules.finding import Audited, Finding

_COUNTED: Final = {"failures": "failure", "errors": "error", "skipped": "skipped"}
"""Attribute of a suite to the element that it counts."""


def render(audit: Audit, view: View) -> str:
    """
    Return the report as XML 1.0, which has no place for most control characters: they are escaped
    as on a terminal.
    """
    rules = rules_of(audit)
    suites = [_suite(audited, rules, suppressed=view.suppressed) for audited in audit.audited] + [
        _unread(failure) for failure in audit.failures
    ]
    root = ET.Element("testsuites", name="policytool audit")
    root.extend(suites)
    for suite in suites:
        _count(suite)
    for name in ("tests", "failures", "errors"):
        root.set(name, str(sum(int(suite.get(name, "0")) for suite in suites)))
    ET.indent(root)
    text = (
        ET.tostring(root, encoding="unicode") if view.unicode else ET.tostring(root).decode("ascii")
    )
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _suite(audited: Audited, rules: Mapping[str, Rule], *, suppressed: bool) -> ET.Element:
    suite = _empty(audited.path)
    seen = Counter[str]()
    for finding in audited.findings:
        case = _case(suite, finding, seen)
        text = (
            f"{finding.message}.",
            plain(rules[finding.rule].summary),
            fixing(audited, finding),
        )
        if finding.severity is Severity.NOTE:
            _child(case, "system-out", *text)
        else:
            _child(case, "failure", *text, type=finding.severity.value, message=finding.message)
    for one in audited.suppressed if suppressed else ():
        _child(
            _case(suite, one.finding, seen),
            "skipped",
            f"{one.finding.message}.",
            type=one.by,
            message=one.reason,
        )
    if not len(suite):
        _child(suite, "testcase", classname=audited.path, name="no findings")
    return suite


def _unread(failure: Failure) -> ET.Element:
    suite = _empty(failure.path)
    _child(
        _child(suite, "testcase", classname=failure.path, name="readable"),
        "error",
        type=failure.code,
        message=failure.message,
    )
    return suite


def _empty(path: str) -> ET.Element:
    return ET.Element("testsuite", name=clean(path), file=clean(path))


def _case(suite: ET.Element, finding: Finding, seen: Counter[str]) -> ET.Element:
    """Add a test of a name that no other of the suite has."""
    name = " ".join(filter(None, (finding.rule, finding.path, finding.detail)))
    seen[name] += 1
    return _child(
        suite,
        "testcase",
        classname=suite.get("name", ""),
        name=name if seen[name] == 1 else f"{name} #{seen[name]}",
    )


def _child(parent: ET.Element, tag: str, *lines: str, **attributes: str) -> ET.Element:
    child = ET.SubElement(parent, tag, {name: clean(value) for name, value in attributes.items()})
    if lines:
        child.text = "\n".join(clean(line) for line in lines if line)
    return child


def _count(suite: ET.Element) -> None:
    suite.set("tests", str(len(suite)))
    for attribute, tag in _COUNTED.items():
        suite.set(attribute, str(len(suite.findall(f"testcase/{tag}"))))


REPORTER: Final = Reporter(name="junit", render=render)
