"""Datasets of HDF5, read in C order a block at a time."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from h5py import h5d, h5g, h5l, h5o, h5s, h5t

from policytool.formats import casting
from policytool.formats.hdf5 import library as _hdf5
from policytool.formats.stored_values.base import BLOCK, ValuesError
from policytool.support import limits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.formats.document import Tensor
    from policytool.formats.stored_values.base import Array

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


def blocks(root: h5g.GroupID, path: tuple[str, ...], tensor: Tensor) -> Iterator[Array]:
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
            yield _read(dataset, slab, tensor.dtype)
    except _hdf5.DAMAGE as error:
        raise ValuesError(f"its values cannot be read ({_hdf5.reason(error)})") from error


def dataset_at(root: h5g.GroupID, path: tuple[str, ...]) -> h5d.DatasetID | None:
    """Return the dataset at a path of hard links; None where there is none."""
    here = _at(root, path)
    return here if isinstance(here, h5d.DatasetID) else None


def holds(root: h5g.GroupID, path: tuple[str, ...]) -> bool:
    """
    Return whether there is a dataset at a path of hard links.

    :raises ValuesError: where the way to it is damaged.
    """
    try:
        return dataset_at(root, path) is not None
    except _hdf5.DAMAGE as error:
        raise ValuesError(f"its values cannot be found ({_hdf5.reason(error)})") from error


def names(root: h5g.GroupID, path: tuple[str, ...], attribute: str) -> tuple[str, ...]:
    """
    Return a group's attribute that is an array of names; none where there is no group, and where
    damage keeps it from being read.
    """
    try:
        group = _at(root, path)
        return _hdf5.attribute_names(group, attribute) if isinstance(group, h5g.GroupID) else ()
    except _hdf5.DAMAGE:
        return ()


def slabs(dataset: h5d.DatasetID) -> Iterator[Slab]:
    """
    Yield slabs that cover a dataset in C order, each within :data:`BLOCK`, or a row of chunks.

    :raises ValuesError: for chunks that have to be held whole and are larger than that.
    """
    shape = dataset.shape
    if not shape:
        if shape is not None:
            yield (), ()
        return
    largest = max(1, BLOCK // max(1, dataset.get_type().get_size()))
    if chunk := _hdf5.chunk_shape(dataset):
        row, count = chunk[0] * math.prod(shape[1:]), _hdf5.chunks_of(shape[1:], chunk[1:])
        held = max(math.prod(chunk), min(row, math.prod(shape))) * dataset.get_type().get_size()
        if held > _ROW:
            raise ValuesError(
                f"its chunks need {held} bytes of memory at once; the maximum is {_ROW}"
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
        step = [1] * len(shape)
        for axis in reversed(range(len(shape))):
            step[axis] = min(max(1, largest // max(1, math.prod(step))), max(shape[axis], 1))
            if step[axis] < shape[axis]:
                break
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


def _at(root: h5g.GroupID, path: tuple[str, ...]) -> object:
    here: Any = root
    for step in path[: limits.H5_DEPTH.value + 1]:
        name = step.encode("utf-8", "surrogateescape")
        if (
            not isinstance(here, h5g.GroupID)
            or not here.links.exists(name)
            or here.links.get_info(name).type != h5l.TYPE_HARD
        ):
            return None
        here = h5o.open(here, name)
    return here


def _check(dataset: h5d.DatasetID) -> None:
    """
    Make sure that the values are in this file, and no more of them than were stored.

    :raises ValuesError: where they are not.
    """
    properties, kind = dataset.get_create_plist(), dataset.get_type()
    if properties.get_layout() == h5d.VIRTUAL or properties.get_external_count():
        raise ValuesError("its values are in another file, which was not opened")
    if kind.get_class() not in _READ or (kind.get_class() == h5t.STRING and kind.is_variable_str()):
        raise ValuesError("its values are neither numbers nor fixed-length text")
    if beyond := _hdf5.inflation(dataset):
        raise ValuesError(f"its {beyond}")


def _read(dataset: h5d.DatasetID, slab: Slab, dtype: str) -> Array:
    kind, bits = dataset.get_type(), _BITS.get(dtype)
    array = np.empty(slab[1], dtype=f"V{kind.get_size()}" if bits else dataset.dtype)
    memory, file = h5s.ALL, h5s.ALL
    if slab[1]:
        memory, file = h5s.create_simple(slab[1]), dataset.get_space()
        file.select_hyperslab(*slab)
    _hdf5.read(
        dataset, memory, file, array, kind if bits or kind.get_class() == h5t.OPAQUE else None
    )
    flat = array.reshape(-1)
    if not bits:
        return flat if flat.dtype.isnative else flat.astype(flat.dtype.newbyteorder("="))
    is_big = kind.get_class() == h5t.FLOAT and kind.get_order() == h5t.ORDER_BE
    numbers = flat.view(np.dtype(bits).newbyteorder(">") if is_big else bits)
    native = numbers.astype(bits) if is_big else numbers
    return native.view(casting.DTYPES[dtype]) if dtype in casting.DTYPES else native
