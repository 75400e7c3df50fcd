"""Architecture JSON, rewritten: its text is edited, nothing else is in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.formats.architecture import PART
from policytool.writers import _texts
from policytool.writers._base import WriteError, Writer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from policytool.plan import Cast
    from policytool.writers._base import Changes, Counted


def texts(path: Path) -> Mapping[str, str]:
    """Return the file's text."""
    return {PART: _texts.decoded(path.read_bytes(), "the file")}


def measure(path: Path, casts: Sequence[Cast]) -> Counted:
    """Return nothing: there are no tensors to cast."""
    if casts:
        raise WriteError("source-changed", f"{path.name} stores no tensors, and the plan casts some; plan again")
    return {}


def write(source: Path, draft: Path, changes: Changes) -> Counted:
    """Write the edited text into an empty draft."""
    _texts.write(source, draft, PART, changes.edits)
    return measure(source, changes.casts)


def compare(source: Path, draft: Path, changes: Changes) -> None:
    """Compare a draft with its source."""
    _texts.compare(source, draft, PART, changes.edits)


WRITER: Final = Writer(name="json", format="json", texts=texts, measure=measure, write=write, compare=compare)
