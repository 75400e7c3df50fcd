"""Architecture JSON, rewritten: its text is edited, nothing else is in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from policytool.formats.architecture.read import PART
from policytool.formats.rewriting import texts

if TYPE_CHECKING:
    from policytool.formats.rewriting.base import Rewriter


def rewriter() -> Rewriter:
    """Return how models of this format are rewritten."""
    return texts.text_rewriter(PART)
