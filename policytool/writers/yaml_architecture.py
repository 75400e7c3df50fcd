"""Architecture YAML, rewritten: its text is edited, nothing else is in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool import yamledit
from policytool.formats.yaml_architecture import PART
from policytool.writers import _texts
from policytool.writers._base import Writer
from policytool.writers.architecture import measure

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from policytool.writers._base import Changes, Counted


def texts(path: Path) -> Mapping[str, str]:
    """Return the file's text."""
    return {PART: _texts.decoded(path.read_bytes(), "the file")}


def write(source: Path, draft: Path, changes: Changes) -> Counted:
    """Write the edited text into an empty draft."""
    _texts.write(source, draft, PART, changes.edits, yamledit.apply)
    return measure(source, changes.casts)


def compare(source: Path, draft: Path, changes: Changes) -> None:
    """Compare a draft with its source."""
    _texts.compare(source, draft, PART, changes.edits, yamledit.apply)


WRITER: Final = Writer(name="yaml", format="yaml", texts=texts, measure=measure, write=write, compare=compare)
