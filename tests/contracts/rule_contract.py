"""What every rule has to hold, and the files on which it is tried."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

import pytest

from policytool.commands import audit as auditing
from policytool.formats.discovery import Input
from policytool.rules import BY_ID, FAMILIES, AuditOptions, Rule
from tests.helpers.paths import FIXTURES, ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from policytool.rules.base import Finding

_NAME: Final = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


def found(rule: str, path: Path, question: AuditOptions | None = None) -> tuple[Finding, ...]:
    """Return what one rule finds in the model at a path."""
    audited = auditing.audit_input(Input(path=path, exact=True), question or AuditOptions())
    return tuple(finding for finding in audited.findings if finding.rule == rule)


class RuleContract:
    """
    Shared assertions; a subclass names its rule and its files.

    Files made from parts are tried in tests of the subclass's own.
    """

    id: ClassVar[str]

    question: ClassVar[AuditOptions] = AuditOptions()
    """What is asked: the targets, the device, and so on."""

    triggers: ClassVar[Mapping[str, tuple[str | None, ...]]]
    """
    Fixture to the layer paths of the findings in their order; None for a finding about the whole
    model.
    """

    silent: ClassVar[tuple[str, ...]]
    """Fixtures in which the rule must find nothing, above all those that look alike."""

    @property
    def rule(self) -> Rule:
        """The rule of this id."""
        return BY_ID[self.id]

    @pytest.fixture(autouse=True)
    def _in_the_root(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Paths in findings are relative to the working directory."""
        monkeypatch.chdir(ROOT)

    def test_it_finds_what_is_there(self) -> None:
        """Each triggering fixture has exactly these findings."""
        assert self.triggers, "a rule without a file that it finds something in is not tried"
        for file, paths in self.triggers.items():
            assert (
                tuple(finding.path for finding in found(self.id, FIXTURES / file, self.question))
                == paths
            ), file

    def test_it_is_silent_where_nothing_is_wrong(self) -> None:
        """None of the other fixtures has a finding."""
        assert self.silent, "a rule that was never seen to be silent may cry always"
        for file in self.silent:
            assert found(self.id, FIXTURES / file, self.question) == (), file

    def test_findings_are_sentences_about_the_model(self) -> None:
        """
        A message is one sentence without its full stop, a remedy is one that the rule declares, and
        a layer that is named exists.
        """
        for file in self.triggers:
            for finding in found(self.id, FIXTURES / file, self.question):
                assert finding.message
                assert not finding.message.endswith(".")
                assert "\n" not in finding.message
                assert str(Path.cwd()) not in finding.message
                if finding.remedy is not None:
                    assert self.rule.fix is not None

    def test_it_explains_itself(self) -> None:
        """The reference has a summary, a reason with its source, and an example."""
        rule = self.rule
        assert rule.id[:3] in FAMILIES
        assert re.fullmatch(r"PT[1-9][0-9]{2}", rule.id)
        assert _NAME.fullmatch(rule.name)
        paragraphs = rule.doc.strip().split("\n\n")
        assert paragraphs[0].endswith(".")
        assert len(paragraphs) > 1, "a reason follows the summary"
        assert "Source" in rule.doc, "a rule names where it is from"
        assert rule.example
