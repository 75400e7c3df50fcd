"""
The dtype of each tensor of a network, as far as its layers, their policies and its operations tell:
what conversions of operations, the ways of masks and the order of layers go by.

Each network is read once, from its inputs to its outputs, and a nested model gives what its own
network gives, however often it is called.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from policytool.migration.convert.architecture import Role, once_per_network
from policytool.migration.convert.operations import RESULTS
from policytool.migration.convert.operations.calls import module_of, named2, named3, row_of
from policytool.migration.convert.operations.rows import ParameterKind
from policytool.migration.convert.traversal import call_graph, entries, exits, references
from policytool.model.calls import Constant, Reference
from policytool.model.flow import BEFORE_CHAIN, follow
from policytool.model.tree import INPUT_CLASS
from policytool.releases import dtypes
from policytool.releases.layer_classes import layer_facts
from policytool.releases.policy import Policy, PolicyMap

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from policytool.migration.convert.architecture import Network, Unit
    from policytool.migration.convert.operations.rows import OperationRow
    from policytool.model.calls import Argument, Call
    from policytool.model.flow import Node, TensorValues

_UNSAID: Final = frozenset(
    {"TensorFlowOpLayer", "ClassMethod", "InstanceMethod", "InstanceProperty"}
)
"""Layers whose result has another dtype than their policy says."""

_AS_FIRST: Final = frozenset(
    {
        "math.squared_difference",
        "math.l2_normalize",
        "nn.l2_normalize",
        "norm",
        "compat.v1.norm",
        "math.add_n",
    }
)
"""Functions without a row, whose result has the dtype of their first argument."""

_HASHING: Final = frozenset({"HashedCrossing", "Hashing"})
_INDEXING: Final = "GetItem"
_WIDTH: Final = {"float16": 1, "bfloat16": 1, "float32": 2, "float64": 3}
_FLOATX: Final = "float32"


def promoted_dtype(operands: Iterable[str | None], scalars: Iterable[Argument] = ()) -> str | None:
    """
    Return the dtype that Keras 3 gives to what is made of tensors of these, and of plain numbers.

    :return: None where one of them is not known, or the rule for them is not known here
    """
    known = set(operands)
    if None in known or not known:
        return None
    names = {name for name in known if name is not None}
    floats = names & set(dtypes.FLOATS)
    if floats:
        widest = max(_WIDTH.get(name, 0) for name in floats)
        best = {name for name in floats if _WIDTH.get(name, 0) == widest}
        return best.pop() if len(best) == 1 else _FLOATX
    numbers = names - {"bool"} if len(names) > 1 else names
    if numbers == {"int32", "int64"}:
        numbers = {"int64"}
    if len(numbers) != 1:
        return None
    plain = tuple(scalars)
    if any(isinstance(value, float) for value in plain):
        return _FLOATX
    if numbers == {"bool"} and any(
        isinstance(value, int) and not isinstance(value, bool) for value in plain
    ):
        return "int32"
    return numbers.pop()


@dataclass(frozen=True, slots=True)
class TensorDtypes:
    """The dtypes of the tensors of one network."""

    _values: TensorValues[str | None]

    def of(self, argument: Argument) -> str | None:
        """Return the dtype of a tensor or a constant; None where it is not known."""
        if isinstance(argument, Reference):
            return self._values.of(argument)
        return argument.dtype if isinstance(argument, Constant) else None


@once_per_network
def of_network(network: Network) -> TensorDtypes:
    """Return the dtypes of a network's tensors."""

    def transfer(
        node: Node, call: Call | None, values: TensorValues[str | None]
    ) -> Sequence[str | None]:
        unit = network.units[0] if node[0] == BEFORE_CHAIN.layer else network.unit(node[0])
        if unit.class_name == INPUT_CLASS:
            return (_of_input(unit),)
        return _of_call(unit, call, TensorDtypes(values)) if call is not None else (None,)

    return TensorDtypes(follow(call_graph(network), transfer))


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


def _of_call(unit: Unit, call: Call, known: TensorDtypes) -> Sequence[str | None]:
    """Return the dtypes of what one call returns; the last one is that of all further outputs."""
    if unit.role is Role.MODEL and unit.network is not None:
        inner = of_network(unit.network)
        return (*map(inner.of, exits(unit.network)), None)
    row = row_of(unit)
    if row is not None:
        dtype = _of_row(row, unit, call, known)
        return (dtype,) if row.others is None else (*[dtype] * row.outputs, row.others)
    if unit.role is Role.OPERATION:
        return (_of_operation(unit, call, known),)
    return (_of_layer(unit, call, known),)


