"""
SavedModels, rewritten: Keras' metadata in ``keras_metadata.pb``, ``saved_model.pb``, or both; every
other file stays byte for byte.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.formats.rewriting.base import Changes, FileChange, Rewriter, edit_texts
from policytool.formats.saved_model import metadata as _metadata
from policytool.formats.saved_model.files import GRAPH, KERAS
from policytool.formats.saved_model.metadata import MetadataChange
from policytool.formats.writing.failures import WriteError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


_FILES: Final = (KERAS, GRAPH)


def texts(path: Path) -> Mapping[str, str]:
    """Return the metadata in both files."""
    return {
        part: text
        for file in _FILES
        if (path / file).is_file()
        for part, text in _metadata.texts(path / file, file).items()
    }


def files(path: Path, changes: Changes) -> Mapping[str, FileChange]:
    """
    Return the files that change.

    :raises WriteError: for casts: the checkpoint stays as it is.
    """
    if changes.casts:
        raise WriteError(
            "not-rewritable",
            f"{path.name} is a SavedModel, whose checkpoint cannot be changed, but the plan "
            "casts some of its tensors; run again with --preview",
        )
    parts = edit_texts(texts(path), changes.edits)
    return {
        file: MetadataChange(
            file=file, edits=[edit for edit in changes.edits if _is_in(edit.address.part, file)]
        )
        for file in _FILES
        if any(_is_in(part, file) for part in parts)
    }


def _is_in(part: str, file: str) -> bool:
    return part.partition("#")[0] == file


REWRITER: Final = Rewriter(files=files)
