"""
JUnit's XML as Jenkins reads it (junit-10.xsd of its xUnit plugin), and with it GitLab and most
others.

A file is a test suite. A finding because of which the file fails the audit is a failed test, and
another finding is a passed test with output. A suppressed finding, if displayed, is a skipped test.
A file without findings is a single passed test, and an unreadable file is a test with an error.
Tests have no times, because they take none.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final
from xml.etree import ElementTree as ET

from policytool.reports.findings._page import fix_sentences, rules_of, whole_message
from policytool.reports.layout import clean
from policytool.reports.reporter import streaming_reporter
from policytool.reports.topics import plain
from policytool.rules.base import fails

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from policytool.commands.audit import Audit
    from policytool.commands.inspect import Failure
    from policytool.reports.layout import View
    from policytool.rules import Rule
    from policytool.rules.base import Audited, Finding, Severity, Suppressed

_COUNTED: Final = {"failures": "failure", "errors": "error", "skipped": "skipped"}
"""The element that each attribute of a suite counts."""


def pieces(audit: Audit, view: View) -> Iterator[str]:
    """
    Yield the report as XML 1.0. It does not support most control characters, which are escaped as
    on a terminal.

    The suites are created twice, because their counts come first.
    """
    root = ET.Element("testsuites", name="policytool audit")
    totals = dict.fromkeys(("tests", "failures", "errors"), 0)
    for suite in _suites(audit, view):
        for name in totals:
            totals[name] += int(suite.get(name, "0"))
    for name, total in totals.items():
        root.set(name, str(total))
    is_empty = not (audit.audited or audit.failures)
    start, _, end = _text(root, view, is_short=is_empty).partition("</")
    yield f'<?xml version="1.0" encoding="UTF-8"?>\n{start}'
    for suite in _suites(audit, view):
        ET.indent(suite, level=1)
        yield f"\n  {_text(suite, view)}"
    yield "\n" if is_empty else f"\n</{end}\n"


def _text(element: ET.Element, view: View, *, is_short: bool = True) -> str:
    """Return the text of an element; without ``is_short``, an empty element has two tags."""
    encoding = "unicode" if view.unicode else "us-ascii"
    markup: str | bytes = ET.tostring(element, encoding, short_empty_elements=is_short)
    return markup if isinstance(markup, str) else markup.decode("ascii")


def _suites(audit: Audit, view: View) -> Iterator[ET.Element]:
    """Yield the suite of each file, with its counts."""
    rules = rules_of(audit)
    for audited in audit.audited:
        shown = audited.suppressed if view.suppressed else ()
        yield _counted(_suite(audited, rules, audit.fail_on, shown))
    for failure in audit.failures:
        yield _counted(_unread(failure))


def _suite(
    audited: Audited,
    rules: Mapping[str, Rule],
    fail_on: Severity | None,
    suppressed: Iterable[Suppressed],
) -> ET.Element:
    suite = _empty(audited.path)
    name_counts = Counter[str]()
    for finding in audited.findings:
        case = _case(suite, finding, name_counts)
        text = (
            f"{whole_message(finding)}.",
            plain(rules[finding.rule].summary),
            fix_sentences(audited, finding),
        )
        if fail_on is None or not fails(finding, fail_on):
            _child(case, "system-out", *text)
        else:
            _child(
                case, "failure", *text, type=finding.severity.value, message=whole_message(finding)
            )
    for suppressed_finding in suppressed:
        _child(
            _case(suite, suppressed_finding.finding, name_counts),
            "skipped",
            f"{whole_message(suppressed_finding.finding)}.",
            type=suppressed_finding.by,
            message=suppressed_finding.reason,
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
        message=f"{failure.path} {failure.message}",
    )
    return suite


def _empty(path: str) -> ET.Element:
    return ET.Element("testsuite", name=clean(path), file=clean(path))


def _case(suite: ET.Element, finding: Finding, name_counts: Counter[str]) -> ET.Element:
    """Add a test with a name that is unique in the suite."""
    name = " ".join(filter(None, (finding.rule, finding.path, finding.detail)))
    name_counts[name] += 1
    return _child(
        suite,
        "testcase",
        classname=suite.get("name", ""),
        name=name if name_counts[name] == 1 else f"{name} #{name_counts[name]}",
    )


def _child(parent: ET.Element, tag: str, *lines: str, **attributes: str) -> ET.Element:
    child = ET.SubElement(parent, tag, {name: clean(value) for name, value in attributes.items()})
    if lines:
        child.text = "\n".join(clean(line) for line in lines if line)
    return child


def _counted(suite: ET.Element) -> ET.Element:
    suite.set("tests", str(len(suite)))
    for attribute, tag in _COUNTED.items():
        suite.set(attribute, str(len(suite.findall(f"testcase/{tag}"))))
    return suite


REPORTER: Final = streaming_reporter("junit", pieces)
