"""Unpacked ``.keras`` models, rewritten one member at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from policytool.formats.hdf5.rewrite import Hdf5Change
from policytool.formats.hdf5.rewriting import storage
from policytool.formats.keras_archive import member_changes as _members
from policytool.formats.writers import Changes, FileChange, Rewriter

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from policytool.formats.hdf5.rewriting.rebuild import Rebuild


def files(path: Path, changes: Changes) -> Mapping[str, FileChange]:
    """Return the files that change: JSON and weights."""
    names = [file.name for file in path.iterdir() if file.is_file()]
    texts = _members.text_changes(names, changes)
    rebuilds = _members.rebuilds(names, lambda name: storage.reading(path / name), changes)
    return texts | {name: _weights_change(rebuild) for name, rebuild in rebuilds.items()}


def _weights_change(rebuild: Rebuild) -> Hdf5Change:
    return Hdf5Change(rebuild=lambda _: rebuild)


def rewriter() -> Rewriter:
    """Return how models of this format are rewritten."""
    return Rewriter(files=files)
