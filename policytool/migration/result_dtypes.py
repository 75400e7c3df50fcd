"""
The result dtypes of layers, op layers and operations, computed from the facts of their classes and
the dtypes of their inputs.

Plans use these rules with the new policies of layers, conversions with the policies in the file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from policytool.model.calls import Call, Constant, Reference
from policytool.model.flow import inbound
from policytool.releases import dtype_support, dtypes
from policytool.releases.keras_operations import (
    REQUIRED,
    ParameterKind,
    Place,
    function_result,
    operation_results,
    rows_by_function,
    rows_by_operation,
)
from policytool.releases.layer_classes import Category, layer_facts, operation_facts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from policytool.model.calls import Argument
    from policytool.releases.keras_operations import OperationRow

    DtypeOf = Callable[[Argument], str | None]
    from policytool.model.layer_graph import GraphNode


ENUMS: Final = {name: enum for enum, name in dtypes.OF_NODE_DEF.items() if dtypes.is_float(name)}
"""The names of dtypes in a ``node_def``."""

_BY_ENUM: Final = {value: key for key, value in ENUMS.items()}
_WIDTH: Final = {"float16": 1, "bfloat16": 1, "float32": 2, "float64": 3}
_FLOATX: Final = "float32"


class CalledClass(Struct, frozen=True, kw_only=True):
    """The parts of a layer, op layer or operation that determine its result dtypes."""

    class_name: str
    config: Mapping[str, object]
    module: str | None = None
    """The module of a Keras 3 operation, such as ``numpy`` or ``core``; None for layers."""

    custom: bool = False
    compute_dtype: str | None = None
    """None if the result has the dtype of the first input."""

    variable_dtype: str | None = None
    policy: str | None = None
    """The name of the layer's policy, to look up its measured dtype in :attr:`measured_in`."""

    measured_in: str | None = None
    """The release whose measured output dtypes are used where they differ from the rules."""

    @property
    def row(self) -> OperationRow | None:
        """The entry for an op layer or an operation in the operation table, if any."""
        if self.module is not None:
            return rows_by_operation().get((self.module, self.class_name))
        function = self.function
        return rows_by_function().get(function) if function is not None else None

    @property
    def function(self) -> str | None:
        """The function of TensorFlow that an op layer of TF 2.4 and later calls."""
        if self.module is None and layer_facts(self.class_name).wrapped_op == "function":
            return str(self.config.get("function"))
        return None


def result_dtypes(called: CalledClass, call: Call, dtype_of: DtypeOf) -> Sequence[str | None]:
    """
    Return the result dtypes of a call, each None if unknown; the last one applies to all further
    results.
    """
    row = called.row
    if row is not None:
        dtype = _listed_operation_dtype(row, called, call, dtype_of)
        return (dtype,) if row.others is None else (dtype, row.others)
    if called.module is not None:
        return (_operation_dtype(called, call, dtype_of),)
    if layer_facts(called.class_name).is_op_layer:
        return (_op_layer_dtype(called, call, dtype_of),)
    return (_layer_dtype(called, call, dtype_of),)


def promoted_dtype(operands: Iterable[str | None], scalars: Iterable[Argument] = ()) -> str | None:
    """
    Return the dtype to which Keras 3 promotes tensors of these dtypes and plain numbers.

    :return: None if a dtype or the rule for these dtypes is unknown
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
    scalar_values = tuple(scalars)
    if any(isinstance(value, float) for value in scalar_values):
        return _FLOATX
    if numbers == {"bool"} and any(
        isinstance(value, int) and not isinstance(value, bool) for value in scalar_values
    ):
        return "int32"
    return numbers.pop()


def promoted_dtype_of_tensors(
    row: OperationRow, arguments: Mapping[str, Argument], dtype_of: DtypeOf
) -> str | None:
    """Return the dtype to which a call's tensors are promoted; None if unknown."""
    tensors, scalars = split_tensors_and_numbers(row, arguments)
    return promoted_dtype(map(dtype_of, tensors), scalars)


def split_tensors_and_numbers(
    row: OperationRow, arguments: Mapping[str, Argument]
) -> tuple[list[Argument], list[Argument]]:
    """Return the tensors of a call, with the constants that have a dtype, and its plain numbers."""
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


