"""A lone ``keras_metadata.pb``, rewritten: its metadata is edited, every other byte stays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from policytool.formats.saved_model.files import KERAS
from policytool.formats.saved_model.metadata import MetadataChange
from policytool.formats.writers import Changes, FileChange, Rewriter, refuse_casts

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def files(path: Path, changes: Changes) -> Mapping[str, FileChange]:
    """Return what changes in the file."""
    refuse_casts(path, changes.casts)
    return {"": MetadataChange(file=KERAS, edits=changes.edits)}


def rewriter() -> Rewriter:
    """Return how models of this format are rewritten."""
    return Rewriter(files=files)
