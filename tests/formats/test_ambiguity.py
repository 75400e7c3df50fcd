"""
A file or directory that contains two models is an error with any option, and an archive that only
stores HDF5 is one model.
"""

from __future__ import annotations

import io
import shutil
import zipfile
from random import Random
from typing import TYPE_CHECKING, Final

import h5py
import pytest

from policytool.commands import audit as auditing
from policytool.formats import format_detection
from policytool.formats.discovery import Input
from policytool.rules import AuditOptions
from policytool.support.errors import ModelFileError
from tests.conftest import UNPACKED, run
from tests.helpers.marks import SLOW, THOROUGH
from tests.helpers.paths import FIXTURES
from tests.helpers.polyglots import (
    HARMLESS_H5,
    HARMLESS_KERAS,
    OFFSETS,
    SIGNATURE,
    archive_around,
    hdf5_at,
    healthy_archive,
    hostile_archive,
    with_comment,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ARCHIVE: Final = hostile_archive("policytool-marker")
SAVED: Final = FIXTURES / "tf2.15/default_float32"


def _inside_member() -> bytes:
    """
    Return an archive with a stored member that contains HDF5 at an offset where HDF5 readers look.
    """
    result = io.BytesIO()
    with (
        zipfile.ZipFile(result, "w") as archive,
        zipfile.ZipFile(io.BytesIO(HARMLESS_KERAS)) as old,
    ):
        archive.writestr("assets/a", bytes(512 - 30 - len("assets/a")) + HARMLESS_H5)
        for name in old.namelist():
            archive.writestr(name, old.read(name))
    return result.getvalue()


TWO: Final[dict[str, Callable[[], bytes]]] = {
    "HDF5, then an archive": lambda: HARMLESS_H5 + ARCHIVE,
    "HDF5, then an archive with a comment": lambda: HARMLESS_H5 + with_comment(ARCHIVE, b"x" * 900),
    "HDF5, then bytes, then an archive": lambda: HARMLESS_H5 + bytes(70_000) + ARCHIVE,
    "HDF5 behind a user block, then an archive": lambda: hdf5_at(1024) + ARCHIVE,
    "HDF5 far behind, then an archive": lambda: hdf5_at(16384) + ARCHIVE,
    **{
        f"an archive around HDF5 at {offset}": lambda offset=offset: archive_around(hdf5_at(offset))  # type: ignore[misc]
        for offset in OFFSETS[:9]
    },
    "an archive, then an archive": lambda: HARMLESS_KERAS + ARCHIVE,
    "an archive in a comment": lambda: with_comment(HARMLESS_KERAS, ARCHIVE),
    "an archive in the comment of an archive in HDF5": lambda: (
        HARMLESS_H5 + with_comment(ARCHIVE, HARMLESS_KERAS)
    ),
    "an archive, then an index of a checkpoint": lambda: with_comment(
        HARMLESS_KERAS, bytes.fromhex("57fb808b247547db")
    ),
    "an archive with HDF5 inside a member": _inside_member,
}


def findings(path: Path) -> list[str]:
    """Return the safety rules that have findings."""
    audited = auditing.audit_input(Input(path=path, exact=True), AuditOptions())
    return [finding.rule for finding in audited.findings if finding.rule.startswith("PT6")]


@pytest.mark.parametrize("what", TWO)
@pytest.mark.parametrize("suffix", [".h5", ".keras"])
def test_a_file_that_is_two_models_is_an_error(what: str, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"model{suffix}"
    path.write_bytes(TWO[what]())
    document = format_detection.document(path, "m")
    assert [observation.code for observation in document.observations] == [
        format_detection.AMBIGUOUS
    ]
    with pytest.raises(ModelFileError, match="two models at once"):
        format_detection.refuse_ambiguity(document)


@THOROUGH
@pytest.mark.parametrize(
    "arguments",
    [
        ("migrate", "--to", "mixed_bfloat16", "--preview"),
        ("migrate", "--target", "keras3"),
        ("migrate", "--target", "tf2.15", "--verify", "--trust"),
        ("check", "--to", "mixed_bfloat16", "--trust"),
        ("tune", "--to", "mixed_bfloat16", "--tolerance", "0.1", "--trust"),
    ],
    ids=" ".join,
)
def test_every_command_rejects_a_file_with_two_models(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    ``--trust`` does not allow two models in a file, because it covers the code of only one model.
    """
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.keras").write_bytes(HARMLESS_H5 + ARCHIVE)
    ended = run(arguments[0], "p.keras", *arguments[1:], "--python", "no-such-python")
    assert ended.code == 3
    assert "[ambiguous-format]" in ended.err
    assert [path.name for path in tmp_path.iterdir()] == ["p.keras"]


def test_audit_names_two_models(tmp_path: Path) -> None:
    """``audit`` reports a file with two models with a separate rule."""
    path = tmp_path / "p.keras"
    path.write_bytes(HARMLESS_H5 + ARCHIVE)
    assert findings(path) == ["PT613"]
    path.write_bytes(HARMLESS_KERAS)
    assert findings(path) == []


@pytest.mark.parametrize(
    "other", [("saved_model.pbtxt",), ("saved_model.cpb",), ("config.json", "metadata.json")]
)
def test_a_directory_of_two_models_is_an_error(tmp_path: Path, other: tuple[str, ...]) -> None:
    """Each release decides which of them it loads."""
    path = tmp_path / "saved"
    shutil.copytree(SAVED, path)
    for name in other:
        shutil.copy(UNPACKED / name, path) if (UNPACKED / name).exists() else (
            path / name
        ).write_text("{}", encoding="utf-8")
    assert "PT613" in findings(path)
    with pytest.raises(ModelFileError, match="two models at once"):
        format_detection.refuse_ambiguity(format_detection.document(path, "m"))


@pytest.mark.parametrize("offset", [512, 4096, 65536])
def test_hdf5_is_recognized_at_every_offset_of_the_library(offset: int, tmp_path: Path) -> None:
    """HDF5 is recognized at each offset where the library looks, and is one model."""
    path = tmp_path / "model"
    path.write_bytes(hdf5_at(offset))
    with h5py.File(path):
        pass
    document = format_detection.document(path, "m")
    assert (document.format, document.observations) == ("h5", ())


def test_hdf5_is_not_recognised_elsewhere(tmp_path: Path) -> None:
    """HDF5 at another offset is not recognized, because the library does not look there."""
    path = tmp_path / "model"
    path.write_bytes(bytes(1536) + HARMLESS_H5)
    with pytest.raises(ModelFileError):
        format_detection.document(path, "m")


def test_end_record_without_a_directory_is_not_an_archive(tmp_path: Path) -> None:
    """
    The signature of a zip end record without a directory, which can occur in weights by chance,
    does not make an archive.
    """
    path = tmp_path / "model.h5"
    path.write_bytes(HARMLESS_H5 + b"PK\x05\x06" + bytes(18) + b"PK\x05\x06")
    assert format_detection.document(path, "m").observations == ()


def examine(count: int, seed: int, path: Path) -> int:
    """Check valid archives for ambiguity, and return how many of them h5py would open unchanged."""
    rng, also_hdf5 = Random(seed), 0  # noqa: S311
    for _ in range(count):
        content = healthy_archive(rng)
        path.write_bytes(content)
        document = format_detection.document(path, "m")
        assert [
            observation
            for observation in document.observations
            if observation.code == format_detection.AMBIGUOUS
        ] == []
        format_detection.refuse_ambiguity(document)
        also_hdf5 += any(content[offset:].startswith(SIGNATURE) for offset in OFFSETS)
    return also_hdf5


def test_healthy_archives_are_one_model(tmp_path: Path) -> None:
    """Also if they contain HDF5 at an offset where its library looks."""
    assert examine(60, 1, tmp_path / "model.keras") > 20


@SLOW
def test_ten_thousand_healthy_archives_are_one_model(tmp_path: Path) -> None:
    assert examine(10_000, 2, tmp_path / "model.keras") > 3_000