def named_arguments_of_op_layer(row: OperationRow, call: Call) -> dict[str, Argument] | None:
    """
    Return the arguments of an op layer's call by their names in TensorFlow; None if the file does
    not contain all of them.
    """
    if not call.args:
        return None
    arguments: dict[str, Argument] = {row.pairs[0].tf: call.args[0], **call.kwargs}
    for pair in row.pairs:
        if arguments.get(pair.tf) is None:
            if pair.default is REQUIRED:
                return None
            arguments[pair.tf] = pair.default
    return arguments


def named_arguments_of_operation(
    row: OperationRow, config: Mapping[str, object], call: Call
) -> dict[str, Argument] | None:
    """
    Return the arguments of an operation's call and constructor by their names in TensorFlow; None
    if a required one is missing.
    """
    if len(call.args) > len(row.call_arguments):
        return None
    in_call: dict[str, object] = {
        pair.keras3: value for pair, value in zip(row.call_arguments, call.args, strict=False)
    }
    in_call |= call.kwargs
    arguments: dict[str, Argument] = {}
    for pair in row.pairs:
        source = in_call if pair.place is Place.CALL else config
        if pair.keras3 in source:
            # a config of an operation holds plain values
            arguments[pair.tf] = source[pair.keras3]  # type: ignore[assignment]
        elif pair.default3 is not REQUIRED:
            arguments[pair.tf] = pair.default3
        else:
            return None
    return arguments


def node_def_type(config: Mapping[str, object], name: str) -> object:
    """Return the type of an attribute in the ``node_def`` of a config, if any."""
    value: object = config.get("node_def")
    for key in ("attr", name, "type"):
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _listed_operation_dtype(
    row: OperationRow, called: CalledClass, call: Call, dtype_of: DtypeOf
) -> str | None:
    """
    Return the result dtype of a call of a function or operation in the operation table: the
    dtype in the table, the one in its ``dtype`` argument, or the promoted dtype of its tensors.
    None if unknown.
    """
    is_operation = called.module is not None
    arguments = (
        named_arguments_of_operation(row, called.config, call)
        if is_operation
        else named_arguments_of_op_layer(row, call)
    )
    if arguments is None:
        return None
    result = (row.result3 or row.result) if is_operation else row.result
    if result == "@dtype":
        option = next(pair for pair in row.pairs if pair.kind is ParameterKind.DTYPE)
        dtype = arguments.get(option.tf)
        if isinstance(dtype, str):
            return dtype
        return (
            _FLOATX
            if option.default is not None
            else promoted_dtype_of_tensors(row, arguments, dtype_of)
        )
    return result if result is not None else promoted_dtype_of_tensors(row, arguments, dtype_of)


def _operation_dtype(called: CalledClass, call: Call, dtype_of: DtypeOf) -> str | None:
    """
    Return the result dtype of an operation that is not in the operation table: the dtype in its
    config or from measurements; for other classes of Keras, the promoted dtype of its tensors
    if it is a float dtype. None if unknown.
    """
    dtype = called.config.get("dtype")
    if isinstance(dtype, str):
        return dtype
    name = f"{called.module}.{called.class_name}"
    if called.custom or name in operation_results():
        result = operation_results().get(name)
        return dtype_of(next(inbound(call), None)) if result == "first" else result
    promoted = promoted_dtype(map(dtype_of, inbound(call)))
    return promoted if promoted in dtypes.FLOATS else None


def _op_layer_dtype(called: CalledClass, call: Call, dtype_of: DtypeOf) -> str | None:
    """
    Return the result dtype of a Keras 2 op layer that is not in the operation table: that of
    its function from measurements, or the ``DstT`` of its op. None if unknown.
    """
    if called.function is None:
        return _BY_ENUM.get(str(node_def_type(called.config, "DstT")))
    dtype, is_first = function_result(called.function, call.kwargs)
    return dtype_of(next(inbound(call), None)) if is_first else dtype


