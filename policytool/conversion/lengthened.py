"""
What a release of Keras 3 puts between layers when it builds a functional model, and no config holds: it makes ways in the graph longer.

The order of a loaded model's layers goes by the longest way to an output (:mod:`policytool.conversion.ordering`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool import dtypes as names_of_dtypes
from policytool.conversion.architecture import Role, references
from policytool.conversion.rewrites.calls import TAKING_MASKS
from policytool.conversion.rewrites.operations import CASTING, Dtypes, of_network
from policytool.policy import Policy

if TYPE_CHECKING:
    from policytool.conversion.architecture import Network, Reference, Unit
    from policytool.conversion.rewrites import Situation

_MASKING: Final = "Masking"


class Added:
    """The operations that a release of Keras 3 puts between a layer and its inputs when it builds a model."""

    def __init__(self, network: Network, situation: Situation) -> None:
        self._casts: Dtypes | None = of_network(network) if situation.target.loader == CASTING else None
        self._masked = _masked(network) if situation.to_keras3 and not situation.from_keras3 else frozenset()

    def between(self, unit: Unit, reference: Reference) -> int:
        """Return how much longer the way is from a call to one of its inputs: by a cast, or by the two operations that make a mask of it."""
        policy = unit.config.get("dtype")
        given = self._casts.of(reference) if self._casts is not None else None
        is_cast = given in names_of_dtypes.FLOATS and unit.role is Role.LAYER and isinstance(policy, Policy) and policy.compute_dtype != given
        return int(is_cast) + int(unit.name in self._masked)


def _masked(network: Network) -> frozenset[str]:
    """Return the names of the Masking layers whose mask is taken right behind them."""
    makers = {unit.name for unit in network.units if unit.class_name == _MASKING}
    takers = (unit for unit in network.units if unit.class_name in TAKING_MASKS) if makers else ()
    return frozenset(reference.layer for unit in takers for call in unit.calls for item in call.args for reference in references(item)) & makers
