"""Architecture JSON, rewritten: its text is edited, nothing else is in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.formats.architecture import PART
from policytool.writers import _texts
from policytool.writers._base import WriteError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from policytool.plan import Cast
    from policytool.writers._base import Counted, Writer


def measure(path: Path, casts: Sequence[Cast]) -> Counted:
    """Return nothing: there are no tensors to cast."""
    if casts:
        raise WriteError(
            "source-changed", f"{path.name} stores no tensors, and the plan casts some; plan again"
        )
    return {}


WRITER: Final[Writer] = _texts.writer("json", PART, measure)
