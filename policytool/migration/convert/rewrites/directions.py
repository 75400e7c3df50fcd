"""Bidirectional layers, and the initial states of recurrent layers."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from policytool.migration.convert.architecture import (
    BACKWARD,
    Network,
    Unit,
    backward_twin,
    map_units,
    walk,
)
from policytool.migration.convert.masks.flow import has_masks
from policytool.migration.convert.rewrites._base import ConversionContext, rewrite
from policytool.migration.convert.tensor_facts import has_fixed_sizes
from policytool.model.calls import Reference
from policytool.model.tree import INPUT_CLASS
from policytool.releases.dtypes import HALVES
from policytool.releases.layer_classes import layer_facts
from policytool.releases.policy import Policy

_PREFIXES: Final = {"layer": "forward_", BACKWARD: "backward_"}


@rewrite(
    after=("calls", "policies"),  # expects states in the form of Keras 2, and a single policy
    applies=lambda context: context.crosses,
)
def directions(root: Unit, context: ConversionContext) -> Unit:
    """
    Converts the directions of Bidirectional layers and the initial states of recurrent layers in
    Keras 2.

    Keras 3 writes both layers with the names of the built layers, ``forward_lstm`` and
    ``backward_lstm``, and keeps the name of a backward layer in the config
    (``Bidirectional.__init__`` in keras/src/layers/rnn/bidirectional.py). Keras 2 adds the prefixes
    when it reads a layer (keras/layers/rnn/bidirectional.py), so its files store ``backward_lstm``
    as ``lstm``.

    If the config has no backward layer, Keras 2 creates one with the opposite direction. Keras 3
    creates one that goes backwards, and fails if the forward layer also does. Keras 3 may also
    reuse an earlier layer, because Python can assign an ``id`` twice (``get_shared_object`` in
    keras/src/saving/serialization_lib.py): in Keras 3.15, 1 of 40 loads of a model with six such
    layers failed, and none if the config had the backward layers.

    Keras 2 does not cast states to the compute dtype, and fails on float32 states; it unrolls only
    a known number of steps. Unrolling changes the results in one case: a layer that goes backwards
    and returns zeros for masked steps, as in a Bidirectional, uses the mask in the order before the
    steps were reversed (``rnn`` in keras/src/backend/tensorflow/rnn.py and
    tf_keras/src/backend.py).
    """
    if context.to_keras3:
        return map_units(
            root, lambda unit: _as_built(unit, context) if _is_bidirectional(unit) else unit
        )

    rolled = _unrolled_with_open_length(root)
    if has_masks(root):
        _judge_unrolled(root, rolled, context)

    def change(unit: Unit) -> Unit:
        if unit.network is not None and not unit.network.is_chain:
            _judge(unit.network, context)
        if _is_bidirectional(unit):
            return _name_directions(unit, context)
        return _roll_up(unit, context) if unit.path in rolled else unit

    return map_units(root, change)


def _unrolled_with_open_length(root: Unit) -> frozenset[str]:
    """
    Return the paths of layers that unroll their steps and may be built for any number of steps.
    Archives of Keras 3 contain the build shape of a layer; HDF5 and converted models do not.
    """
    is_open = not has_fixed_sizes(root)
    return frozenset(unit.path for unit in walk(root) if _unrolls_any(unit, is_open=is_open))


def _unrolls_any(unit: Unit, *, is_open: bool) -> bool:
    if (
        not layer_facts(unit.class_name).takes_states
        or unit.custom
        or unit.config.get("unroll") is not True
    ):
        return False
    shape = (unit.build or {}).get("input_shape")
    return shape[1] is None if isinstance(shape, list) and len(shape) > 1 else is_open


def _judge_unrolled(root: Unit, rolled: frozenset[str], context: ConversionContext) -> None:
    """Refuse layers whose results with masks change if they are not unrolled."""
    for unit in walk(root):
        keys = _PREFIXES if _is_bidirectional(unit) else ()
        for inner in (unit.config.get(key) for key in keys):
            if (
                isinstance(inner, Unit)
                and inner.path in rolled
                and inner.config.get("go_backwards") is True
                and inner.config.get("return_sequences") is True
            ):
                context.log.refuse(
                    "argument",
                    inner,
                    f"{inner.path} ({inner.class_name}) runs backwards and is unrolled, so it "
                    f"reads masks in the wrong order, but {context.target.name} cannot unroll "
                    "an unknown number of steps; set a fixed number of steps, or unroll=False",
                )


def _roll_up(unit: Unit, context: ConversionContext) -> Unit:
    context.log.change(
        "unroll",
        unit,
        "unrolling is disabled because Keras 2 supports it only for a known number of steps",
    )
    return unit.with_config(unroll=False)


def _is_bidirectional(unit: Unit) -> bool:
    return unit.class_name == "Bidirectional" and not unit.custom


def _as_built(unit: Unit, context: ConversionContext) -> Unit:
    """
    Return a Bidirectional of Keras 2 with its backward layer, named as by Keras 2.
    """
    forward, inner = unit.config.get("layer"), unit.config.get(BACKWARD)
    if not isinstance(inner, Unit):
        inner = _backward_layer(unit, forward, context) if isinstance(forward, Unit) else None
    if inner is not None:
        return unit.with_config(
            backward_layer=replace(inner, name=_PREFIXES[BACKWARD] + inner.name)
        )
    if isinstance(forward, Unit) and forward.config.get("go_backwards") is True:
        context.log.refuse(
            "argument",
            unit,
            f"{unit.path} (Bidirectional) has a forward layer that runs backwards but no backward "
            f"layer, which {context.target.name} does not support",
        )
    return unit


def _backward_layer(unit: Unit, forward: Unit, context: ConversionContext) -> Unit | None:
    """
    Return the backward layer that Keras 2 creates; None if the file has no variables of the layer.
    """
    twin = backward_twin(unit, forward, context.loaded)
    if twin is None:
        return None
    backwards = forward.config.get("go_backwards") is True
    if backwards:
        context.log.change(
            "backward-layer",
            unit,
            "a backward layer that runs forwards is added because Keras 2 creates one",
        )
    return twin.with_config(go_backwards=not backwards)


def _name_directions(unit: Unit, context: ConversionContext) -> Unit:
    """
    Return a Bidirectional whose layers do not have the prefixes that Keras 2 adds to their names.
    """
    renamed = {
        key: replace(inner, name=inner.name.removeprefix(prefix))
        for key, prefix in _PREFIXES.items()
        if isinstance(inner := unit.config.get(key), Unit) and inner.name.startswith(prefix)
    }
    if renamed:
        context.log.change(
            "renamed",
            unit,
            "the prefixes forward_ and backward_ are removed from the names of its layers "
            "because Keras 2 adds them again",
        )
    return unit.with_config(**renamed)


def _judge(network: Network, context: ConversionContext) -> None:
    """Refuse calls of 16-bit recurrent layers with states that are inputs of the model."""
    inputs = {
        unit.name
        for unit in network.units
        if unit.class_name == INPUT_CLASS and unit.config.get("dtype") == "float32"
    }
    for unit in network.units:
        policy = unit.config.get("dtype")
        if (
            not layer_facts(unit.class_name).takes_states
            or not isinstance(policy, Policy)
            or policy.compute_dtype not in HALVES
        ):
            continue
        states = [
            state
            for call in unit.calls
            if call.args and isinstance(call.args[0], list)
            for state in call.args[0][1:]
        ]
        if any(isinstance(state, Reference) and state.layer in inputs for state in states):
            context.log.refuse(
                "call",
                unit,
                f"{unit.path} ({unit.class_name}) starts from float32 states, which Keras 2 "
                f"does not cast to {policy.compute_dtype}, so the call fails",
            )
