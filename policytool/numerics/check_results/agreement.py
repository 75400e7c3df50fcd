"""How often reference and candidate give a sample the same class."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Agreement:
    """What became of the largest value along the last axis of an output."""

    rows: int
    """How many there are; those in which the reference holds NaN are left out."""

    agreed: int
    """In how many of them both have it in one place, of several largest values the first."""

    @property
    def share(self) -> float | None:
        """The share of rows that agree; None where there are none."""
        return self.agreed / self.rows if self.rows else None
