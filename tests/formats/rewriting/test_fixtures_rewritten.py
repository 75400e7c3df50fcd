"""A sample of the fixtures is rewritten with one edited dtype, and with all float tensors cast."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from policytool.formats import REWRITTEN, rewriting
from policytool.formats.rewriting import Changes
from policytool.model import reading
from policytool.support.errors import ModelFileError
from tests.helpers.changes import OTHER, casts, document_of, dtype_edit
from tests.helpers.marks import THOROUGH
from tests.helpers.paths import FIXTURES
from tests.helpers.sampling import sampled

if TYPE_CHECKING:
    from pathlib import Path

    from policytool.formats.document import Document

pytestmark = THOROUGH


RELEASES = sorted(truth.parent.name for truth in FIXTURES.glob("*/truth.json"))


def _models(release: str) -> tuple[Path, ...]:
    """Return a sample of a release's files in each format."""
    return tuple(
        path
        for suffix in ("*.h5", "*.keras", "*.keras.d", "*.json", "*.yaml")
        for path in sampled(
            f"rewritten {suffix} of {release}",
            sorted((FIXTURES / release).glob(suffix)),
            share=10,
        )
    )


def _rewritable(path: Path) -> Document | None:
    try:
        document = document_of(path)
    except ModelFileError:
        return None
    is_rewritten = document.format in REWRITTEN and document.config_part is not None
    return document if is_rewritten else None


@pytest.mark.parametrize("release", RELEASES)
def test_fixtures_are_rewritten_and_read_back(release: str, tmp_path: Path) -> None:
    """
    A rewritten fixture has the edited dtype and the new dtype of each tensor, and no other file is
    left in the directory.
    """
    for path in _models(release):
        document = _rewritable(path)
        edited = dtype_edit(document) if document else None
        if document is None or edited is None:
            continue
        target = tmp_path / path.name
        for wanted in ((), casts(document)):
            rewriting.write(
                path,
                target,
                Changes(edits=(edited,), casts=wanted),
                document_format=document.format,
            )
            again = document_of(target)
            assert {**document.parts, edited.address.part: None} == {
                **again.parts,
                edited.address.part: None,
            }
            text = json.dumps(again.parts[edited.address.part])
            assert text.count("another ") == 1
            reading.read(target, "again")
            expected = {
                tensor.path: OTHER.get(tensor.dtype, tensor.dtype) if wanted else tensor.dtype
                for tensor in document.tensors or ()
            }
            assert {tensor.path: tensor.dtype for tensor in again.tensors or ()} == expected
            shutil.rmtree(target) if target.is_dir() else target.unlink()
            assert not list(tmp_path.iterdir())
