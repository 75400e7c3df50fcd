"""Architecture JSON, rewritten: its text is edited, nothing else is in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from policytool.formats import writers as texts
from policytool.formats.architecture.read import PART

if TYPE_CHECKING:
    from policytool.formats.writers import Rewriter


def rewriter() -> Rewriter:
    """Return how models of this format are rewritten."""
    return texts.text_rewriter(PART)
