"""Each report prints the same command for a problem, and ``migrate`` accepts it."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import policytool
from policytool.commands import suggested_conversion
from policytool.commands.suggested_conversion import InspectedModel
from policytool.formats import discovery
from policytool.rules.loading import newest_keras_fails
from tests.conftest import run
from tests.helpers.marks import THOROUGH
from tests.helpers.paths import FIXTURES
from tests.helpers.sampling import sampled

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from policytool.formats.discovery import Input
    from policytool.rules.base import ModelCommand

TARGETS = ("keras3", "tf_keras", "tf2.4")


def sample(name: str, share: int) -> Iterator[Input]:
    """Yield the models in a sample of the fixtures."""
    for entry in sampled(name, discovery.inputs([str(FIXTURES)]), share=share):
        if isinstance(suggested_conversion.attempt(entry), InspectedModel):
            yield entry


def commands(path: Path, *targets: str) -> tuple[ModelCommand, ...]:
    """Return the commands that audit prints for a file."""
    return policytool.audit(path, target=targets).commands


@THOROUGH
def test_a_model_that_the_newest_keras_fails_to_load_has_one_command() -> None:
    """
    inspect, audit without a target, and audit with the newest Keras print the same command for a
    model that fails to load in it.
    """
    different = []
    compared = 0
    for entry in sample("one command", 20):
        audited = policytool.audit(entry.local_path)
        if not any(
            finding.rule == newest_keras_fails.id and finding.severity == "warning"
            for finding in audited.findings
        ):
            continue
        read = suggested_conversion.attempt(entry)
        assert isinstance(read, InspectedModel)
        own, targeted = audited.commands, commands(entry.local_path, "keras3")
        compared += 1
        inspected = None if read.extras.fix is None else read.extras.fix.arguments
        if own[0].arguments != inspected or [item.arguments for item in own] != [
            item.arguments for item in targeted
        ]:
            different.append((entry.display_path, own, targeted, inspected))
    assert not different
    assert compared


@THOROUGH
def test_each_command_writes_a_model(tmp_path: Path) -> None:
    written = 0
    for number, entry in enumerate(sample("commands that write", 60)):
        # With the files beside it: shards, weights of an architecture.
        beside = shutil.copytree(entry.local_path.parent, tmp_path / str(number))
        source = beside / entry.local_path.name
        for command in commands(source, *TARGETS):
            if command.arguments is not None:
                ended = run("migrate", source, *command.arguments, "--existing", "replace")
                assert ended.code == 0, (entry.display_path, command, ended.err)
                written += 1
        shutil.rmtree(beside)
    assert written


@THOROUGH
def test_no_advice_names_a_command_beside_that_of_the_model() -> None:
    for entry in sample("advice beside commands", 40):
        for target in TARGETS:
            audited = policytool.audit(entry.local_path, target=target)
            has_command = any(command.arguments is not None for command in audited.commands)
            for finding in audited.findings:
                if has_command and finding.rule.startswith("PT5"):
                    assert finding.advice is None, (entry.display_path, target, finding)