def _of_row(row: OperationRow, unit: Unit, call: Call, known: TensorDtypes) -> str | None:
    """Return the dtype of what a row's function or operation gives, on the unit's side."""
    arguments = named3(row, unit, call) if unit.role is Role.OPERATION else named2(row, call)
    if arguments is None:
        return None
    stated = (row.result3 or row.result) if unit.role is Role.OPERATION else row.result
    if stated == "@dtype":
        option = next(pair for pair in row.pairs if pair.kind is ParameterKind.DTYPE)
        dtype = arguments.get(option.tf)
        if isinstance(dtype, str):
            return dtype
        return _FLOATX if option.default is not None else of_tensors(row, arguments, known)
    return stated if stated is not None else of_tensors(row, arguments, known)


def _of_operation(unit: Unit, call: Call, known: TensorDtypes) -> str | None:
    """
    Return the dtype of what an operation without a row gives: what its config says, else that of
    its tensors if they are floats, but for operations that were measured to give another.
    """
    dtype = unit.config.get("dtype")
    if isinstance(dtype, str):
        return dtype
    taken = list(references([*call.args, *call.kwargs.values()]))
    if unit.class_name == _INDEXING and taken:
        return known.of(taken[0])
    name = f"{module_of(unit)}.{unit.class_name}"
    if unit.custom or name in RESULTS:
        return RESULTS.get(name)
    promoted = promoted_dtype(map(known.of, taken))
    return promoted if promoted in dtypes.FLOATS else None


def of_tensors(
    row: OperationRow, arguments: dict[str, Argument], known: TensorDtypes
) -> str | None:
    """Return the dtype that a call's tensors are promoted to."""
    tensors, scalars = split(row, arguments)
    return promoted_dtype((known.of(tensor) for tensor in tensors), scalars)


def split(
    row: OperationRow, arguments: dict[str, Argument]
) -> tuple[list[Argument], list[Argument]]:
    """Return a call's tensors and constants with a dtype, and the numbers beside them."""
    values: list[Argument] = []
    for pair in row.pairs:
        value = arguments.get(pair.tf)
        if pair.kind is ParameterKind.TENSOR or (
            pair.kind is ParameterKind.FREE
            and pair is row.pairs[0]
            and len(row.call_arguments) == 1
        ):
            values.append(value)
        elif pair.kind is ParameterKind.TENSORS:
            values += list(value) if isinstance(value, list | tuple) else [value]
    tensors: list[Argument] = [
        value
        for value in values
        if isinstance(value, Reference) or (isinstance(value, Constant) and value.dtype is not None)
    ]
    return tensors, [value for value in values if isinstance(value, bool | int | float)]


def _of_layer(unit: Unit, call: Call, known: TensorDtypes) -> str | None:
    """Return the dtype of what a layer or an op layer without a row gives."""
    first = next((reference for argument in call.args for reference in references(argument)), None)
    taken = known.of(first) if first is not None else None
    if unit.class_name == "SlicingOpLambda" or str(unit.config.get("function")) in _AS_FIRST:
        return taken
    if unit.class_name in _UNSAID or unit.class_name == "TFOpLambda":
        return None
    facts = layer_facts(unit.class_name)
    if facts.makes_ids:
        return _of_encoder(unit)
    policy = unit.config.get("dtype")
    follows = isinstance(policy, Policy) and policy.compute_dtype is None
    if follows or (facts.keeps_integers and taken is not None and taken not in dtypes.FLOATS):
        return taken
    return compute_dtype(unit) or _FLOATX


def _of_encoder(unit: Unit) -> str | None:
    """
    Return the dtype of what an encoder gives where it counts; None where it gives integers.

    Lookups count in float32 in Keras 3, and in float64 in Keras 2 if that is their policy. The
    others count in what they compute in, or those that hash in the dtype of their variables.
    Measured in Keras 3.0 to 3.15 and tf_keras 2.21, which counts in no 16 bits.
    """
    policy, computed = unit.config.get("dtype"), compute_dtype(unit)
    if (
        unit.config.get("output_mode", "int") == "int"
        or not isinstance(policy, Policy)
        or computed not in dtypes.FLOATS
    ):
        return None
    if layer_facts(unit.class_name).is_lookup:
        return None if computed == "float64" else _FLOATX
    return policy.variable_dtype if unit.class_name in _HASHING else computed