def _layer_dtype(called: CalledClass, call: Call, dtype_of: DtypeOf) -> str | None:
    """
    Return the result dtype of a layer: the measured dtype if there is one, that of its first
    input if it keeps integers or has no compute dtype, else its compute dtype. None if unknown.
    """
    if called.measured_in is not None and called.policy is not None:
        interpolation = called.config.get("interpolation")
        measured = dtype_support.output_dtype(
            called.measured_in,
            called.class_name,
            interpolation if isinstance(interpolation, str) else None,
            called.policy,
        )
        if measured is not None:
            return measured
    facts = layer_facts(called.class_name)
    if facts.makes_ids:
        return _encoder_dtype(called)
    if called.compute_dtype is None or facts.keeps_integers:
        first = dtype_of(next(inbound(call), None))
        if called.compute_dtype is None or (first is not None and first not in dtypes.FLOATS):
            return first
    return called.compute_dtype


def _encoder_dtype(called: CalledClass) -> str | None:
    """
    Return the result dtype of an encoder that counts; None if it returns integers or the dtype is
    unknown.

    Lookups count in float32 in Keras 3, and in Keras 2 in float64 if this is their policy. Other
    encoders count in their compute dtype; hashing encoders count in their variable dtype. Measured
    in Keras 3.0 to 3.15 and tf_keras 2.21, which does not count in 16 bits.
    """
    compute_dtype, facts = called.compute_dtype, layer_facts(called.class_name)
    if called.config.get("output_mode", "int") == "int" or compute_dtype not in dtypes.FLOATS:
        return None
    if facts.category is Category.LOOKUP:
        return None if compute_dtype == "float64" else _FLOATX
    return called.variable_dtype if facts.counts_in == "variable_dtype" else compute_dtype


_JOINS: Final = frozenset({"Concat", "ConcatV2", "Pack"})
"""TensorFlow ops that join several tensors."""


def result_dtype(node: GraphNode, dtype_of: DtypeOf) -> frozenset[str] | None:
    """Return the dtypes of an operation's results; None if no rule covers the operation."""
    calls = node.calls or (Call(args=tuple(Reference(layer=name) for name in node.parents)),)
    called = _called_class(node)
    results = {dtype for call in calls for dtype in result_dtypes(called, call, dtype_of)}
    return (
        frozenset(dtype for dtype in results if dtype is not None) if None not in results else None
    )


def decides_dtype(node: GraphNode) -> bool:
    """Return whether an operation returns a dtype that does not depend on its inputs."""
    row = _called_class(node).row
    fixed = result_dtype(node, lambda _: None)
    return fixed is not None and (
        not fixed.isdisjoint(dtypes.FLOATS) or row is None or row.op == "Cast"
    )


def parents_of_one_dtype(node: GraphNode, *, is_operation: bool) -> tuple[tuple[str, ...], bool]:
    """
    Return the nodes that must have the same dtype because a Keras 3 operation does not promote
    them, and whether this dtype must be float32.
    """
    facts = operation_facts(node.class_name)
    if not is_operation or (facts.promotes and facts.half_kernels):
        return (), False
    return node.parents, not facts.half_kernels or len(node.parents) == 1


def has_kernels_for(node: GraphNode, input_dtypes: frozenset[str]) -> bool:
    """Return whether an operation without 16-bit kernels gets only float32 and float64."""
    return is_wide(node) and "float16" not in input_dtypes and "bfloat16" not in input_dtypes


def is_wide(node: GraphNode) -> bool:
    """Return whether a node is a Keras 3 operation without 16-bit kernels."""
    return node.site is None and not operation_facts(node.class_name).half_kernels


def joins_tensors(node: GraphNode) -> bool:
    """Return whether an operation joins several tensors without changing their values."""
    called = _called_class(node)
    if called.row is not None:
        return operation_facts(called.row.op).joins is not None
    definition = node.config.get("node_def")
    return isinstance(definition, dict) and definition.get("op") in _JOINS


def begins_with_constant(node: GraphNode) -> bool:
    """
    Return whether an op's first argument is a number, which Keras 2 converts to a float32 tensor.
    """
    pending: list[Argument] = [call.args[0] for call in node.calls if call.args]
    while pending:
        value = pending.pop()
        if isinstance(value, list):
            pending += value
        elif isinstance(value, Constant) and isinstance(value.value, float):
            return True
    return False


def _called_class(node: GraphNode) -> CalledClass:
    module = operation_facts(node.class_name).module or "" if node.site is None else None
    return CalledClass(class_name=node.class_name, config=node.config, module=module)
