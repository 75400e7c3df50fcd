"""From operations of Keras 3 to op layers of Keras 2."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.migration.convert.rewrites.operations import _building, composed_functions
from policytool.migration.convert.rewrites.operations._building import (
    OperationBuilder,
    UnsupportedOperationError,
)
from policytool.migration.convert.tensor_facts import called_class
from policytool.migration.result_dtypes import (
    named_arguments_of_operation,
    promoted_dtype_of_tensors,
    split_tensors_and_numbers,
)
from policytool.model.calls import Constant, Reference, tensors
from policytool.releases import dtypes as names_of_dtypes
from policytool.releases import keras_operations
from policytool.releases.keras_operations import REQUIRED, Pair, ParameterKind, Place
from policytool.releases.policy import policy_from_name
from policytool.releases.releases import KERAS3, is_since, newest, release_name

if TYPE_CHECKING:
    from policytool.migration.convert.architecture import Unit
    from policytool.migration.convert.tensor_facts import TensorDtypes
    from policytool.model.calls import Argument, Call
    from policytool.releases.keras_operations import OperationRow

_TURNED: Final = {
    **{
        name: name
        for name in (
            "math.add",
            "math.multiply",
            "math.maximum",
            "math.minimum",
            "math.equal",
            "math.not_equal",
        )
    },
    **{name: name for name in ("math.logical_and", "math.logical_or", "math.logical_xor")},
    "math.greater": "math.less",
    "math.less": "math.greater",
    "math.greater_equal": "math.less_equal",
    "math.less_equal": "math.greater_equal",
}
"""
The function that computes the same with swapped arguments, because Keras 2 reads a number as the
first argument as float32 or int32, independent of the second.
"""

_FIRST_LAMBDA: Final = "tf2.4"
_NO_ELLIPSIS: Final = "tf2.4"
_OF_NUMBERS: Final = frozenset({"float32", "int32", "bool"})


def add_op_layers(
    builder: OperationBuilder, unit: Unit, call: Call, dtypes: TensorDtypes, loader: str
) -> Reference:
    """
    Add the op layers that compute a call of an operation, and return the result.

    TF 2.3 and earlier do not have these layers: a cast between floats becomes a linear Activation
    with the new dtype, which casts its input.

    :raises UnsupportedOperationError: if no op layers compute the operation
    """
    if not is_before_lambdas(loader):
        return _add_call(builder, unit, call, dtypes, loader)
    source = call.args[0] if call.args else call.kwargs.get("x")
    dtype = unit.config.get("dtype")
    if (
        unit.class_name != "Cast"
        or not isinstance(dtype, str)
        or dtypes.of(source) not in names_of_dtypes.FLOATS
        or dtype not in names_of_dtypes.FLOATS
    ):
        raise UnsupportedOperationError(
            f"applies the operation {unit.class_name}, for which {release_name(loader)} has no "
            "layer"
        )
    return builder.layer(
        "Activation", source, {"activation": "linear", "dtype": policy_from_name(dtype)}
    )


def is_before_lambdas(loader: str) -> bool:
    """Return whether a Keras 2 release lacks op layers that can be rebuilt from a config."""
    return not is_since(loader, _FIRST_LAMBDA)


def _add_call(
    builder: OperationBuilder, unit: Unit, call: Call, dtypes: TensorDtypes, loader: str
) -> Reference:
    """Add the op layers for one call of an operation, and return the result."""
    if unit.class_name == "GetItem":
        return _building.add_keras2_slicing(builder, call, ellipsis=loader != _NO_ELLIPSIS)
    if unit.class_name == "Swapaxes":
        raise UnsupportedOperationError(
            "swaps axes of a tensor of unknown rank; policytool does not convert this"
        )
    if unit.class_name == composed_functions.CLASS_NAME:
        return composed_functions.add_einsum(builder, unit, call, dtypes)
    first: Argument = next(iter((*call.args, *call.kwargs.values())), None)
    composed = composed_functions.add_composed(builder, unit, first, dtypes.of(first))
    if composed is not None:
        return composed
    row = called_class(unit).row
    if row is None:
        raise UnsupportedOperationError(
            f"applies the operation {unit.class_name}, for which no TensorFlow function is known"
        )
    function = row.functions[0]
    if not keras_operations.resolves(loader, function):
        raise UnsupportedOperationError(
            f"applies the operation {unit.class_name}, but {release_name(loader)} cannot find "
            f"tf.{function}"
        )
    arguments = named_arguments_of_operation(row, unit.config, call)
    if arguments is None:
        raise UnsupportedOperationError(
            f"applies the operation {unit.class_name} with arguments that tf.{function} does "
            "not support"
        )
    _judge_rest(row, unit)
    return _call(builder, row, arguments, dtypes)


def _judge_rest(row: OperationRow, unit: Unit) -> None:
    """
    Refuse keys of the operation's config that the function does not support, unless they equal its
    default behaviour.
    """
    latest = keras_operations.signature(newest(KERAS3).id, row.module, row.op)
    known = {pair.keras3 for pair in row.pairs if pair.place is Place.CONFIG}
    for key, value in unit.config.items():
        if key not in known and (latest is None or latest.config.get(key) != value):
            raise UnsupportedOperationError(
                f"applies the operation {unit.class_name} with {key}, which "
                f"tf.{row.functions[0]} does not support"
            )


def _call(
    builder: OperationBuilder,
    row: OperationRow,
    arguments: dict[str, Argument],
    dtypes: TensorDtypes,
) -> Reference:
    """Add the op layer for a row of the operation table, with its casts, and return the result."""
    function = row.functions[0]
    tensors, _ = split_tensors_and_numbers(row, arguments)
    dtype = promoted_dtype_of_tensors(row, arguments, dtypes.of)
    has_several_tensors = len(tensors) > 1
    if dtype is None and (has_several_tensors or row.floats):
        raise UnsupportedOperationError(
            f"applies the operation {row.op} to tensors of unknown dtype"
        )
    if row.floats and dtype not in names_of_dtypes.FLOATS:
        raise UnsupportedOperationError(
            f"applies the operation {row.op} to {dtype} tensors, for which tf.{function} returns "
            "different results"
        )
    values: dict[str, Argument] = {}
    for pair in row.pairs:
        value = arguments[pair.tf]
        if pair.kind in {ParameterKind.TENSOR, ParameterKind.TENSORS}:
            values[pair.tf] = _tensor(builder, value, dtype, dtypes)
        elif pair.place is Place.CALL:
            values[pair.tf] = value.value if isinstance(value, Constant) else value
        else:
            values[pair.tf] = _plain(row, pair, value)
    values = {
        key: value for key, value in values.items() if value is not None or key == row.pairs[0].tf
    }
    result = _function(builder, row, values, dtype)
    if row.result3 is not None:
        result = builder.function("cast", result, {"dtype": row.result3})
    return result


def _function(
    builder: OperationBuilder, row: OperationRow, values: dict[str, Argument], dtype: str | None
) -> Reference:
    """
    Add the function with its first argument; if this is a number and the tensors have 16 bits, swap
    the arguments.
    """
    first, *others = [pair.tf for pair in row.pairs]
    function = row.functions[0]
    front = values[first]
    if isinstance(front, Reference) or row.pairs[0].kind is not ParameterKind.TENSOR:
        if (
            row.pairs[0].kind is ParameterKind.FREE
            and any(
                not isinstance(values.get(pair.tf), Reference)
                for pair in row.pairs[1:2]
                if pair.kind is ParameterKind.TENSOR
            )
            and dtype not in {*_OF_NUMBERS, None}
        ):
            raise UnsupportedOperationError(
                f"applies the operation {row.op} to a number and {dtype} tensors, which "
                "Keras 2 cannot read"
            )
        return builder.function(
            function, front, {key: values[key] for key in others if key in values}
        )
    if function in _TURNED:
        return builder.function(_TURNED[function], values[others[0]], {others[0]: front})
    if function == "math.subtract":
        return builder.function(
            "math.add", builder.function("math.negative", values[others[0]]), {"y": front}
        )
    if dtype not in _OF_NUMBERS:
        raise UnsupportedOperationError(
            f"applies the operation {row.op} to a number and {dtype} tensors, which Keras 2 "
            "cannot read"
        )
    if dtype == "float32" and isinstance(front, int):
        front = float(front)
    return builder.function(function, front, {key: values[key] for key in others if key in values})


def _tensor(
    builder: OperationBuilder, value: Argument, dtype: str | None, dtypes: TensorDtypes
) -> Argument:
    """
    Return a tensor in the dtype to which Keras 3 promotes it; a constant without a dtype, which the
    function sets.
    """
    match value:
        case list() | tuple():
            return [_tensor(builder, item, dtype, dtypes) for item in value]
        case Reference() if dtype is not None and dtypes.of(value) != dtype:
            return builder.function("cast", value, {"dtype": dtype})
        case Constant():
            return value.value
        case Reference() | bool() | int() | float():
            return value
    raise UnsupportedOperationError("is called with a value that is neither a tensor nor a number")


def _plain(row: OperationRow, pair: Pair, value: Argument) -> Argument:
    """Return an argument of the operation's config in the form that the function accepts."""
    if any(True for _ in tensors(value)):
        raise UnsupportedOperationError(
            f"applies the operation {row.op} with a tensor as {pair.keras3}, which "
            "policytool does not convert"
        )
    if pair.kind is ParameterKind.SPLITS and isinstance(value, list):
        return _sizes(value)
    if pair.kind is ParameterKind.MODE:
        return str(value).upper()
    if pair.kind is ParameterKind.AXES and isinstance(value, int):
        return [value]
    if value is None and pair.default is not None:
        if pair.default is REQUIRED or pair.kind is not ParameterKind.DTYPE:
            raise UnsupportedOperationError(
                f"applies the operation {row.op} without {pair.keras3}, which "
                f"tf.{row.functions[0]} requires"
            )
        return pair.default
    return value


def _sizes(cuts: list[Argument]) -> Argument:
    """Return the sizes of parts; the last part has the remaining size."""
    sizes: list[Argument] = []
    before = 0
    for cut in cuts:
        if not isinstance(cut, int) or cut < before:
            raise UnsupportedOperationError(
                "splits at indices that are negative or not in ascending order"
            )
        sizes.append(cut - before)
        before = cut
    return [*sizes, -1]
