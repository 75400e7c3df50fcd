"""Architecture JSON, rewritten: its text is edited, nothing else is in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.formats.architecture.read import PART
from policytool.formats.rewriting import texts
from policytool.formats.rewriting.base import WriteError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from policytool.formats.edits import Cast
    from policytool.formats.rewriting.base import Counted, Writer


def measure(path: Path, casts: Sequence[Cast]) -> Counted:
    """Return nothing: there are no tensors to cast."""
    if casts:
        raise WriteError(
            "source-changed", f"{path.name} stores no tensors, and the plan casts some; plan again"
        )
    return {}


WRITER: Final[Writer] = texts.writer("json", PART, measure)
