"""
How calls of a layer are numbered in a functional model's config.

Here every layer's first call has number 0, that of a nested model too.

In Keras 2 the first call of a nested model that has a graph has number 1: building the graph makes
a node of its own, which the config does not hold (``_should_skip_first_node`` in
keras/engine/functional.py). Keras 3 counts so in ``output_layers`` alone, and functional models
alone; Keras 3.0 writes that too and reads it wrongly, and of a layer that a nested model has too it
counts the call there as the first (``get_config`` and ``functional_from_config`` in
keras/src/models/functional.py; measured with 3.0, 3.3, 3.6 and 3.15).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from policytool.migration.convert.architecture import Role, references, replace_references, rewire
from policytool.model.tree import INPUT_CLASS

if TYPE_CHECKING:
    from policytool.migration.convert.architecture import Network, Unit
    from policytool.model.calls import Reference

_SHAPE = "batch_input_shape"


def from_keras2(network: Network) -> Network:
    """Return a network of Keras 2, or 1, whose references count each layer's calls from 0."""
    used = _used_calls(network)
    first = {
        unit.name: _first(used[unit.name], unit) for unit in network.units if unit.name in used
    }
    return rewire(network, lambda reference: _less(reference, first.get(reference.layer, 0)))


def from_keras3(network: Network) -> Network:
    """Return a network of Keras 3 whose outputs count each layer's calls from 0."""
    first = {unit.name: int(_is_functional(unit)) for unit in network.units}
    network = replace(
        network,
        outputs=replace_references(
            network.outputs, lambda reference: _less(reference, first.get(reference.layer, 0))
        ),
    )
    used = _used_calls(network)
    over = {
        unit.name: max(used[unit.name]) + 1 - max(len(unit.calls), 1)
        for unit in network.units
        if unit.name in used
    }
    return rewire(network, lambda reference: _less(reference, max(over.get(reference.layer, 0), 0)))


def _used_calls(network: Network) -> dict[str, set[int]]:
    """Return, by layer, the numbers of the calls that something takes a result of."""
    used: dict[str, set[int]] = defaultdict(set)
    every = (
        argument
        for unit in network.units
        for call in unit.calls
        for argument in (*call.args, *call.kwargs.values())
    )
    for argument in (*every, network.outputs):
        for reference in references(argument):
            used[reference.layer].add(reference.call)
    return used


def first_calls_keras2(network: Network) -> dict[str, int]:
    """Return the number that Keras 2 gives to each unit's first call."""
    return {unit.name: int(has_graph(unit)) for unit in network.units}


def first_outputs_keras3(network: Network) -> dict[str, int]:
    """
    Return the number that Keras 3.3 and later give to each unit's first call in ``output_layers``.
    """
    return {unit.name: int(_is_functional(unit)) for unit in network.units}


def _less(reference: Reference, first: int) -> Reference:
    return replace(reference, call=max(reference.call - first, 0))


def _first(numbers: set[int], unit: Unit) -> int:
    if unit.role is not Role.MODEL or 0 in numbers:
        return 0
    return 1 if max(numbers) >= len(unit.calls) else int(has_graph(unit))


def _is_functional(unit: Unit) -> bool:
    return unit.role is Role.MODEL and unit.network is not None and not unit.network.is_chain


def has_graph(unit: Unit) -> bool:
    """
    Return whether a nested model has a graph before it is called: a functional one, or a Sequential
    that knows its input's shape.
    """
    if unit.role is not Role.MODEL or unit.network is None:
        return False
    if not unit.network.is_chain:
        return True
    first = next(iter(unit.network.units), None)
    return first is not None and (
        first.class_name == INPUT_CLASS or first.config.get(_SHAPE) is not None or has_graph(first)
    )
