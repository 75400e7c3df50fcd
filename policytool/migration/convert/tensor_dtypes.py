"""
The dtype of each tensor of a network, as far as its layers, their policies and its operations tell:
what conversions of operations, the ways of masks and the order of layers go by.

Each network is read once, from its inputs to its outputs, and a nested model gives what its own
network gives, however often it is called.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from policytool.migration.convert.architecture import (
    Role,
    call_graph,
    entries,
    exits,
    once_per_network,
)
from policytool.migration.result_dtypes import CalledClass, result_dtypes
from policytool.model.calls import Constant, Reference
from policytool.model.flow import BEFORE_CHAIN, follow
from policytool.model.tree import INPUT_CLASS
from policytool.releases import dtypes, keras_operations
from policytool.releases.policy import Policy, PolicyMap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from policytool.migration.convert.architecture import Network, Unit
    from policytool.model.calls import Argument, Call
    from policytool.model.flow import Node, TensorValues

_FLOATX: Final = "float32"


@dataclass(frozen=True, slots=True)
class TensorDtypes:
    """The dtypes of the tensors of one network."""

    _values: TensorValues[str | None]

    def of(self, argument: Argument) -> str | None:
        """Return the dtype of a tensor or a constant; None where it is not known."""
        if isinstance(argument, Reference):
            return self._values.of(argument)
        return argument.dtype if isinstance(argument, Constant) else None


def of_network(network: Network, measured_in: str | None = None) -> TensorDtypes:
    """
    Return the dtypes of a network's tensors.

    :param measured_in: the release of Keras 2 that computes it, some layers of which give another
        dtype than they compute in
    """
    return _of_network(network, measured_in)


@once_per_network
def _of_network(network: Network, measured_in: str | None) -> TensorDtypes:

    def transfer(
        node: Node, call: Call | None, values: TensorValues[str | None]
    ) -> Sequence[str | None]:
        first = next(iter(network.units), None)  # a chain may have no layers
        unit = first if node[0] == BEFORE_CHAIN.layer else network.unit(node[0])
        if unit is not None and unit.class_name == INPUT_CLASS:
            return (_of_input(unit),)
        if unit is None or call is None:
            return (None,)
        return _of_call(unit, call, TensorDtypes(values), measured_in)

    return TensorDtypes(follow(call_graph(network), transfer, walk="dtypes"))


def entry_dtypes(network: Network) -> list[str | None]:
    """Return the dtypes that a network casts what it is called on to; None for unknown ones."""
    known = of_network(network)
    return [known.of(entry) for entry in entries(network)]


def compute_dtype(unit: Unit) -> str | None:
    """Return what a layer computes in; None where its file does not say it."""
    policy = unit.config.get("dtype")
    if isinstance(policy, PolicyMap):
        policy = policy.default
    return policy.compute_dtype if isinstance(policy, Policy) else None


def is_cast(unit: Unit, dtype: str | None) -> bool:
    """Return whether a layer casts a tensor of a dtype that it is called on: floats alone are."""
    after = compute_dtype(unit)
    return dtype in dtypes.FLOATS and after not in (None, dtype)


def _of_input(unit: Unit) -> str | None:
    """Return the dtype of the tensor that an input layer stands for."""
    dtype = unit.config.get("dtype")
    return dtype if isinstance(dtype, str) else compute_dtype(unit) or _FLOATX


def _of_call(
    unit: Unit, call: Call, known: TensorDtypes, measured_in: str | None
) -> Sequence[str | None]:
    """Return the dtypes of what one call returns; the last one is that of all further outputs."""
    if unit.role is Role.MODEL and unit.network is not None:
        inner = of_network(unit.network, measured_in)
        return (*map(inner.of, exits(unit.network)), None)
    return result_dtypes(called_class(unit, measured_in), call, known.of)


def called_class(unit: Unit, measured_in: str | None = None) -> CalledClass:
    """Return a unit as the rules of results take it; see :func:`of_network`."""
    policy = unit.config.get("dtype")
    follows = isinstance(policy, Policy) and policy.compute_dtype is None
    return CalledClass(
        class_name=unit.class_name,
        config=unit.config,
        module=module_of(unit) if unit.role is Role.OPERATION else None,
        custom=unit.custom,
        compute_dtype=None if follows else compute_dtype(unit) or _FLOATX,
        variable_dtype=policy.variable_dtype if isinstance(policy, Policy) else None,
        policy=policy.name if isinstance(policy, Policy) else None,
        measured_in=measured_in,
    )


def module_of(unit: Unit) -> str:
    """
    Return the last part of an operation's module; HDF5 files do not hold it, and each class stands
    in one module.
    """
    if unit.module is not None:
        return unit.module.removeprefix(keras_operations.MODULES)
    return keras_operations.module_of(unit.class_name) or ""
