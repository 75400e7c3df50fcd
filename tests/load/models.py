"""
Models of every format and release, and between them files that are broken in every way: what ``make
load`` reads and migrates.
"""

from __future__ import annotations

import os
import random
import shutil
from typing import TYPE_CHECKING, Final

import h5py

from tests.helpers.endless import endless_collection, endless_list
from tests.helpers.paths import FIXTURES
from tests.helpers.small_models import h5_model, sequential

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

CRASHING: Final = "crashing"
"""In the name of what tests/load/crash.c ends a process over."""

GOOD: Final = "good"
DIRECTORY: Final = "directory"
"""Without a model in it, which is nothing to report: a directory means the models below it."""

ENDLESS: Final = "endless"
"""How the kinds begin over which a library goes in circles."""

_SUFFIXES: Final = {".h5", ".keras", ".json", ".yaml"}
_NO_MODELS: Final = {"truth.json", "policies.json", "checksums.json"}
_EVERY: Final = 4
"""One file of so many is broken."""

_FEW: Final = {"endless-collection": 1, "endless-list": 2, CRASHING: 20}
"""Kinds that take seconds, or a new process; of the others there are as many as come."""

_LFS: Final = (
    b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 1234\n"
)


def good() -> Iterator[Path]:
    """Yield the fixtures that are models, of one directory after the other."""
    for release in sorted(FIXTURES.iterdir()):
        for path in sorted(release.iterdir()) if release.is_dir() else ():
            if (path / "saved_model.pb").is_file() or (
                path.suffix in _SUFFIXES and path.is_file() and path.name not in _NO_MODELS
            ):
                yield path


def _cut(path: Path, source: Path, chance: random.Random) -> None:
    data = source.read_bytes()
    path.write_bytes(data[: chance.randrange(len(data))])


def _mutated(path: Path, source: Path, chance: random.Random) -> None:
    data = bytearray(source.read_bytes())
    for _ in range(chance.choice((1, 4, 64))):
        data[chance.randrange(len(data))] = chance.randrange(256)
    path.write_bytes(data)


def _bomb(path: Path, _source: Path, _chance: random.Random) -> None:
    with h5py.File(h5_model(path, sequential(), weights=False), "a") as file:
        file["model_weights"].create_dataset(
            "dense_a/dense_a/kernel:0", shape=(2**40, 2**20), dtype="float32", chunks=(1024, 1024)
        )


def _no_permission(path: Path, source: Path, _chance: random.Random) -> None:
    shutil.copyfile(source, path)
    path.chmod(0)


def _empty_directory(path: Path, _source: Path, _chance: random.Random) -> None:
    (path / "variables").mkdir(parents=True)
    (path / "variables" / "variables.index").write_bytes(b"")


BROKEN: Final[dict[str, Callable[[Path, Path, random.Random], object]]] = {
    "truncated": _cut,
    "empty": lambda path, _source, _chance: path.write_bytes(b""),
    "noise": lambda path, _source, chance: path.write_bytes(chance.randbytes(4000)),
    "mutated": _mutated,
    "lfs": lambda path, _source, _chance: path.write_bytes(_LFS),
    "html": lambda path, _source, _chance: path.write_bytes(
        b"<!DOCTYPE html><html><body>404</body></html>"
    ),
    "dangling": lambda path, _source, _chance: path.symlink_to(f"nowhere-{path.name}"),
    "circle": lambda path, _source, _chance: path.symlink_to(path.name),
    "no-permission": _no_permission,
    DIRECTORY: _empty_directory,
    "bomb": _bomb,
    "endless-collection": lambda path, _source, _chance: endless_collection(path),
    "endless-list": lambda path, _source, _chance: endless_list(path),
    CRASHING: lambda path, source, _chance: shutil.copyfile(source, path),
}


def make(directory: Path, count: int, seed: int = 1) -> dict[str, str]:
    """
    Fill a directory with so many models, good and broken; return each name's kind, :data:`GOOD` or
    how it is broken.
    """
    chance = random.Random(seed)  # noqa: S311  # the same files each time
    sources = list(good())
    files = [path for path in sources if path.suffix in {".h5", ".keras"} and path.is_file()]
    hdf5 = [path for path in files if path.suffix == ".h5"]
    few = dict(_FEW)
    kinds = list(BROKEN)
    made: dict[str, str] = {}
    for number in range(count):
        if number % _EVERY:
            source = sources[number % len(sources)]
            made[
                _copied(
                    source, directory / f"m{number:05}{source.suffix if source.is_file() else ''}"
                )
            ] = GOOD
            continue
        kind = kinds[(number // _EVERY) % len(kinds)]
        if few.get(kind, 1) < 1:
            kind = "mutated"
        elif kind in few:
            few[kind] -= 1
        source = chance.choice(hdf5 if kind in few else files)
        path = directory / f"m{number:05}-{kind}{'' if kind == DIRECTORY else source.suffix}"
        BROKEN[kind](path, source, chance)
        made[path.name] = kind
    return made


def _copied(source: Path, path: Path) -> str:
    if source.is_dir():
        shutil.copytree(source, path, copy_function=os.link)
    else:
        os.link(source, path)
    return path.name
