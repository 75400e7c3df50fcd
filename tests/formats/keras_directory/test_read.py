"""The directory form of ``.keras``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import policytool
from tests.conftest import UNPACKED
from tests.contracts.format_contract import FormatContract
from tests.helpers.small_models import keras_members, keras_zip

if TYPE_CHECKING:
    from pathlib import Path


class TestKerasDirectory(FormatContract):
    package = "keras_directory"
    document_format = ("keras",)
    samples = (UNPACKED,)
    parts = ("config.json", "metadata.json", "model.weights.h5")


def test_unpacked_archive_gives_the_report_of_the_archive(tmp_path: Path) -> None:
    for name, data in keras_members().items():
        (tmp_path / name).write_bytes(data)
    directory, archive = (
        policytool.inspect(tmp_path),
        policytool.inspect(keras_zip(tmp_path / "a.keras")),
    )
    assert (directory.layers, directory.writer, directory.written_by) == (
        archive.layers,
        archive.writer,
        archive.written_by,
    )
