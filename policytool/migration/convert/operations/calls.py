"""The arguments of a call by TensorFlow's names, whichever side wrote it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from policytool.migration.convert.architecture import Role
from policytool.migration.convert.operations import BY_FUNCTION, BY_OPERATION
from policytool.migration.convert.operations.rows import REQUIRED, Place
from policytool.model.calls import Constant
from policytool.releases import keras_operations
from policytool.releases.releases import KERAS3, newest

if TYPE_CHECKING:
    from policytool.migration.convert.architecture import Unit
    from policytool.migration.convert.operations.rows import OperationRow
    from policytool.model.calls import Argument, Call

LAMBDA = "TFOpLambda"
SLICING = "SlicingOpLambda"
_DTYPE: Final = "dtype"


def module_of(unit: Unit) -> str:
    """
    Return the last part of an operation's module; HDF5 files do not hold it, and each class stands
    in one module.
    """
    if unit.module is not None:
        return unit.module.removeprefix(keras_operations.MODULES)
    return keras_operations.module_of(unit.class_name) or ""


def with_dtype_in_config(unit: Unit) -> Unit:
    """
    Return an operation with its dtype in its config, as Keras 3.11 and later write it, where the
    calls say it.
    """
    said = [call.kwargs[_DTYPE] for call in unit.calls if _DTYPE in call.kwargs]
    latest = keras_operations.signature(newest(KERAS3).id, module_of(unit), unit.class_name)
    if (
        unit.role is not Role.OPERATION
        or latest is None
        or _DTYPE in latest.call
        or _DTYPE not in latest.config
        or len(said) != len(unit.calls)
        or any(one != said[0] for one in said)
    ):
        return unit
    calls = tuple(
        replace(call, kwargs={key: value for key, value in call.kwargs.items() if key != _DTYPE})
        for call in unit.calls
    )
    dtype = said[0] if isinstance(said[0], str) else None
    return replace(unit, config={**unit.config, _DTYPE: dtype}, calls=calls)


def row_of(unit: Unit) -> OperationRow | None:
    """Return the row of an op layer or an operation; None where there is none."""
    if unit.role is Role.OPERATION:
        return BY_OPERATION.get((module_of(unit), unit.class_name))
    return BY_FUNCTION.get(str(unit.config.get("function"))) if unit.class_name == LAMBDA else None


def named2(row: OperationRow, call: Call) -> dict[str, Argument] | None:
    """Return the arguments of an op layer's call; None where the file does not hold them all."""
    if not call.args:
        return None
    found: dict[str, Argument] = {row.pairs[0].tf: call.args[0], **call.kwargs}
    for pair in row.pairs:
        if found.get(pair.tf) is None:
            if pair.default is REQUIRED:
                return None
            found[pair.tf] = pair.default
    return found


def named3(row: OperationRow, unit: Unit, call: Call) -> dict[str, Argument] | None:
    """
    Return the arguments of an operation's call and of its constructor; None where one that the
    function needs is not told.
    """
    if len(call.args) > len(row.call_arguments):
        return None
    given: dict[str, Argument] = {
        pair.keras3: value for pair, value in zip(row.call_arguments, call.args, strict=False)
    }
    given |= call.kwargs
    found: dict[str, Argument] = {}
    for pair in row.pairs:
        source = given if pair.place is Place.CALL else unit.config
        if pair.keras3 in source:
            value = source[pair.keras3]
        elif pair.default3 is not REQUIRED:
            value = pair.default3
        else:
            return None
        found[pair.tf] = value  # type: ignore[assignment]  # a config of an operation holds plain values
    return found


def number(argument: Argument) -> Argument:
    """Return a constant of one number as the number, anything else as it is."""
    return (
        argument.value
        if isinstance(argument, Constant)
        and argument.dtype is None
        and isinstance(argument.value, bool | int | float | str)
        else argument
    )
