"""The commands that entries suggest work for models with their cause."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from policytool.cli.exit_codes import Exit
from policytool.troubleshooting.entries import entries, explain_text
from tests.conftest import Ended, run
from tests.helpers.marks import THOROUGH
from tests.helpers.paths import FIXTURES
from tests.helpers.small_models import h5_model, instance, sequential
from tests.troubleshooting.examples import EXAMPLES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from policytool.troubleshooting.entries import Entry

UNREADABLE: Final = {"file-signature", "truncated-file"}
"""Entries about files that ``inspect`` identifies and cannot read."""

POINTER: Final = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9437184\n"
PUBLIC: Final[list[dict[str, str]]] = json.loads(
    Path(__file__).with_name("public_messages.json").read_text(encoding="utf-8")
)
ENTRIES: Final = tuple(entries())
IDS: Final = [entry.id for entry in ENTRIES]


def place(files: Mapping[str, str]) -> None:
    """Copy fixtures into the working directory, under the names of the commands."""
    for name, fixture in files.items():
        own = Path(__file__).parent / fixture
        source, target = own if own.exists() else FIXTURES / fixture, Path(name)
        if fixture == "pointer":
            target.write_text(POINTER, encoding="utf-8")
        elif fixture == "truncated":
            whole = (FIXTURES / "tf2.15/default_float32.h5").read_bytes()
            target.write_bytes(whole[: len(whole) // 2])
        elif source.is_dir():
            shutil.copytree(source, target)
        else:
            shutil.copyfile(source, target)


def run_command(command: str) -> Ended:
    """Run a command of an entry in this process."""
    program, *arguments = shlex.split(command)
    assert program == "policytool"
    return run(*arguments)


def test_every_entry_has_an_example() -> None:
    """No example exists without an entry."""
    assert set(EXAMPLES) == set(IDS)


@THOROUGH
@pytest.mark.parametrize("entry", ENTRIES, ids=IDS)
def test_check_of_an_entry_shows_the_cause(
    entry: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``audit`` reports a finding, and other commands show the text of the example."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    example = EXAMPLES[entry.id]
    place(example.files)
    ended = run_command(entry.check.command)
    if entry.id in UNREADABLE:
        assert ended.code == Exit.FAILURE
        assert example.shown in ended.err
    elif example.shown:
        assert ended.code == Exit.CLEAN, ended.err
        assert example.shown in ended.out
    else:
        assert ended.code in {Exit.CLEAN, Exit.FINDINGS}, ended.err
        assert "PT" in ended.out


def test_check_finds_a_layer_that_a_release_cannot_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message comes from loading in TF 2.9 to 2.15; the model predicts in TF 2.5."""
    message = "Value passed to parameter 'weights' has DataType float16 not in list of allowed"
    text = f"TypeError: {message} values: int32, int64, float32, float64"
    (match,) = explain_text(text).matches
    monkeypatch.chdir(tmp_path)
    layer = instance(
        "CategoryEncoding",
        name="ce",
        batch_input_shape=[None, 1],
        trainable=True,
        dtype=instance("Policy", name="mixed_float16"),
        num_tokens=4,
        output_mode="multi_hot",
        sparse=False,
    )
    h5_model(tmp_path / "model.h5", sequential(layer), keras_version="2.9.0")
    ended = run_command(match.entry.check.command)
    assert ended.code == Exit.FINDINGS
    assert "CategoryEncoding cannot be built under mixed_float16" in ended.out


@THOROUGH
@pytest.mark.parametrize(
    ("entry", "command"),
    [
        pytest.param(entry, step.command, id=f"{entry.id}-{number}")
        for entry in ENTRIES
        for number, step in enumerate(entry.fix)
        if step.command
    ],
)
def test_the_fix_of_an_entry_works(
    entry: Entry, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command ends with 0, a preview of changes with 1, and the target loads what it writes."""
    monkeypatch.chdir(tmp_path)
    example = EXAMPLES[entry.id]
    place({**example.files, **example.fix_files})
    before = set(tmp_path.iterdir())
    ended = run_command(command)
    words = command.split()
    expected = Exit.FINDINGS if "--preview" in words else Exit.CLEAN
    assert ended.code == expected, ended.out + ended.err
    if "--target" in words and words[1] == "migrate":
        (written,) = set(tmp_path.iterdir()) - before
        target = words[words.index("--target") + 1]
        assert target == "tfjs" or loads(written, target), ended.out


@THOROUGH
def test_every_printed_command_is_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the models and releases of public messages; only the models do not exist."""
    monkeypatch.chdir(tmp_path)
    matches = [match for row in PUBLIC for match in explain_text(row["text"]).matches]
    steps = [step for match in matches for step in (match.entry.check, *match.entry.fix)]
    for command in sorted({step.command for step in steps} - {""}):
        ended = run_command(command)
        assert ended.code in {Exit.FAILURE, Exit.CLEAN}, (command, ended.err)


def loads(path: Path, target: str) -> bool:
    """Return whether a target loads a model, or may."""
    newest = {"keras3": "keras3.15", "tf_keras": "tf_keras2.21"}
    report = json.loads(run("inspect", path, "--releases", "all", "--format", "json").out)
    (model,) = report["models"]
    verdicts = {release["release"]: release["verdict"] for release in model["releases"]}
    return bool(verdicts[newest.get(target, target)] != "incompatible")
