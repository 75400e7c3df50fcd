"""
Workflow commands, from which GitHub Actions creates annotations of the run and of the files of a
pull request.

Escaped as the runner expects it
(https://docs.github.com/actions/reference/workflow-commands-for-github-actions,
``packages/core/src/command.ts`` of actions/toolkit). GitHub shows ten annotations of each kind for
a step, so the worst come first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.reports.findings._page import annotation, rules_of
from policytool.reports.layout import clean
from policytool.reports.reporter import streaming_reporter
from policytool.rules.base import Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.commands.audit import Audit
    from policytool.reports.layout import View

_COMMANDS: Final = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}


def pieces(audit: Audit, _view: View) -> Iterator[str]:
    """
    Yield one command per line: files that could not be read, then findings, the most severe first.
    """
    for failure in audit.failures:
        yield _command("error", failure.path, failure.code, f"{failure.path} {failure.message}")
    rules = rules_of(audit)
    for severity in sorted(Severity, key=lambda level: level.rank):
        for audited in audit.audited:
            for finding in audited.findings:
                if finding.severity is severity:
                    yield _command(
                        _COMMANDS[severity],
                        audited.path,
                        f"{finding.rule} {rules[finding.rule].name}",
                        annotation(audited, finding),
                    )


def _command(name: str, file: str, title: str, message: str) -> str:
    return f"::{name} file={_property(file)},title={_property(title)}::{_data(message)}\n"


def _data(text: str) -> str:
    """Return a message without text that the runner would parse as another command."""
    return clean(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


REPORTER: Final = streaming_reporter("github", pieces)
