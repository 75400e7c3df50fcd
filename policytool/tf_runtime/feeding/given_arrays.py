"""Arrays of the user's, compared with the inputs that a model expects."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..library import Refused

if TYPE_CHECKING:
    from typing import Any, Mapping, Sequence

    from .recipes import Recipe
    from .slots import Slot

FLOAT32_DTYPES = ("bfloat16", "float8_e4m3fn", "float8_e5m2")
"""Dtypes that NumPy itself does not know; float32 holds every value of theirs."""


class Source:
    """Where arrays are from, as sentences say it."""

    def __init__(self, name: str, code: str, short: str) -> None:
        self.name = name
        self.code = code
        self.short = short
        """What stands for the name in sentences about one input."""

    def refused(self, text: str, *values: Any) -> Refused:
        """Return a refusal of what it holds."""
        return Refused(self.code, text.format(*values))


def fitted_arrays(
    arrays: Mapping[str, Any], slots: Sequence[Slot], recipes: Sequence[Recipe], source: Source
) -> tuple[list[Any], list[str]]:
    """
    Return arrays by name in the order of the inputs, in the dtypes that the model takes, and how
    each was taken.

    :raises Refused: if names differ from those of the inputs, or if an array is empty or does not
        fit its input.
    """
    names = [slot.name for slot in slots]
    if set(arrays) != set(names):
        raise source.refused(
            "{} contains {}, but the model expects {}",
            source.name,
            listed(sorted(arrays)),
            listed(names),
        )
    empty = [name for name in names if not arrays[name].size]
    if empty:
        raise source.refused(
            "{} contains an empty array of the shape {} for input {}; the model expects {}",
            source.name,
            _shape(arrays[empty[0]].shape),
            empty[0],
            listed(names),
        )
    fitted = [
        _fitted(arrays[slot.name], slot, recipe, source) for slot, recipe in zip(slots, recipes)
    ]
    return [array for array, _ in fitted], [how for _, how in fitted]


def listed(names: Sequence[str]) -> str:
    """Return the names of arrays in a sentence."""
    return ", ".join(name or "one array without a name" for name in names) or "no array"


def _fitted(array: Any, slot: Slot, recipe: Recipe, source: Source) -> tuple[Any, str]:
    """Return an array in the dtype of the input, and how it was converted."""
    _check_shape(array, slot, source)
    if slot.dtype == "string":
        return _strings(array, slot, source), "given"
    dtype = np.dtype("float32" if slot.dtype in FLOAT32_DTYPES else slot.dtype)
    if (
        array.dtype.kind not in "biuf"
        or (array.dtype.kind == "f" and dtype.kind != "f")
        or (array.dtype.kind != "b" and dtype.kind == "b")
    ):
        raise source.refused(
            "input {} expects {}, but {} has {}", slot.name, slot.dtype, source.short, array.dtype
        )
    _check_range(array, slot, dtype, source)
    _check_ids(array, slot, recipe, source)
    cast = "" if array.dtype == dtype else ", cast from {}".format(array.dtype)
    return array.astype(dtype), "given" + cast


def _strings(array: Any, slot: Slot, source: Source) -> Any:
    """Return text as TensorFlow takes it: bytes in UTF-8."""
    if array.dtype.kind == "O" and all(isinstance(text, (str, bytes)) for text in array.flat):
        flat = [text.encode("utf-8") if isinstance(text, str) else text for text in array.flat]
        encoded = np.empty(len(flat), dtype=object)
        encoded[:] = flat
        return encoded.reshape(array.shape)
    if array.dtype.kind not in "SU":
        raise source.refused(
            "input {} expects strings, but {} has {}", slot.name, source.short, array.dtype
        )
    return (np.char.encode(array, "utf-8") if array.dtype.kind == "U" else array).astype(object)


def _check_shape(array: Any, slot: Slot, source: Source) -> None:
    shape = list(array.shape)
    dims = slot.shape if slot.shape != [] else [None]
    if dims is None:
        return
    if len(shape) != len(dims) or any(
        size not in (None, own) for own, size in zip(shape[1:], dims[1:])
    ):
        raise source.refused(
            "input {} expects the shape {}, but {} has {}",
            slot.name,
            _shape(dims),
            source.short,
            _shape(shape),
        )
    if dims[0] and shape[0] % dims[0]:
        raise source.refused(
            "the model accepts only batches of {} rows, but {} has {} rows for input {}",
            dims[0],
            source.short,
            shape[0],
            slot.name,
        )


def _check_range(array: Any, slot: Slot, dtype: Any, source: Source) -> None:
    """
    Reject values outside the range of the input's dtype: integers would wrap around, and floats
    become infinite.
    """
    if array.dtype.kind == "b" or dtype.kind == "b":
        return
    bounds = np.iinfo(dtype) if dtype.kind in "iu" else np.finfo(dtype)
    finite = array[np.isfinite(array)] if array.dtype.kind == "f" else array
    if finite.size and (finite.min() < bounds.min or finite.max() > bounds.max):
        raise source.refused(
            "input {} expects {}, but {} has values from {} to {}",
            slot.name,
            slot.dtype,
            source.short,
            finite.min(),
            finite.max(),
        )


def _check_ids(array: Any, slot: Slot, recipe: Recipe, source: Source) -> None:
    """
    Refuse ids that are out of range: for them, TensorFlow silently returns zeros on a GPU, and
    fails on a CPU.
    """
    if recipe.limit is None:
        return
    count, layer = recipe.limit
    if not (array.min() >= 0 and array.max() < count):  # NaN is no id either
        text = (
            "input {} is passed to {}, which accepts IDs from 0 to {}, but {} has IDs from {} to {}"
        )
        raise source.refused(
            text, slot.name, layer, count - 1, source.short, array.min(), array.max()
        )


def _shape(shape: Sequence[int | None]) -> str:
    return "({})".format(", ".join("any" if size is None else str(size) for size in shape))
