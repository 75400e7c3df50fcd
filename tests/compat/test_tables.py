"""Tables and savers where TensorFlow itself puts them need no trust."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from policytool.formats import format_detection
from policytool.model import reading, untrusted_code
from tests.compat.asking import run_module

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.compat

FILLS = "InitializeTableFromTextFileV2"


@pytest.fixture(scope="module")
def models(compat_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with SavedModels that hold tables."""
    folder = tmp_path_factory.mktemp("tables")
    run_module(compat_python, "tables", folder)
    return folder


@pytest.mark.parametrize(("name", "fills"), [("module", True), ("keras", False), ("session", True)])
def test_table_of_a_real_model_needs_no_trust(models: Path, name: str, *, fills: bool) -> None:
    """
    The path is that of an asset, in a variable (TF 2) or in a constant that releases fill in (TF
    1).
    """
    document = format_detection.document(models / name, name)
    result = (
        untrusted_code.reasons_of_file(document)
        if document.config_part is None
        else untrusted_code.reasons_not_to_run(reading.load_model(document))
    )
    assert [reason.what for reason in result] == []
    assert (FILLS in document.ops) == fills
