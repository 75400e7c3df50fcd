"""
Masks of recurrent layers that are given states: Keras 2 heeds the mask that travels with the sequences, Keras 3 does not.

Keras 3 looks up masks of the single tensor of a call, and of several only for arguments such as ``query_mask``, which recurrent layers have none of
(``Layer.__call__`` in keras/src/layers/layer.py, 3.0 to 3.15). In Keras 2 the first mask of the list is taken (``RNN.call`` in
keras/layers/rnn/base_rnn.py). So Keras 3 is told the mask as an argument, which it heeds; Keras 2 cannot be told to forget one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from policytool.conversion.architecture import Call, Network, Reference, Role, Unit, references, walk
from policytool.conversion.rewrites._base import Rewrite, Situation
from policytool.conversion.rewrites.calls import RECURRENT
from policytool.loaders.operations import MODULES
from policytool.policy import Policy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.conversion.architecture import Argument

_PASSING: Final = frozenset(
    {
        *("Activation", "ActivityRegularization", "AlphaDropout", "BatchNormalization", "Dense", "Dropout", "ELU", "GaussianDropout", "GaussianNoise"),
        *("LayerNormalization", "LeakyReLU", "PReLU", "ReLU", "Softmax", "SpatialDropout1D"),
    }
)
"""Layers of one input that hand its mask on, in both libraries."""

_DROPPING: Final = frozenset(
    {
        *("Conv1D", "Conv2D", "Conv3D", "SeparableConv1D", "SeparableConv2D", "MaxPooling1D", "AveragePooling1D", "GlobalMaxPooling1D", "Reshape"),
        *("GlobalAveragePooling1D", "RepeatVector", "Flatten", "Permute", "Lambda", "TFOpLambda", "SlicingOpLambda", "TensorFlowOpLayer"),
    }
)
"""Layers behind which there is no mask, in both libraries."""

_INPUT: Final = "InputLayer"
_MASKING: Final = "Masking"
_FULL: Final = frozenset({"float32", "float64"})


def _apply(root: Unit, situation: Situation) -> Unit:
    return _changed(root, situation, masks_enter=False)


def _changed(unit: Unit, situation: Situation, *, masks_enter: bool) -> Unit:
    """Return a model with the masks of its recurrent layers told; ``masks_enter`` is whether one may come with its inputs."""
    network = unit.network
    if network is None:
        return unit
    makers = {one.name for one in network.units if any(_makes(inner) for inner in walk(one))}
    inner = tuple(_changed(one, situation, masks_enter=masks_enter or bool(makers - {one.name})) for one in network.units)
    network = replace(network, units=inner)
    return replace(unit, network=network if network.is_chain else _told(network, situation, masks_enter=masks_enter))


def _told(network: Network, situation: Situation, *, masks_enter: bool) -> Network:
    graph = _Graph(network, masks_enter=masks_enter)
    units: list[Unit] = []
    for unit in network.units:
        calls = []
        for call in unit.calls:
            sequences = _sequences(unit, call)
            kwargs = {}
            if sequences is not None and graph.may_be_masked(sequences):
                if situation.to_keras3:
                    kwargs = graph.mask(sequences, unit, units)
                if not kwargs:
                    situation.log.refuse("mask", unit, _refusal(unit, to_keras3=situation.to_keras3))
                else:
                    situation.log.change("mask", unit, "the mask of its sequences becomes an argument: Keras 3 heeds no other where states are given")
            calls.append(replace(call, kwargs={**call.kwargs, **kwargs}))
        units.append(replace(unit, calls=tuple(calls)))
    return replace(network, units=tuple(units))


def _refusal(unit: Unit, *, to_keras3: bool) -> str:
    what = f"{unit.path} ({unit.class_name}) is given states, and its sequences may have a mask"
    if to_keras3:
        return f"{what}, which Keras 3 does not heed then, and which is made of several layers: give it as the argument mask in the source"
    return f"{what}, which Keras 3 does not heed then, and Keras 2 does: give it as the argument mask in the source, or make no mask (mask_zero=False)"


def _sequences(unit: Unit, call: Call) -> Reference | None:
    """Return the first input of a recurrent layer that is given states and no mask; None for any other call."""
    if unit.class_name not in RECURRENT or unit.custom or not call.args or call.kwargs.get("mask") is not None:
        return None
    first, *others = call.args[0] if isinstance(call.args[0], list | tuple) else (call.args[0],)
    states = [*others, *call.args[1:2], call.kwargs.get("initial_state")]
    return first if isinstance(first, Reference) and any(True for one in states for _ in references(one)) else None


def _makes(unit: Unit) -> bool:
    """Return whether a layer makes a mask."""
    return not unit.custom and (unit.class_name == _MASKING or (unit.class_name == "Embedding" and unit.config.get("mask_zero") is True))


def _is_dropped(unit: Unit, reference: Reference) -> bool:
    """Return whether a layer's output has no mask, whatever its inputs have."""
    if unit.role is Role.OPERATION or unit.class_name in _DROPPING:
        return True
    if unit.class_name not in RECURRENT or unit.custom:
        return False
    inner = unit.config.get("layer")
    config = inner.config if isinstance(inner, Unit) else unit.config
    return reference.output > 0 or config.get("return_sequences") is not True


