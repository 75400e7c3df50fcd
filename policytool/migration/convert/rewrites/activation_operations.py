"""Activations of Keras 3 as operations after the layer."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from policytool.migration.convert.architecture import Network, Role, Unit, function_name
from policytool.migration.convert.rewrites._base import ConversionContext, rewrite
from policytool.migration.convert.rewrites._missing_activations import (
    HARD,
    SPLIT,
    has_masks,
    missing_activation,
)
from policytool.migration.convert.rewrites._splicing import Split, splice
from policytool.migration.convert.rewrites.operations import to_keras2
from policytool.migration.convert.traversal import map_units
from policytool.model.calls import Call, Reference
from policytool.model.tree import INPUT_CLASS
from policytool.releases import keras_operations

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_OPERATIONS: Final = {
    "celu": "Celu",
    "hard_shrink": "HardShrink",
    "hard_tanh": "HardTanh",
    "log_sigmoid": "LogSigmoid",
    "soft_shrink": "SoftShrink",
    "sparse_plus": "SparsePlus",
    "sparse_sigmoid": "SparseSigmoid",
    "squareplus": "Squareplus",
    "tanh_shrink": "TanhShrink",
}
"""With the arguments that the operation has anyway; each works on each element by itself."""

_JOINED: Final = frozenset({"hard_silu", "hard_swish"})
_OF_CHAINS: Final = ("dtype", "build_input_shape")
"""Keys of a Sequential's config that a functional model's has not."""


@rewrite(
    applies=lambda situation: situation.from_keras3 and not situation.to_keras3,
)
def activation_operations(root: Unit, situation: ConversionContext) -> Unit:
    """
    Replaces activations that exist only in Keras 3 with operations after the layer, which later
    steps convert to TensorFlow functions.

    Where a Sequential holds such a layer, or one whose activation becomes layers that join again
    (``hard_silu``, and ``hard_sigmoid`` behind a mask), it becomes a functional model: each layer
    of a Sequential takes one tensor.
    """
    masks = has_masks(root)

    def joins(unit: Unit) -> bool:
        if masks:  # op layers and what multiplies lose them, a sum does not
            return unit.class_name in SPLIT and function_name(unit.config.get("activation")) == HARD
        return missing_activation(unit, situation) in {*_OPERATIONS, *_JOINED}

    changed = map_units(root, lambda unit: _as_graph(unit, joins, situation))
    return changed if masks else splice(changed, lambda unit: _split(unit, situation))


def _split(unit: Unit, situation: ConversionContext) -> Split | None:
    name = missing_activation(unit, situation)
    if name not in _OPERATIONS or to_keras2.is_before_lambdas(situation.target.loader):
        return None
    situation.log.change(
        "activation-layer",
        unit,
        f"activation {name} becomes an operation because {situation.target.name} does not have it",
    )
    operation = Unit(
        class_name=_OPERATIONS[name],
        name=f"{unit.name}_{name}",
        config={},
        role=Role.OPERATION,
        module=f"{keras_operations.MODULES}nn",
        path=unit.path,
    )
    return Split(unit=unit.with_config(activation="linear"), after=(operation,))


def _as_graph(unit: Unit, joins: Callable[[Unit], bool], situation: ConversionContext) -> Unit:
    """
    Return a Sequential as a functional model, where one of its layers has to be split so and it
    says what it takes.
    """
    network = unit.network
    if (
        network is None
        or not network.is_chain
        or unit.custom
        or not network.units
        or network.units[0].class_name != INPUT_CLASS
        or not any(map(joins, _with_held(network)))
    ):
        return unit
    situation.log.change(
        "functional",
        unit,
        "the Sequential model becomes a functional model because an activation becomes several "
        "connected layers",
    )
    calls = [(), *((Call(args=(Reference(layer=one.name),)),) for one in network.units[:-1])]
    units = tuple(
        replace(one, calls=called) for one, called in zip(network.units, calls, strict=True)
    )
    graph = Network(
        units=units,
        inputs=Reference(layer=network.units[0].name),
        outputs=Reference(layer=network.units[-1].name),
    )
    return replace(unit.without(*_OF_CHAINS), class_name="Functional", network=graph)


def _with_held(network: Network) -> Iterator[Unit]:
    """Yield the layers of a network, of a TimeDistributed the one that it holds."""
    for unit in network.units:
        inner = unit
        while inner.class_name == "TimeDistributed" and isinstance(
            held := inner.config.get("layer"), Unit
        ):
            inner = held
        yield inner
