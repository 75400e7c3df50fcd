"""
The work on a directory grows in proportion to its files, whatever they are named and linked, and
however deep they lie.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Final

import pytest

from policytool.cli.exit_codes import Exit
from policytool.support.files import listings
from tests.conftest import run
from tests.helpers.marks import THOROUGH

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_MODEL: Final = json.dumps({"class_name": "Sequential", "config": {"name": "s", "layers": []}})
_SIZES: Final = (20, 40, 80)
_LINEAR: Final = 2.5
_NOISE: Final = 2_000


def _indices(directory: Path, count: int) -> None:
    for number in range(count):
        (directory / f"f{number}.index").write_bytes(b"x" * 100)
        (directory / f"g{number}.txt").write_bytes(b"x")


def _checkpoints(directory: Path, count: int) -> None:
    for number in range(count):
        (directory / f"f{number}.index").write_bytes(b"x" * 100)
        (directory / f"f{number}.data-00000-of-00001").write_bytes(b"x")


def _links_to_directory(directory: Path, count: int) -> None:
    (directory / "real").mkdir()
    for number in range(count):
        (directory / "real" / f"f{number}").write_bytes(b"x")
        (directory / f"l{number}").symlink_to("real")


def _nested(directory: Path, count: int) -> None:
    for _ in range(count):
        directory /= "d"
        directory.mkdir()
        (directory / "f.txt").write_bytes(b"x")


def _shards(directory: Path, count: int) -> None:
    for number in range(count):
        (directory / f"a_{number:05}.weights.h5").write_bytes(b"x")
    paths = [f"a_{number:05}.weights.h5" for number in range(count)]
    (directory / "a.weights.json").write_text(json.dumps({"weight_map": {"/v": paths}}))


def _unpacked(directory: Path, count: int) -> None:
    (directory / "config.json").write_text(_MODEL)
    for number in range(count):
        (directory / f"w{number}.weights.h5").write_bytes(b"x")


@pytest.fixture(autouse=True)
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every directory count as unchanged for long, as those of a checkout are."""
    monkeypatch.setattr(listings, "SETTLING_NS", -(10**12))


def _calls(*arguments: str | Path) -> int:
    found = 0

    def count(_frame: object, event: str, _function: object) -> None:
        nonlocal found
        found += event in {"call", "c_call"}

    sys.setprofile(count)
    try:
        ended = run(*arguments)
    finally:
        sys.setprofile(None)
    assert ended.code in {Exit.CLEAN, Exit.FINDINGS, Exit.FAILURE, Exit.NO_MODEL}, ended.err
    return found


@THOROUGH
@pytest.mark.parametrize("pattern", [".", "**"])
@pytest.mark.parametrize(
    "make", [_indices, _checkpoints, _links_to_directory, _nested, _shards, _unpacked]
)
def test_calls_grow_with_the_files(
    make: Callable[[Path, int], None],
    pattern: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each file with the suffix .index, and each link to a directory, listed a whole directory."""
    costs: list[int] = []
    for size in (_SIZES[0], *_SIZES):
        directory = tmp_path / f"{len(costs)}"
        directory.mkdir()
        make(directory, size)
        monkeypatch.chdir(directory)
        costs.append(_calls("inspect", "--jobs", "1", pattern))
    _, one, two, four = costs  # the first run imports modules
    assert four - two <= _LINEAR * max(two - one, 0) + _NOISE, costs


def test_listing_of_a_changed_directory_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Changes within the resolution of times also count."""
    monkeypatch.undo()
    for number in range(10):
        (tmp_path / f"f{number}").touch()
        assert len(listings.listing(tmp_path).names) == number + 1


def test_listing_serves_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A listing is reused as long as the directory does not change, under each of its names."""
    (tmp_path / "d").mkdir()
    (tmp_path / "l").symlink_to("d")
    first = listings.listing(tmp_path / "d")
    assert listings.listing(tmp_path / "l") is first
    monkeypatch.setattr(listings, "SETTLING_NS", 10**12)
    assert listings.listing(tmp_path / "d") is not first


@pytest.fixture(scope="module")
def deep(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a directory with a model below 1,100 others, and one beside them."""
    directory = tmp_path_factory.mktemp("deep")
    paths = []
    path = str(directory)
    for _ in range(1_100):
        path += "/d"
        os.mkdir(path)  # noqa: PTH102  # as text, because a Path takes the square of the depth
        paths.append(path)
    for model in (f"{path}/m.json", directory / "m.json"):
        with open(model, "w", encoding="utf-8") as file:  # noqa: PTH123  # as above
            file.write(_MODEL)
    yield directory
    os.remove(f"{path}/m.json")  # noqa: PTH107  # as above
    for path in reversed(paths):
        os.rmdir(path)  # noqa: PTH106  # shutil.rmtree recurses


@THOROUGH
@pytest.mark.skipif(sys.platform != "linux", reason="others have shorter paths")
@pytest.mark.parametrize("pattern", [".", "**", "**/*.json"])
def test_models_in_deep_directories_are_reported(
    pattern: str, deep: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Directories of more than 1,000 levels once ended the run without a report."""
    monkeypatch.chdir(deep)
    ended = run("inspect", "--format", "json", "--jobs", "1", pattern)
    assert ended.code == Exit.CLEAN, ended.err
    assert ended.out.count('m.json"') == 2


@THOROUGH
def test_recursive_glob_follows_no_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory with two links to itself was searched 2 ** 40 times."""
    (tmp_path / "m.json").write_text(_MODEL)
    (tmp_path / "d").mkdir()
    for name in ("a", "b", "c"):
        (tmp_path / "d" / name).symlink_to(".")
    (tmp_path / "d" / "m.json").write_text(_MODEL)
    monkeypatch.chdir(tmp_path)
    ended = run("inspect", "--format", "json", "--jobs", "1", "**/*.json", "d/**", "**/d/**/m*")
    assert ended.code == Exit.CLEAN, ended.err
    assert ended.out.count('m.json"') == 2
