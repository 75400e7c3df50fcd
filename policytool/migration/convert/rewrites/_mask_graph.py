"""
Where masks travel in a functional network: which layers make them, hand them on, and end them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from policytool.migration.convert.architecture import Call, Network, Reference, Role, Unit
from policytool.migration.convert.rewrites.calls import RECURRENT
from policytool.migration.convert.traversal import references, walk
from policytool.releases.keras_operations import MODULES
from policytool.releases.policy import Policy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from policytool.migration.convert.architecture import Argument

_PASSING: Final = frozenset(
    {
        *(
            "Activation",
            "ActivityRegularization",
            "AlphaDropout",
            "BatchNormalization",
            "Dense",
            "Dropout",
            "ELU",
            "GaussianDropout",
            "GaussianNoise",
        ),
        *("LayerNormalization", "LeakyReLU", "PReLU", "ReLU", "Softmax", "SpatialDropout1D"),
    }
)
"""Layers of one input that hand its mask on, in both libraries."""

_DROPPING: Final = frozenset(
    {
        *(
            "Conv1D",
            "Conv2D",
            "Conv3D",
            "SeparableConv1D",
            "SeparableConv2D",
            "MaxPooling1D",
            "AveragePooling1D",
            "GlobalMaxPooling1D",
            "Reshape",
        ),
        *(
            "GlobalAveragePooling1D",
            "RepeatVector",
            "Flatten",
            "Permute",
            "Lambda",
            "TFOpLambda",
            "SlicingOpLambda",
            "TensorFlowOpLayer",
        ),
    }
)
"""Layers behind which there is no mask, in both libraries."""

_INPUT: Final = "InputLayer"
_MASKING: Final = "Masking"
_FULL: Final = frozenset({"float32", "float64"})


def each_network(
    unit: Unit, change: Callable[[Network, MaskGraph], Network], *, masks_enter: bool = False
) -> Unit:
    """
    Return a model with each functional network of it changed; ``masks_enter`` is whether a mask may
    come with the model's inputs.
    """
    network = unit.network
    if network is None:
        return unit
    makers = {one.name for one in network.units if any(map(_makes, walk(one)))}
    units = tuple(
        each_network(one, change, masks_enter=masks_enter or bool(makers - {one.name}))
        for one in network.units
    )
    network = replace(network, units=units)
    return replace(
        unit,
        network=network
        if network.is_chain
        else change(network, MaskGraph(network, masks_enter=masks_enter)),
    )


def _makes(unit: Unit) -> bool:
    """Return whether a layer makes a mask."""
    return not unit.custom and (
        unit.class_name == _MASKING
        or (unit.class_name == "Embedding" and unit.config.get("mask_zero") is True)
    )


def _is_dropped(unit: Unit, reference: Reference) -> bool:
    """Return whether a layer's output has no mask, whatever its inputs have."""
    if unit.role is Role.OPERATION or unit.class_name in _DROPPING:
        return True
    if unit.class_name not in RECURRENT or unit.custom:
        return False
    inner = unit.config.get("layer")
    config = inner.config if isinstance(inner, Unit) else unit.config
    return reference.output > 0 or config.get("return_sequences") is not True


class MaskGraph:
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
            if (
                (unit.class_name == _INPUT and self._masks_enter)
                or _makes(unit)
                or (unit.network is not None and any(map(_makes, walk(unit))))
            ):
                return True
            pending += _inputs(unit, one)
        return False

    def mask(self, reference: Reference, taker: Unit, units: list[Unit]) -> dict[str, Argument]:
        """
        Return the argument that says a tensor's mask, with the operations that make it put into
        ``units``; nothing where it is not that of one layer.
        """
        unit = self._units[reference.layer]
        while not _makes(unit):
            inputs = list(_inputs(unit, reference))
            if (
                (unit.class_name not in _PASSING and unit.class_name not in RECURRENT)
                or unit.custom
                or not inputs
            ):
                return {}
            reference = inputs[0]
            unit = self._units[reference.layer]
        source, policy = next(_inputs(unit, reference), None), unit.config.get("dtype")
        if source is None or (
            unit.class_name == _MASKING
            and not (isinstance(policy, Policy) and policy.compute_dtype in _FULL)
        ):
            return {}
        compared = unit.config.get("mask_value", 0.0) if unit.class_name == _MASKING else 0
        made = self._operation("NotEqual", (source, compared), taker)  # type: ignore[arg-type]  # a number
        units.append(made)
        if unit.class_name == _MASKING:
            made = self._operation(
                "Any", (Reference(layer=made.name),), taker, axis=-1, keepdims=False
            )
            units.append(made)
        return {"mask": Reference(layer=made.name)}

    def _operation(
        self, class_name: str, args: tuple[Argument, ...], taker: Unit, **config: bool | int
    ) -> Unit:
        name = f"{taker.name}_{class_name.lower()}"
        while name in self._names:
            name = f"{name}_"
        self._names.add(name)
        module = f"{MODULES}numpy"
        return Unit(
            class_name=class_name,
            name=name,
            config=dict(config),
            role=Role.OPERATION,
            module=module,
            path=taker.path,
            calls=(Call(args=args),),
        )


def _inputs(unit: Unit, reference: Reference) -> Iterator[Reference]:
    """Yield the tensors that one call of a layer takes."""
    if reference.call < len(unit.calls):
        call = unit.calls[reference.call]
        for item in (*call.args, *call.kwargs.values()):
            yield from references(item)
