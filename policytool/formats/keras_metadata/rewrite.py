"""A lone ``keras_metadata.pb``, rewritten: its metadata is edited, every other byte stays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.formats.rewriting.base import WriteError, Writer
from policytool.formats.saved_model import metadata as _metadata
from policytool.formats.saved_model.read import KERAS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from policytool.formats.edits import Cast
    from policytool.formats.rewriting.base import Changes, Counted


def texts(path: Path) -> Mapping[str, str]:
    """Return the metadata by part."""
    return _metadata.texts(path, KERAS)


def measure(path: Path, casts: Sequence[Cast]) -> Counted:
    """Return nothing: there are no tensors to cast."""
    if casts:
        raise WriteError(
            "source-changed", f"{path.name} stores no tensors, and the plan casts some; plan again"
        )
    return {}


def write(source: Path, draft: Path, changes: Changes) -> Counted:
    """Write the edited file into an empty draft."""
    _metadata.write(source, draft, KERAS, changes.edits)
    return measure(source, changes.casts)


def compare(source: Path, draft: Path, changes: Changes) -> None:
    """Compare a draft with its source."""
    _metadata.compare(source, draft, KERAS, changes.edits)


WRITER: Final = Writer(
    name="keras-metadata",
    format="keras-metadata",
    texts=texts,
    measure=measure,
    write=write,
    compare=compare,
)
