"""A lone ``keras_metadata.pb``, rewritten: its metadata is edited, every other byte stays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.formats.rewriting.base import Rewriter, measure_nothing
from policytool.formats.saved_model import metadata as _metadata
from policytool.formats.saved_model.files import KERAS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from policytool.formats.edits import Counted
    from policytool.formats.rewriting.base import Changes


def texts(path: Path) -> Mapping[str, str]:
    """Return the metadata by part."""
    return _metadata.texts(path, KERAS)


def write(source: Path, draft: Path, changes: Changes) -> Counted:
    """Write the edited file into an empty draft."""
    _metadata.write(source, draft, KERAS, changes.edits)
    return measure_nothing(source, changes.casts)


def compare(source: Path, draft: Path, changes: Changes) -> None:
    """Compare a draft with its source."""
    _metadata.compare(source, draft, KERAS, changes.edits)


REWRITER: Final = Rewriter(texts=texts, measure=measure_nothing, write=write, compare=compare)
