"""
SavedModels, rewritten: Keras' metadata in ``keras_metadata.pb``, ``saved_model.pb``, or both; every
other file stays byte for byte.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.formats.rewriting.base import Changes, Rewriter, edit_texts
from policytool.formats.saved_model import metadata as _metadata
from policytool.formats.saved_model.files import GRAPH, KERAS
from policytool.formats.writing.failures import WriteError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from policytool.formats.edits import Cast, Counted, Edit

_FILES: Final = (KERAS, GRAPH)


def texts(path: Path) -> Mapping[str, str]:
    """Return the metadata in both files."""
    return {
        part: text
        for file in _FILES
        if (path / file).is_file()
        for part, text in _metadata.texts(path / file, file).items()
    }


def measure(path: Path, casts: Sequence[Cast]) -> Counted:
    """Return nothing: the checkpoint stays as it is."""
    if casts:
        raise WriteError(
            "not-rewritable",
            f"{path.name} is a SavedModel, whose checkpoint cannot be changed, but the plan "
            "casts some of its tensors; run again with --dry-run",
        )
    return {}


def members(path: Path, changes: Changes) -> tuple[str, ...]:
    """Return the names of the files that change."""
    measure(path, changes.casts)
    parts = edit_texts(texts(path), changes.edits)
    return tuple(file for file in _FILES if any(_is_in(part, file) for part in parts))


def write(source: Path, draft: Path, changes: Changes) -> Counted:
    """Write one changed file into an empty draft."""
    _metadata.write(source, draft, source.name, _of(source.name, changes))
    return {}


def compare(source: Path, draft: Path, changes: Changes) -> None:
    """Compare the draft of one file with its source."""
    _metadata.compare(source, draft, source.name, _of(source.name, changes))


def _of(file: str, changes: Changes) -> list[Edit]:
    return [edit for edit in changes.edits if _is_in(edit.address.part, file)]


def _is_in(part: str, file: str) -> bool:
    return part.partition("#")[0] == file


REWRITER: Final = Rewriter(
    texts=texts, measure=measure, write=write, compare=compare, members=members
)
