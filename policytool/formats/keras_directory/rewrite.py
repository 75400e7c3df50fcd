"""Unpacked ``.keras`` models, rewritten one member at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.formats.hdf5.rewrite import Hdf5Change
from policytool.formats.hdf5.rewriting import storage
from policytool.formats.keras_archive import file_names
from policytool.formats.keras_archive import weights as _weights
from policytool.formats.rewriting import texts as _texts
from policytool.formats.rewriting.base import Changes, FileChange, Rewriter, edit_texts

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from policytool.formats.hdf5.rewriting.rebuild import Rebuild

_PARTS: Final = (file_names.CONFIG, file_names.METADATA)


def files(path: Path, changes: Changes) -> Mapping[str, FileChange]:
    """Return the files that change: JSON and weights."""
    texts = {part: _texts.text(path / part, part) for part in _PARTS if (path / part).is_file()}
    edited: dict[str, FileChange] = {
        part: _texts.TextChange(
            part=part, edits=[edit for edit in changes.edits if edit.address.part == part]
        )
        for part in edit_texts(texts, changes.edits)
    }
    names = sorted(
        file.name for file in path.iterdir() if file.name.endswith(file_names.WEIGHTS_SUFFIX)
    )
    rebuilds = _weights.rebuilds(names, lambda name: storage.reading(path / name), changes)
    return edited | {name: _weights_change(rebuild) for name, rebuild in rebuilds.items()}


def _weights_change(rebuild: Rebuild) -> Hdf5Change:
    return Hdf5Change(rebuild=lambda _: rebuild)


REWRITER: Final = Rewriter(files=files)