class _Graph:
    """Where the masks of a functional network come from."""

    def __init__(self, network: Network, *, masks_enter: bool) -> None:
        self._units = {unit.name: unit for unit in network.units}
        self._names = set(self._units)
        self._masks_enter = masks_enter

    def may_be_masked(self, reference: Reference) -> bool:
        """Return whether a mask may travel with a tensor."""
        pending, seen = [reference], set()
        while pending:
            one = pending.pop()
            unit = self._units.get(one.layer)
            if one in seen or unit is None or _is_dropped(unit, one):
                continue
            seen.add(one)
            if (unit.class_name == _INPUT and self._masks_enter) or _makes(unit) or (unit.network is not None and any(map(_makes, walk(unit)))):
                return True
            pending += _inputs(unit, one)
        return False

    def mask(self, reference: Reference, taker: Unit, units: list[Unit]) -> dict[str, Argument]:
        """Return the argument that says a tensor's mask, with the operations that make it put into ``units``; nothing where it is not that of one layer."""
        unit = self._units[reference.layer]
        while not _makes(unit):
            inputs = list(_inputs(unit, reference))
            if (unit.class_name not in _PASSING and unit.class_name not in RECURRENT) or unit.custom or not inputs:
                return {}
            reference = inputs[0]
            unit = self._units[reference.layer]
        source, policy = next(_inputs(unit, reference), None), unit.config.get("dtype")
        if source is None or (unit.class_name == _MASKING and not (isinstance(policy, Policy) and policy.compute_dtype in _FULL)):
            return {}
        compared = unit.config.get("mask_value", 0.0) if unit.class_name == _MASKING else 0
        made = self._operation("NotEqual", (source, compared), taker)  # type: ignore[arg-type]  # a number
        units.append(made)
        if unit.class_name == _MASKING:
            made = self._operation("Any", (Reference(layer=made.name),), taker, axis=-1, keepdims=False)
            units.append(made)
        return {"mask": Reference(layer=made.name)}

    def _operation(self, class_name: str, args: tuple[Argument, ...], taker: Unit, **config: bool | int) -> Unit:
        name = f"{taker.name}_{class_name.lower()}"
        while name in self._names:
            name = f"{name}_"
        self._names.add(name)
        module = f"{MODULES}numpy"
        return Unit(class_name=class_name, name=name, config=dict(config), role=Role.OPERATION, module=module, path=taker.path, calls=(Call(args=args),))


def _inputs(unit: Unit, reference: Reference) -> Iterator[Reference]:
    """Yield the tensors that one call of a layer takes."""
    if reference.call < len(unit.calls):
        call = unit.calls[reference.call]
        for item in (*call.args, *call.kwargs.values()):
            yield from references(item)


REWRITE: Final = Rewrite(name="states", applies=lambda situation: situation.crosses, apply=_apply)
