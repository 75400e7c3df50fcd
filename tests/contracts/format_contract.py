"""What every format has to hold, whatever it stores and how."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from typing import TYPE_CHECKING

import pytest

from policytool.formats import FORMATS, Format, Probe
from policytool.model import reading
from tests.helpers.marks import THOROUGH
from tests.helpers.paths import ROOT
from tests.helpers.sampling import EVERY_CASE, RUN_SEED

if TYPE_CHECKING:
    from pathlib import Path

    from policytool.formats.document import Document
    from policytool.support.text.jsontext import Json


@cache
def _read(file_format: Format, path: Path) -> Document:
    """Return the document of a sample, which the tests of a contract share."""
    return file_format.read(Probe(path, path.name))


class FormatContract:
    """Shared assertions; a subclass names its package and gives real files of it."""

    package: str
    """The name of the format's module or package, below ``policytool.formats``."""

    document_format: tuple[str, ...]
    """What :attr:`Document.format` may be."""

    samples: tuple[Path, ...]
    """Real files, or directories."""

    parts: tuple[str, ...] = ("",)
    """
    The files of a sample that are damaged: names inside a directory, or nothing for the file
    itself.
    """

    mutations: int = 250
    """The number of damaged copies of each part for a seed."""

    @property
    def format(self) -> Format:
        """The format that the package declares."""
        name = f"policytool.formats.{self.package}"
        return next(found for found in FORMATS if found.package == name)

    def document(self, path: Path) -> Document:
        """Return the document of a sample."""
        return _read(self.format, path)

    def test_samples_exist(self) -> None:
        """The contract needs real files."""
        assert self.samples
        assert all(path.exists() for path in self.samples)

    def test_exactly_one_format_recognises_a_sample(self) -> None:
        """No two formats claim a file, and this one claims its own."""
        for path in self.samples:
            assert [found for found in FORMATS if found.recognise(Probe(path, path.name))] == [
                self.format
            ]

    def test_reading_twice_gives_equal_documents(self) -> None:
        """
        A document depends only on the file, whose bytes and time reading does not change.
        """
        for path in self.samples:
            files = (
                [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
            )
            before = [(file.read_bytes(), file.stat().st_mtime_ns) for file in files]
            assert self.document(path) == self.format.read(Probe(path, path.name))
            assert [(file.read_bytes(), file.stat().st_mtime_ns) for file in files] == before

    def test_document_is_whole(self) -> None:
        """
        Named parts exist, the path is as it is shown, and variables have shapes and dtypes of
        Keras.
        """
        for path in self.samples:
            document = self.document(path)
            assert document.path == path.name
            assert document.format in self.document_format
            for part in (document.config_part, document.training_part):
                assert part is None or part in document.parts
            for tensor in document.tensors or ():
                assert tensor.path
                assert tensor.dtype != "unknown"

    def test_address_of_a_declared_dtype_leads_to_its_value(self) -> None:
        for path in self.samples:
            document = self.document(path)
            for layer in reading.model_of(document).layers:
                if layer.source.value == "declared":
                    assert layer.address
                    assert (
                        _value_at(document.parts[layer.address.part], layer.address.pointer)
                        is not None
                    )

    @THOROUGH
    @pytest.mark.parametrize("seed", range(4) if EVERY_CASE else (RUN_SEED,))
    def test_damaged_copies_raise_only_model_file_errors(self, seed: int) -> None:
        """
        A truncated or changed file is read or rejected, and the C libraries survive. Each commit
        draws other bytes.
        """
        command = [sys.executable, "-m", "tests.contracts.mutations", str(self.samples[0])]
        count = self.mutations // (1 if EVERY_CASE else 2)
        done = subprocess.run(
            [*command, str(seed), str(count), *self.parts],
            capture_output=True,
            text=True,
            check=False,
            cwd=ROOT,
            timeout=120,
        )
        last = done.stderr.splitlines()[-1:]
        assert done.returncode >= 0, f"signal {-done.returncode} while reading {last}"
        assert (done.returncode, done.stdout) == (0, ""), last

    def test_empty_directory_and_empty_file_are_not_recognised(self, tmp_path: Path) -> None:
        """Nothing is no model."""
        (tmp_path / "empty").write_bytes(b"")
        (tmp_path / "directory").mkdir()
        assert not self.format.recognise(Probe(tmp_path / "empty", "empty"))
        assert not self.format.recognise(Probe(tmp_path / "directory", "directory"))


def _value_at(value: Json, pointer: str) -> Json:
    """
    Return what a JSON Pointer leads to; an input layer of Keras 1 has ``input_dtype`` for
    ``dtype``.
    """
    for step in pointer.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(value, list):
            value = value[int(name)]
        else:
            assert isinstance(value, dict), pointer
            value = value[name] if name in value else value["input_dtype"]
    return value
