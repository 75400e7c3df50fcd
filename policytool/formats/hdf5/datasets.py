"""Datasets of HDF5, read in C order a block at a time."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from h5py import h5d, h5s, h5t

from policytool.formats import casting
from policytool.formats.hdf5 import library as _hdf5
from policytool.formats.hdf5.links import dataset_at, group_at
from policytool.formats.stored_values import BLOCK, ValuesError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from h5py import h5g

    from policytool.formats.document import Tensor
    from policytool.formats.stored_values import Array

    Slab = tuple[tuple[int, ...], tuple[int, ...]]
    """Where a block begins, and its shape."""

_BITS: Final = {"bfloat16": "u2", "float8_e4m3fn": "u1", "float8_e5m2": "u1"}
"""
Dtypes that NumPy lacks and HDF5 converts in no way, with the unsigned integers that have their
bits.
"""

_ROW: Final = 32 * BLOCK
"""
The most bytes of chunks that are held at once: a chunk is read whole, and a row of them makes the
values of C order.
"""

_READ: Final = frozenset({h5t.INTEGER, h5t.FLOAT, h5t.OPAQUE, h5t.ENUM, h5t.COMPOUND, h5t.STRING})


def dataset_blocks(root: h5g.GroupID, path: tuple[str, ...], tensor: Tensor) -> Iterator[Array]:
    """
    Yield the values of the dataset at ``path``.

    :raises ValuesError: where there is none, or its values cannot be read.
    """
    try:
        dataset = dataset_at(root, path)
        if dataset is None:
            raise ValuesError("the file contains no values for this variable")
        _check(dataset)
        for slab in slabs(dataset):
            yield read_slab(dataset, slab, tensor.dtype).reshape(-1)
    except _hdf5.DAMAGE as error:
        raise ValuesError(f"its values cannot be read ({_hdf5.reason(error)})") from error


def has_dataset(root: h5g.GroupID, path: tuple[str, ...]) -> bool:
    """
    Return whether there is a dataset at a path of hard links.

    :raises ValuesError: where the way to it is damaged.
    """
    try:
        return dataset_at(root, path) is not None
    except _hdf5.DAMAGE as error:
        raise ValuesError(f"its values cannot be found ({_hdf5.reason(error)})") from error


def names_at(root: h5g.GroupID, path: tuple[str, ...], attribute: str) -> tuple[str, ...]:
    """
    Return a group's attribute that is an array of names; none where there is no group, and where
    damage keeps it from being read.
    """
    try:
        group = group_at(root, path)
        return _hdf5.attribute_names(group, attribute) if group is not None else ()
    except _hdf5.DAMAGE:
        return ()


def slabs(dataset: h5d.DatasetID) -> Iterator[Slab]:
    """
    Yield slabs that cover a dataset in C order, each within :data:`BLOCK`, or a row of chunks.

    :raises ValuesError: for chunks that are too large or too many to be read at once.
    """
    shape = dataset.shape
    if shape is None:
        return
    largest = max(1, BLOCK // max(1, dataset.get_type().get_size()))
    if chunk := _hdf5.chunk_shape(dataset):
        row, count = chunk[0] * math.prod(shape[1:]), _hdf5.chunks_of(shape[1:], chunk[1:])
        needed_bytes = (
            max(math.prod(chunk), min(row, math.prod(shape))) * dataset.get_type().get_size()
        )
        if needed_bytes > _ROW:
            raise ValuesError(
                f"its chunks need {needed_bytes} bytes of memory at once; the maximum is {_ROW}"
            )
        if count > _hdf5.MOST_CHUNKS:
            raise ValuesError(
                f"{count} of its chunks must be read at once; the maximum is {_hdf5.MOST_CHUNKS}"
            )
        step = [
            max(1, min(largest // max(1, row), _hdf5.MOST_CHUNKS // max(1, count))) * chunk[0],
            *shape[1:],
        ]
    else:
        step = fitting_step(shape, (1,) * len(shape), largest)
    yield from cover(shape, step)


def fitting_step(shape: Sequence[int], chunk: Sequence[int], largest: int) -> list[int]:
    """Return the shape of the largest slabs, made of whole chunks, of so many values."""
    step = list(chunk)
    for axis in reversed(range(len(shape))):
        fitting = max(1, largest // max(1, math.prod(step)))
        step[axis] = min(step[axis] * fitting, max(shape[axis], 1))
        if step[axis] < shape[axis]:
            break
    return step


def cover(shape: Sequence[int], step: Sequence[int]) -> Iterator[Slab]:
    """Yield slabs of a shape that cover another, the last of each row cut at its end."""
    for start in itertools.product(
        *(range(0, size, max(width, 1)) for size, width in zip(shape, step, strict=True))
    ):
        yield (
            start,
            tuple(
                min(width, size - begin)
                for begin, size, width in zip(start, shape, step, strict=True)
            ),
        )


def _check(dataset: h5d.DatasetID) -> None:
    """
    Check that a dataset's values are in this file and do not expand far beyond the stored bytes.

    :raises ValuesError: if they are elsewhere, expand too far, or have an unsupported type.
    """
    properties, kind = dataset.get_create_plist(), dataset.get_type()
    if properties.get_layout() == h5d.VIRTUAL or properties.get_external_count():
        raise ValuesError("its values are in another file, which was not opened")
    if kind.get_class() not in _READ or (kind.get_class() == h5t.STRING and kind.is_variable_str()):
        raise ValuesError("its values are neither numbers nor fixed-length text")
    if excess := _hdf5.inflation(dataset):
        raise ValuesError(f"its {excess}")


def read_slab(dataset: h5d.DatasetID, slab: Slab, dtype: str) -> Array:
    """Return values in the machine's byte order, as NumPy has the Keras dtype."""
    kind, bits = dataset.get_type(), _BITS.get(dtype)
    is_float = kind.get_class() == h5t.FLOAT
    if not bits:
        is_opaque = kind.get_class() == h5t.OPAQUE
        stored = casting.DTYPES.get(dtype) if is_float else None
        array = read_as(dataset, slab, stored or dataset.dtype, kind if is_opaque else None)
        return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
    array = read_as(dataset, slab, np.dtype(f"V{kind.get_size()}"), kind)
    is_big = is_float and kind.get_order() == h5t.ORDER_BE
    numbers = array.view(np.dtype(bits).newbyteorder(">") if is_big else bits)
    native = numbers.astype(bits) if is_big else numbers
    return native.view(casting.DTYPES[dtype]) if dtype in casting.DTYPES else native


def read_as(
    dataset: h5d.DatasetID, slab: Slab, dtype: np.dtype[Any], kind: h5t.TypeID | None
) -> Array:
    """
    Return a slab as an array of a dtype; HDF5 converts nothing if ``kind`` is the dataset's own.
    """
    array = np.zeros(slab[1], dtype=dtype)
    _hdf5.read(dataset, *spaces(dataset, slab), array, kind)
    return array


def spaces(dataset: h5d.DatasetID, slab: Slab) -> tuple[Any, Any]:
    """Return the data spaces of a slab in memory and in the file."""
    start, shape = slab
    if not shape:
        return h5s.ALL, h5s.ALL
    space = dataset.get_space()
    space.select_hyperslab(start, shape)
    return h5s.create_simple(shape), space
