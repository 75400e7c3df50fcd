"""Architecture YAML, rewritten: its text is edited, nothing else is in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool import yamledit
from policytool.formats.yaml_architecture import PART
from policytool.writers import _texts
from policytool.writers.architecture import measure

if TYPE_CHECKING:
    from policytool.writers._base import Writer

WRITER: Final[Writer] = _texts.writer("yaml", PART, measure, yamledit.apply)
