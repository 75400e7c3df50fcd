"""A FIFO, socket or device instead of a model is a one-line error, and is not read."""

from __future__ import annotations

import itertools
import os
import shutil
import sys
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from tests.conftest import MIXED_H5, MIXED_SAVEDMODEL, MIXED_TFJS, UNPACKED
from tests.helpers.marks import ALONE, THOROUGH
from tests.helpers.paths import FIXTURES
from tests.helpers.sampling import sampled
from tests.helpers.special_files import KINDS, make_endless, run_bounded

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [
    THOROUGH,
    ALONE,
    pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such files"),
]

FILES: Final = (
    "m.h5",
    "m.keras",
    "m.json",
    "m.yaml",
    "keras_metadata.pb",
    "saved_model.pb",
    "m.index",
    "m.weights.json",
    "model",
    "checkpoint",
)
"""Names that formats know, and two that none does."""


class Member(NamedTuple):
    """A file in the directory of a model, which the model is recognised without."""

    model: Path
    name: str


MEMBERS: Final = (
    Member(MIXED_SAVEDMODEL, "saved_model.pb"),
    Member(MIXED_SAVEDMODEL, "keras_metadata.pb"),
    Member(UNPACKED, "config.json"),
    Member(UNPACKED, "metadata.json"),
    Member(UNPACKED, "model.weights.h5"),
)
VALUES: Final = (
    Member(MIXED_SAVEDMODEL, "variables/variables.index"),
    Member(MIXED_SAVEDMODEL, "variables/variables.data-00000-of-00001"),
    Member(MIXED_TFJS.parent, "group1-shard1of1.bin"),
)
"""Files that only ``audit --weights`` reads."""


def copied(member: Member, into: Path, make: Callable[[Path], None]) -> Path:
    """Return a copy of a model with something else in the place of one of its files."""
    model = into / "model"
    shutil.copytree(member.model, model)
    (model / member.name).unlink()
    make(model / member.name)
    return model


@pytest.mark.parametrize("kind", KINDS)
def test_no_special_file_is_a_model(kind: str, tmp_path: Path) -> None:
    """The sentence says what it is, whatever it is called."""
    names = FILES[:1] if KINDS[kind] is make_endless else FILES  # links to one device are one input
    for name in names:
        KINDS[kind](tmp_path / name)
    ended = run_bounded("inspect", *names, cwd=tmp_path)
    assert (ended.code, ended.out) == (3, "")
    for name in names:
        assert f"error: {name}: a {kind}, not a regular file" in ended.err


@pytest.mark.parametrize(
    ("command", "kind"),
    sampled("special files", itertools.product(["inspect", "audit"], KINDS), share=3),
)
def test_special_file_in_a_model_is_reported(kind: str, command: str, tmp_path: Path) -> None:
    """A model in a directory is reported too, because its other files show that it is a model."""
    for number, member in enumerate(MEMBERS):
        copied(member, tmp_path / str(number), KINDS[kind])
    ended = run_bounded(command, ".", cwd=tmp_path)
    assert ended.code == 3
    for number, member in enumerate(MEMBERS):
        assert (
            f"error: {number}/model: contains a {kind} instead of the file {member.name}. "
            "Replace it with a regular file. [not-regular]"
        ) in ended.err


@pytest.mark.parametrize("kind", KINDS)
def test_values_in_a_special_file_are_not_read(kind: str, tmp_path: Path) -> None:
    """Other properties of the models are still reported."""
    models = [
        copied(member, tmp_path / str(number), KINDS[kind]) for number, member in enumerate(VALUES)
    ]
    named = [
        model / "model.json" if (model / "model.json").is_file() else model for model in models
    ]
    ended = run_bounded("audit", "--weights", *named, "--format", "json")
    assert ended.code in {0, 1, 3}, ended.err
    assert [model["path"] for model in ended.json["models"]] == [str(item) for item in named]


def test_special_files_in_a_directory_are_skipped(tmp_path: Path) -> None:
    for kind, make in KINDS.items():
        (tmp_path / kind).mkdir()
        for name in set(FILES) - {"saved_model.pb"}:  # which makes a directory a model
            make(tmp_path / kind / name)
    shutil.copy(MIXED_H5, tmp_path / "model.h5")
    ended = run_bounded("inspect", ".", "--format", "json", cwd=tmp_path)
    assert (ended.code, [model["path"] for model in ended.json["models"]]) == (0, ["model.h5"]), (
        ended.err
    )


@pytest.mark.parametrize(
    "command",
    [
        ("migrate", "--to", "mixed_bfloat16"),
        ("diff", MIXED_H5),
        ("check", "--to", "mixed_bfloat16"),
    ],
    ids=lambda one: one[0],
)
def test_no_command_waits_for_a_fifo(command: tuple[str | Path, ...], tmp_path: Path) -> None:
    """The error of each command names the kind of the file."""
    os.mkfifo(tmp_path / "model.h5")
    ended = run_bounded(*command, "model.h5", cwd=tmp_path)
    assert ended.code == 3
    assert "model.h5: a FIFO, not a regular file" in ended.err


@pytest.mark.parametrize("option", ["--inputs", "--weights"])
def test_fifo_for_tensorflow_is_rejected(option: str, tmp_path: Path) -> None:
    """The TensorFlow process is not started for a file that would block it."""
    os.mkfifo(tmp_path / "given")
    ended = run_bounded(
        "check",
        FIXTURES / "tf2.3/global_mixed_float16.json",
        "--to",
        "mixed_bfloat16",
        option,
        tmp_path / "given",
    )
    assert ended.code == 3
    assert (
        f"cannot be read for {option}: it is a FIFO. Only regular files are supported" in ended.err
    )


def test_special_file_among_assets_is_not_copied(tmp_path: Path) -> None:
    """A written SavedModel contains only regular files."""
    model = tmp_path / "model"
    shutil.copytree(MIXED_SAVEDMODEL, model)
    (model / "assets").mkdir(exist_ok=True)
    os.mkfifo(model / "assets" / "vocabulary.txt")
    ended = run_bounded("migrate", model, "--to", "mixed_bfloat16", "-o", tmp_path / "new")
    assert (ended.code, (tmp_path / "new").exists()) == (3, False)
    assert "assets/vocabulary.txt is not a regular file" in ended.err


def test_architecture_of_a_tf1_export_is_not_read_from_a_device(tmp_path: Path) -> None:
    """
    An export of TF 1 has its architecture among the assets, and a link to a device is ignored.
    """
    model = tmp_path / "model"
    shutil.copytree(FIXTURES / "tf1.15/global_mixed_float16.export", model)
    (model / "assets/saved_model.json").unlink()
    make_endless(model / "assets/saved_model.json")
    ended = run_bounded("inspect", model, "--format", "json")
    assert ended.code == 0, ended.err
