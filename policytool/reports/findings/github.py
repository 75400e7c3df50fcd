"""
Workflow commands, from which GitHub Actions makes annotations of the run and of a pull request's
files.

Escaped as the runner expects it
(https://docs.github.com/actions/reference/workflow-commands-for-github-actions,
``packages/core/src/command.ts`` of actions/toolkit). GitHub shows ten annotations of each kind for
a step, so the worst come first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.reports.findings._content import fixing, rules_of
from policytool.reports.layout import clean
from policytool.reports.reporter import Reporter
from policytool.rules.finding import Severity

if TYPE_CHECKING:
    from policytool.commands.audit import Audit
    from policytool.reports.layout import View

_COMMANDS: Final = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}


def render(audit: Audit, _view: View) -> str:
    """Return a command a line: files that could not be read, then findings, the worst first."""
    lines = [
        _command("error", failure.path, failure.code, failure.message) for failure in audit.failures
    ]
    rules = rules_of(audit)
    found = [(audited, finding) for audited in audit.audited for finding in audited.findings]
    for audited, finding in sorted(found, key=lambda pair: pair[1].severity.rank):
        text = " ".join(filter(None, (f"{finding.message}.", fixing(audited, finding))))
        lines.append(
            _command(
                _COMMANDS[finding.severity],
                audited.path,
                f"{finding.rule} {rules[finding.rule].name}",
                text,
            )
        )
    return "".join(f"{line}\n" for line in lines)


def _command(name: str, file: str, title: str, message: str) -> str:
    return f"::{name} file={_property(file)},title={_property(title)}::{_data(message)}"


def _data(text: str) -> str:
    """Return a message without anything that the runner would read as another command."""
    return clean(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


REPORTER: Final = Reporter(name="github", render=render)
