"""From op layers of Keras 2 to operations of Keras 3."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.migration.convert.architecture import references
from policytool.migration.convert.rewrites.operations import _building
from policytool.migration.convert.rewrites.operations._building import (
    SLICING,
    OperationBuilder,
    UnsayableError,
)
from policytool.migration.convert.rewrites.operations.composed import COMPOSED
from policytool.migration.convert.tensor_dtypes import called_class
from policytool.migration.result_dtypes import named_arguments_of_op_layer, of_tensors
from policytool.model.calls import Constant, Reference
from policytool.releases import dtypes as names_of_dtypes
from policytool.releases.function_operations import REQUIRED, Pair, ParameterKind, Place

if TYPE_CHECKING:
    from policytool.migration.convert.architecture import Unit, Value
    from policytool.migration.convert.tensor_dtypes import TensorDtypes
    from policytool.model.calls import Argument, Call
    from policytool.releases.function_operations import OperationRow

_NAME: Final = "name"
_WHOLE: Final = "int32"


def put(builder: OperationBuilder, unit: Unit, call: Call, dtypes: TensorDtypes) -> Reference:
    """
    Add the operations that compute what an op layer does in one call, and return the result.

    :raises UnsayableError: where there are none
    """
    if unit.class_name == SLICING:
        return _building.put3(builder, call)
    function = str(unit.config.get("function"))
    compose = COMPOSED.get(function)
    if compose is not None:
        found = compose(builder, call, dtypes)
        if found is not None:
            return found
    row = called_class(unit).row
    if row is None:
        raise UnsayableError(f"calls tf.{function}, for which no Keras 3 operation is known")
    arguments = named_arguments_of_op_layer(row, call)
    if arguments is None:
        raise UnsayableError(f"calls tf.{function}, but the file does not contain its arguments")
    return _call(builder, row, arguments, dtypes)


def _call(
    builder: OperationBuilder,
    row: OperationRow,
    arguments: dict[str, Argument],
    dtypes: TensorDtypes,
) -> Reference:
    known = {pair.tf for pair in row.pairs} | {_NAME}
    for key, value in arguments.items():
        if key not in known and value not in row.ignored.get(key, ()):
            raise UnsayableError(
                f"calls tf.{row.functions[0]} with {key}, which {row.op} in Keras 3 does not "
                "support"
            )
    dtype = of_tensors(row, arguments, dtypes.of)
    if row.floats and dtype not in names_of_dtypes.FLOATS:
        raise UnsayableError(
            f"calls tf.{row.functions[0]} on {dtype or 'tensors of unknown dtype'}, for which "
            f"{row.op} in Keras 3 returns different results"
        )
    args: list[Argument] = []
    kwargs: dict[str, Argument] = {}
    config: dict[str, Value] = {}
    for pair in row.pairs:
        value = arguments[pair.tf]
        if pair.place is Place.CONFIG:
            config[pair.keras3] = _plain(row, pair, value)
        elif pair.default is not REQUIRED and value == pair.default:
            continue
        elif len(args) == row.call_arguments.index(pair):
            args.append(_tensor(row, pair, value, dtype))
        else:
            kwargs[pair.keras3] = _tensor(row, pair, value, dtype)
    found = builder.operation(f"{row.module}.{row.op}", tuple(args), config, kwargs)
    if row.result3 is not None and row.result is not None:
        found = builder.operation("core.Cast", (found,), {"dtype": row.result})
    return found


def _plain(row: OperationRow, pair: Pair, value: Argument) -> Value:
    """Return an argument as the operation's config has it."""
    if pair.kind is ParameterKind.SHAPE:
        return shape(value)
    if any(True for _ in references(value)):
        raise UnsayableError(
            f"calls tf.{row.functions[0]} with a tensor as {pair.tf}, which {row.op} in Keras 3 "
            "does not support"
        )
    if pair.kind is ParameterKind.SPLITS and isinstance(value, list):
        return _cuts(value)
    if pair.kind is ParameterKind.LIST and isinstance(value, int):
        return [value]
    if pair.kind is ParameterKind.MODE:
        return str(value).lower()
    if pair.kind is ParameterKind.AXES and isinstance(value, list) and len(value) == 1:
        return value[0]  # type: ignore[return-value]  # no tensors in it; Keras 3.3 takes no list
    if value is None and pair.default is None:
        return None
    if pair.kind is ParameterKind.DTYPE and not (
        isinstance(value, str) and value in names_of_dtypes.NAMES
    ):
        raise UnsayableError(
            f"calls tf.{row.functions[0]} with a dtype that Keras 3 does not support"
        )
    return value  # type: ignore[return-value]  # no tensors in it, and JSON otherwise


def shape(value: Argument) -> Value:
    """
    Return the shape that a tensor is given, with -1 for what a tensor says: with all other sizes
    told it can be no other.

    :raises UnsayableError: where more than one size is left open
    """
    if not isinstance(value, list | tuple):
        raise UnsayableError(
            "computes its shape from a tensor, which Keras 3 configs cannot represent"
        )
    sizes = [item if isinstance(item, int) else -1 for item in value]
    if sizes.count(-1) > 1:
        raise UnsayableError(
            "computes its shape from several tensors, which Keras 3 configs cannot represent"
        )
    return list(sizes)


def _cuts(sizes: list[Argument]) -> Value:
    places: list[Value] = []
    total = 0
    for size in sizes[:-1]:
        if not isinstance(size, int) or size < 0:
            raise UnsayableError("splits by sizes that include -1, which Keras 3 does not support")
        total += size
        places.append(total)
    return places


def _tensor(row: OperationRow, pair: Pair, value: Argument, dtype: str | None) -> Argument:
    """
    Return what an operation is called with: arrays get the dtype that TensorFlow gives them, that
    of the tensors beside them.
    """
    value = _number(value)
    if pair.kind is ParameterKind.TENSORS and isinstance(value, list | tuple):
        return [_tensor(row, PLAIN, item, dtype) for item in value]
    if isinstance(value, Constant):
        value = value.value
    if isinstance(value, list | tuple):
        if any(True for _ in references(value)):
            raise UnsayableError(
                f"calls tf.{row.functions[0]} with a list of tensors as {pair.tf}, which "
                "policytool does not convert"
            )
        if pair.kind is ParameterKind.FREE:
            return Constant(value=list(value), dtype=_own(value))
        if dtype is None:
            raise UnsayableError(
                f"calls tf.{row.functions[0]} with an array and tensors of unknown dtype, which "
                "policytool does not convert"
            )
        return Constant(value=list(value), dtype=dtype)
    if not isinstance(value, Reference | bool | int | float):
        raise UnsayableError(f"calls tf.{row.functions[0]} with {pair.tf}, which is not a tensor")
    return value


def _number(argument: Argument) -> Argument:
    """Return a constant of one number as the number, anything else as it is."""
    return (
        argument.value
        if isinstance(argument, Constant)
        and argument.dtype is None
        and isinstance(argument.value, bool | int | float | str)
        else argument
    )


def _own(value: Argument) -> str:
    while isinstance(value, list | tuple):
        value = value[0] if value else 0
    return "bool" if isinstance(value, bool) else _WHOLE if isinstance(value, int) else "float32"


PLAIN: Final = Pair(tf="values", keras3="x", kind=ParameterKind.TENSOR, place=Place.CALL)
"""One of a list of tensors."""
