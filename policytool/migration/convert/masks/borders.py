"""Tensors that enter nested models: which input each becomes, and whether it is cast there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.migration.convert.architecture import Network, Role
from policytool.model.calls import Reference, tensors
from policytool.model.tree import INPUT_CLASS
from policytool.releases.policy import Policy

if TYPE_CHECKING:
    from policytool.migration.convert.architecture import Unit

BEFORE_CHAIN: Final = Reference(layer="")
"""What the first layer of a chain is called on; no layer has this name."""


def entries(network: Network) -> list[Reference]:
    """Return the tensors of a network that stand for those that it is called on."""
    return [BEFORE_CHAIN] if network.is_chain else list(tensors(network.inputs))


def entry_dtypes(network: Network) -> list[str | None]:
    """Return the dtypes that a network casts what it is called on to; None for unknown ones."""
    units = network.units[:1] if network.is_chain else network.units
    found = {unit.name: _input_dtype(unit) for unit in units}
    if network.is_chain:
        return list(found.values())
    return [found.get(one.layer) for one in tensors(network.inputs)]


def tensor_dtype(network: Network, reference: Reference) -> str | None:
    """Return the dtype of a tensor that a layer of a network gives; None if it is not known."""
    if network.is_chain and reference == BEFORE_CHAIN:
        return entry_dtypes(network)[0] if network.units else None
    unit = network.by_name.get(reference.layer)
    if unit is None:
        return None
    if unit.class_name == INPUT_CLASS:
        return _input_dtype(unit)
    inner = unit.network
    if inner is None:
        return None if unit.role is Role.OPERATION else compute_dtype(unit)
    if inner.is_chain:
        last = inner.units[-1:]
        return tensor_dtype(inner, Reference(layer=last[0].name)) if last else None
    outputs = list(tensors(inner.outputs))
    return (
        tensor_dtype(inner, outputs[reference.output]) if reference.output < len(outputs) else None
    )


def compute_dtype(unit: Unit) -> str | None:
    """Return what a layer computes in; None where its file does not say it."""
    policy = unit.config.get("dtype")
    return policy.compute_dtype if isinstance(policy, Policy) else None


def _input_dtype(unit: Unit) -> str | None:
    dtype = unit.config.get("dtype")
    return dtype if unit.class_name == INPUT_CLASS and isinstance(dtype, str) else None
