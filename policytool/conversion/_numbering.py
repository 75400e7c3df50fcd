"""
How calls of a layer are numbered in a functional model's config.

The first call of a layer has number 0. Of a nested model it has number 1: building a functional model makes a node of its own, which the config does not
hold. Keras 2 counts Sequential models with an input layer among them (``_should_skip_first_node`` in keras/engine/functional.py), Keras 3 functional
models alone (``get_config`` in keras/src/models/functional.py). Here every first call has number 0.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from policytool.conversion.architecture import Reference, Role, references, rewired
from policytool.tree import INPUT_CLASS

if TYPE_CHECKING:
    from policytool.conversion.architecture import Network, Unit


def from_zero(network: Network) -> Network:
    """Return a network whose references count each layer's calls from 0."""
    used: dict[str, set[int]] = defaultdict(set)
    for unit in network.units:
        for call in unit.calls:
            for argument in (*call.args, *call.kwargs.values()):
                for reference in references(argument):
                    used[reference.layer].add(reference.call)
    for reference in references(network.outputs):
        used[reference.layer].add(reference.call)
    calls = {unit.name: (len(unit.calls), unit) for unit in network.units}
    first = {name: _first(numbers, *calls[name]) for name, numbers in used.items() if name in calls}

    def renumbered(reference: Reference) -> Reference:
        return replace(reference, call=max(reference.call - first.get(reference.layer, 0), 0))

    return rewired(network, renumbered)


def first_call(unit: Unit, *, keras3: bool) -> int:
    """Return the number that a library gives to a unit's first call in a config that it writes or reads."""
    if unit.role is not Role.MODEL or unit.network is None:
        return 0
    if not unit.network.is_chain:
        return 1
    starts_with_input = bool(unit.network.units) and unit.network.units[0].class_name == INPUT_CLASS
    return 1 if starts_with_input and not keras3 else 0


def _first(numbers: set[int], calls: int, unit: Unit) -> int:
    if unit.role is not Role.MODEL or 0 in numbers:
        return 0
    return 1 if max(numbers) >= calls else first_call(unit, keras3=unit.network is not None and not unit.network.is_chain)
