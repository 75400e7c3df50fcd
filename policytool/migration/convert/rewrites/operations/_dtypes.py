"""The dtype of each tensor of a graph, as far as layers, policies and operations tell."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from policytool.migration.convert._walking import CallGraph
from policytool.migration.convert.architecture import Role
from policytool.migration.convert.operations.calls import named2, named3, row_of
from policytool.migration.convert.operations.rows import ParameterKind
from policytool.migration.convert.rewrites.operations.composed_functions import gives_as_it_gets
from policytool.migration.convert.traversal import references
from policytool.model.calls import Constant, Reference
from policytool.model.tree import INPUT_CLASS
from policytool.releases import dtypes
from policytool.releases.layer_classes import layer_facts
from policytool.releases.policy import Policy, PolicyMap

if TYPE_CHECKING:
    from collections.abc import Iterable

    from policytool.migration.convert.architecture import Network, Unit
    from policytool.migration.convert.operations.rows import OperationRow
    from policytool.model.calls import Argument, Call

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

_WIDTH: Final = {"float16": 1, "bfloat16": 1, "float32": 2, "float64": 3}
_FLOATX: Final = "float32"


def promoted_dtype(found: Iterable[str | None], scalars: Iterable[Argument] = ()) -> str | None:
    """
    Return the dtype that Keras 3 gives to what is made of tensors of these, and of plain numbers.

    :return: None where one of them is not known, or the rule for them is not known here
    """
    known = set(found)
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Dtypes:
    """What is known of one network's tensors."""

    known: dict[tuple[str, int, int], str | None] = field(default_factory=dict)

    def of(self, argument: Argument) -> str | None:
        """Return the dtype of a tensor or a constant; None where it is not known."""
        if isinstance(argument, Reference):
            key = (argument.layer, argument.call, argument.output)
            return self.known.get(key, self.known.get((argument.layer, argument.call, -1)))
        return argument.dtype if isinstance(argument, Constant) else None


Inferred = dict[int, tuple["Network", Dtypes]]
"""
By the identity of a network, the network and its dtypes: nested models are the same objects for
every model around them.
"""


def of_network(network: Network, inferred: Inferred) -> Dtypes:
    """
    Return the dtypes of a functional network's tensors.

    :param inferred: the networks whose dtypes are known, to which this adds
    """
    if id(network) in inferred:
        return inferred[id(network)][1]
    found = Dtypes()
    graph = CallGraph(network)
    for name, number in graph.inputs_first():
        _note(graph.units[name], number, found, inferred)
    inferred[id(network)] = network, found
    return found


def _note(unit: Unit, number: int, found: Dtypes, inferred: Inferred) -> None:
    """Add the dtypes of what one call returns."""
    if unit.class_name == INPUT_CLASS:
        dtype = unit.config.get("dtype")
        found.known[unit.name, 0, -1] = (
            dtype
            if isinstance(dtype, str)
            else dtype.compute_dtype
            if isinstance(dtype, Policy)
            else _FLOATX
        )
        return
    if not unit.calls:
        return
    if unit.role is Role.MODEL and unit.network is not None and not unit.network.is_chain:
        inner = of_network(unit.network, inferred)
        for output, reference in enumerate(references(unit.network.outputs)):
            found.known[unit.name, number, output] = inner.of(reference)
        return
    call = unit.calls[number]
    row = row_of(unit)
    if row is None:
        found.known[unit.name, number, -1] = _of_layer(unit, call, found)
        return
    found.known[unit.name, number, -1] = result_of(row, unit, call, found)
    if row.others is not None:
        found.known[unit.name, number, 0] = found.known[unit.name, number, -1]
        found.known[unit.name, number, 1] = row.others


def result_of(row: OperationRow, unit: Unit, call: Call, found: Dtypes) -> str | None:
    """Return the dtype of what a row's function or operation gives, on the unit's side."""
    arguments = named3(row, unit, call) if unit.role is Role.OPERATION else named2(row, call)
    if arguments is None:
        return None
    stated = (row.result3 or row.result) if unit.role is Role.OPERATION else row.result
    if stated == "@dtype":
        said = next(pair for pair in row.pairs if pair.kind is ParameterKind.DTYPE)
        dtype = arguments.get(said.tf)
        if isinstance(dtype, str):
            return dtype
        return _FLOATX if said.default is not None else of_tensors(row, arguments, found)
    return stated if stated is not None else of_tensors(row, arguments, found)


def of_tensors(row: OperationRow, arguments: dict[str, Argument], found: Dtypes) -> str | None:
    """Return the dtype that a call's tensors are promoted to."""
    tensors, scalars = split(row, arguments)
    return promoted_dtype((found.of(tensor) for tensor in tensors), scalars)


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


def _of_layer(unit: Unit, call: Call, found: Dtypes) -> str | None:
    first = next((reference for argument in call.args for reference in references(argument)), None)
    given = found.of(first) if first is not None else None
    stated = unit.config.get("dtype")
    if unit.role is Role.OPERATION and isinstance(stated, str) and gives_as_it_gets(unit):
        return stated
    if (
        unit.class_name in {"SlicingOpLambda", "GetItem"}
        or str(unit.config.get("function")) in _AS_FIRST
        or (unit.role is Role.OPERATION and gives_as_it_gets(unit))
    ):
        return given
    if unit.role is Role.OPERATION or unit.class_name in _UNSAID or unit.class_name == "TFOpLambda":
        return None
    policy = unit.config.get("dtype")
    facts = layer_facts(unit.class_name)
    if facts.makes_ids:
        # Integers, or floats in the modes that count: Keras 3 has those of lookups as integers
        # too, but writes them as floats, and makes floats of them with others.
        counts = unit.config.get("output_mode", "int") != "int"
        known = (_FLOATX,) if facts.is_lookup else (_FLOATX, "float64")
        name = policy.name if isinstance(policy, Policy) else None
        return name if counts and name in known else None
    if isinstance(policy, PolicyMap):
        policy = policy.default
    computed = policy.compute_dtype if isinstance(policy, Policy) else _FLOATX
    if computed is None or (
        facts.keeps_integers and given is not None and given not in dtypes.FLOATS
    ):
        return given
    return computed
