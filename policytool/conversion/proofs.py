"""How sure it is that a converted layer computes what it did."""

from __future__ import annotations

from typing import TYPE_CHECKING

from policytool.conversion.architecture import Role, walk
from policytool.plan import Proof

if TYPE_CHECKING:
    from policytool.conversion.architecture import Unit
    from policytool.conversion.rewrites import Situation


def proofs(root: Unit, situation: Situation) -> tuple[tuple[str, Proof], ...]:
    """Return how sure the conversion of each class is that a model has."""
    return tuple(sorted({(unit.class_name, Proof.BEST_EFFORT) for unit in walk(root) if unit.role is not Role.MODEL and situation.crosses}))
