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
    for entry in sample("one command", 40):
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


def forbidden_float16(path: Path) -> str:
    """Return the report of an audit that forbids float16, in one line."""
    settings = path.with_name("policytool.toml")
    settings.write_text('forbid = ["float16"]\ntarget = ["keras3"]\n', encoding="utf-8")
    return " ".join(run("audit", path, "--config", settings).out.replace("\\\n", " ").split())


def test_command_for_all_layers_has_a_single_policy(tmp_path: Path) -> None:
    """``--to`` sets the policies of all layers, and ``--set`` those of some."""
    whole, mixed = tmp_path / "whole.keras", tmp_path / "mixed.keras"
    shutil.copyfile(FIXTURES / "keras3.15/global_float16.keras", whole)
    shutil.copyfile(FIXTURES / "keras3.15/per_layer.keras", mixed)
    assert forbidden_float16(whole).endswith(f"policytool migrate {whole} --to float32")
    assert forbidden_float16(mixed).endswith(
        f"policytool migrate {mixed} --set '.*_float16=float32' --set '.*_bfloat16=float32'"
    )


def test_command_replaces_the_model_if_its_result_exists(tmp_path: Path) -> None:
    """The original, which still fails, would get the same command again and again."""
    path = tmp_path / "model.keras"
    shutil.copyfile(FIXTURES / "keras3.15/global_float16.keras", path)
    assert run("migrate", path, "--to", "float32").code == 0
    assert forbidden_float16(path).endswith(f"migrate {path} --to float32 --in-place")
    assert run("migrate", path, "--to", "float32", "--in-place").code == 0
    assert forbidden_float16(path) == "Checked 1 model for Keras 3: no findings"


def test_command_for_another_format_says_that_its_result_exists(tmp_path: Path) -> None:
    path = tmp_path / "model"
    shutil.copytree(FIXTURES / "tf2.15/per_layer", path)
    (command, *_) = commands(path, "keras3")
    assert command.arguments is not None
    assert run("migrate", path, *command.arguments).code == 0
    (result,) = (entry.name for entry in tmp_path.iterdir() if entry != path)
    report = " ".join(run("audit", path, "--target", "keras3").out.split())
    assert f"/{result} exists: if it is the result, audit it instead)" in report


def test_command_for_one_of_two_targets_keeps_the_original(tmp_path: Path) -> None:
    """In place, it would write a model that fails to load in the other target."""
    path = tmp_path / "model.keras"
    shutil.copy(FIXTURES / "keras3.15/global_mixed_float16.keras", path)
    assert run("migrate", path, "--target", "tf2.15").code == 0
    (command,) = commands(path, "keras3", "tf2.15")
    assert command.arguments == ("--target", "tf2.15", "--existing", "replace")
