"""Indices and slices: ``SlicingOpLambda`` of Keras 2, ``GetItem`` of Keras 3."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.migration.convert.architecture import references
from policytool.migration.convert.rewrites.operations._building import (
    SLICING,
    OperationBuilder,
    UnsayableError,
)
from policytool.model.calls import Reference, Slice

if TYPE_CHECKING:
    from policytool.model.calls import Argument, Call

FUNCTION: Final = "__operators__.getitem"
_SPEC: Final = "slice_spec"
_BOUNDS: Final = ("start", "stop", "step")


def put3(builder: OperationBuilder, call: Call) -> Reference:
    """
    Add the operation that takes what a slicing layer takes.

    :raises UnsayableError: for an index that is a tensor
    """
    if _SPEC not in call.kwargs or not isinstance(call.args[0], Reference):
        raise UnsayableError("slices a tensor, but the file does not contain the slice")
    spec = call.kwargs[_SPEC]
    if any(True for _ in references(spec)):
        raise UnsayableError(
            "uses a tensor as the index of a slice, which Keras 3 configs cannot represent"
        )
    key: Argument = (
        [_index3(item) for item in spec]
        if isinstance(spec, list | tuple)
        else spec
        if isinstance(spec, int)
        else [_index3(spec)]
    )
    return builder.operation("numpy.GetItem", (call.args[0], key))


def _index3(item: Argument) -> Argument:
    if isinstance(item, dict) and set(item) <= set(_BOUNDS):
        return Slice(start=item.get("start"), stop=item.get("stop"), step=item.get("step"))
    if (
        item is None
        or (isinstance(item, int) and not isinstance(item, bool))
        or isinstance(item, Slice)
    ):
        return item
    raise UnsayableError("slices a tensor with a mask or a list, which Keras 3 reads differently")


def put2(builder: OperationBuilder, call: Call, *, ellipsis: bool) -> Reference:
    """
    Add the slicing layer that takes what ``GetItem`` takes.

    :param ellipsis: whether the release reads an ellipsis back: TF 2.4 writes one and does not
    :raises UnsayableError: for an index that is a tensor, an array or a list
    """
    arguments = (*call.args, *call.kwargs.values())
    expected = 2
    if len(arguments) != expected or not isinstance(arguments[0], Reference):
        raise UnsayableError(
            "slices a value that is not a tensor in the graph; policytool does not convert this"
        )
    key = arguments[1]
    if any(True for _ in references(key)):
        raise UnsayableError(
            "uses a tensor as the index of a slice; policytool does not convert this"
        )
    if not ellipsis and any(
        isinstance(item, Slice) and item.ellipsis
        for item in (key if isinstance(key, list | tuple) else (key,))
    ):
        raise UnsayableError("uses an ellipsis in a slice, which TF 2.4 cannot read")
    spec: Argument = (
        [_index2(item) for item in key] if isinstance(key, list | tuple) else _index2(key)
    )
    return builder.function(FUNCTION, arguments[0], {_SPEC: spec}, layer=SLICING)


def _index2(item: Argument) -> Argument:
    if isinstance(item, Slice):
        return item if item.ellipsis else {key: getattr(item, key) for key in _BOUNDS}
    if item is None or (isinstance(item, int) and not isinstance(item, bool)):
        return item
    raise UnsayableError(
        "slices a tensor with a mask or an array, which Keras 2 configs cannot represent"
    )
