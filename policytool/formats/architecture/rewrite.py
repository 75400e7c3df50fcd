"""Architecture JSON, rewritten: its text is edited, nothing else is in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.formats.architecture.read import PART
from policytool.formats.rewriting import texts

if TYPE_CHECKING:
    from policytool.formats.rewriting.base import Rewriter

REWRITER: Final[Rewriter] = texts.text_rewriter(PART)
