"""Damaged and hostile pairs of an architecture and its weights end in one sentence."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING, Any, Final

import h5py
import pytest

from tests.conftest import run
from tests.helpers.paths import FIXTURES
from tests.helpers.separate_files import separate

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SHARDS: Final = ("sharded.weights.json", "sharded_00000.weights.h5")


def _fifo(_: Path, weights: Path) -> None:
    weights.unlink()
    os.mkfifo(weights)


def _directory(_: Path, weights: Path) -> None:
    weights.unlink()
    weights.mkdir()


def _names_that_are_not_utf8(_: Path, weights: Path) -> None:
    with h5py.File(weights, "a") as file:
        file.attrs["layer_names"] = [b"\xff\xfe", b"d"]


def _many_keys(architecture: Path, _: Path) -> None:
    keys = ",".join(f'"{number}":1' for number in range(200_000))
    architecture.write_text(f'{{"class_name":"Sequential","config":{{{keys}}}}}', encoding="utf-8")


DAMAGES: Final[dict[str, tuple[str, Callable[[Path, Path], object]]]] = {
    "no weights": ("not-found", lambda _, weights: weights.unlink()),
    "a FIFO": ("foreign", _fifo),
    "a directory": ("no-model", _directory),
    "names that are not UTF-8": ("weights-mismatch", _names_that_are_not_utf8),
    "a nested architecture": (
        "json-limit",
        lambda architecture, _: architecture.write_text('{"a":' * 10**5),
    ),
    "an architecture of many keys": ("weights-mismatch", _many_keys),
}


def assert_sentence(code: str, architecture: Path, weights: Path) -> None:
    """Join two files, and check that this ends in one sentence with a code and writes nothing."""
    arguments = ("--weights", weights, "--target", "keras3", "--no-verify")
    ended = run("migrate", architecture, *arguments)
    assert ended.code == 3, ended.out
    assert ended.err.startswith("error: ")
    assert f"[{code}]" in ended.err
    assert len(ended.err) < 1_000
    assert not list(architecture.parent.glob("*.keras"))


@pytest.mark.parametrize("what", DAMAGES)
def test_damaged_files_are_errors(what: str, tmp_path: Path) -> None:
    """Each damage has a code, and nothing is written."""
    architecture, weights = separate(FIXTURES / "tf2.15" / "default_float32.h5", tmp_path)
    code, damage = DAMAGES[what]
    damage(architecture, weights)
    assert_sentence(code, architecture, weights)


@pytest.mark.parametrize(
    ("shard", "code"),
    [
        ("sharded_00007.weights.h5", "shard-missing"),
        ("\udcff.weights.h5", "shard-missing"),
        ("../../../etc/passwd", "json-not-keras"),
        ([1], "json-not-keras"),
    ],
)
def test_wrong_shards_are_errors(shard: Any, code: str, tmp_path: Path) -> None:
    """Names of shards must be those of files in the same directory."""
    architecture, _ = separate(FIXTURES / "keras3.15" / "default_float32.keras", tmp_path)
    for name in SHARDS:
        shutil.copy(FIXTURES / "keras3.15" / name, tmp_path)
    path = tmp_path / SHARDS[0]
    shard_map = json.loads(path.read_text(encoding="utf-8"))
    shard_map["weight_map"]["/layers/dense/vars"] = shard
    path.write_text(json.dumps(shard_map), encoding="utf-8")
    assert_sentence(code, architecture, path)


def test_shard_behind_a_link_is_an_error(tmp_path: Path) -> None:
    """A link out of the directory is not followed."""
    architecture, _ = separate(FIXTURES / "keras3.15" / "default_float32.keras", tmp_path)
    shutil.copy(FIXTURES / "keras3.15" / SHARDS[0], tmp_path)
    (tmp_path / SHARDS[1]).symlink_to(FIXTURES / "keras3.15" / SHARDS[1])
    assert_sentence("escaping-link", architecture, tmp_path / SHARDS[0])
