"""
What a conversion gathers on its way: what it changed, why it cannot be done, what is to be known.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from policytool.migration.plan import ConversionChange, Note, NoteSeverity, Refusal

if TYPE_CHECKING:
    from policytool.migration.convert.architecture import Unit
    from policytool.support.text.jsontext import Json


@dataclass
class Log:
    """Filled while a model is converted; what is said twice is kept once."""

    changes: dict[ConversionChange, None] = field(default_factory=dict)
    refusals: dict[Refusal, None] = field(default_factory=dict)
    notes: dict[Note, None] = field(default_factory=dict)
    refused_paths: set[str | None] = field(default_factory=set)
    """The layers that refusals name; None for the file."""

    def change(self, what: str, unit: Unit | None, text: str) -> None:
        """
        Tell of something that is written otherwise; ``what`` is stable and machine-readable, such
        as ``key-dropped``.
        """
        self.changes[
            ConversionChange(code=what, path=unit.path if unit is not None else None, text=text)
        ] = None

    def refuse(self, code: str, unit: Unit | None, message: str) -> None:
        """Tell why the file cannot be converted: the layer, the key, and what to do."""
        path = unit.path if unit is not None else None
        self.refusals[Refusal(code=code, path=path, message=message)] = None
        self.refused_paths.add(path)

    def is_refused(self, unit: Unit) -> bool:
        """
        Return whether a refusal names the unit: what else speaks against it mostly follows from
        that.
        """
        return unit.path in self.refused_paths

    def caution(self, code: str, unit: Unit | None, message: str) -> None:
        """Tell of something that is lost or may matter."""
        self.notes[
            Note(
                severity=NoteSeverity.WARNING,
                code=code,
                path=unit.path if unit is not None else None,
                message=message,
            )
        ] = None

    def note(self, code: str, unit: Unit | None, message: str) -> None:
        """Tell of something to know."""
        self.notes[
            Note(
                severity=NoteSeverity.NOTE,
                code=code,
                path=unit.path if unit is not None else None,
                message=message,
            )
        ] = None


def display_value(value: Json) -> str:
    """Return a JSON value for a sentence, shortened where it is long."""
    text = json.dumps(value, sort_keys=True)
    return text if len(text) <= 60 else f"{text[:57]}..."  # noqa: PLR2004  # a width for sentences
