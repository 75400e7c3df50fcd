"""Datasets that get another dtype, block by block."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import h5py
import numpy as np
from h5py import h5a, h5d, h5p, h5s, h5t

from policytool.formats import casting
from policytool.formats.casting import Counts
from policytool.formats.hdf5 import datasets
from policytool.formats.hdf5 import library as _hdf5
from policytool.formats.hdf5.rewriting import attributes
from policytool.formats.writing.failures import WriteError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from h5py import h5g

    from policytool.formats.edits import Cast
    from policytool.formats.hdf5.datasets import Slab


BLOCK: Final = 16 * 2**20
"""The most that is held of a tensor at once."""

NAME: Final = b"dtype"
"""
The attribute in which Keras 3 names a dtype that HDF5 has no type for
(keras/src/saving/saving_lib.py, ``H5Entry``).
"""

_BFLOAT16_BYTES: Final = 2
_BFLOAT16_EXPONENT_BITS: Final = 8
_LARGEST_CHUNK: Final = 16 * 2**20
"""Values of a chunk, which is read whole; h5py makes them of 1 MiB, and Keras asks for none."""

_LARGEST_COMPACT: Final = 64_000
"""A compact dataset lies in its object header, whose messages hold less than 64 KiB."""


def cast_into(source: h5d.DatasetID, group: h5g.GroupID, name: bytes, cast: Cast) -> Counts:
    """
    Make a dataset that holds the values of ``source`` in another dtype, with its layout, filters
    and attributes.

    :raises WriteError: where the source is not what the plan says.
    """
    check(source, cast)
    properties, space = source.get_create_plist(), source.get_space()
    properties.set_obj_track_times(False)  # as h5py writes them: the same input makes the same file
    kind = _type(cast.after)
    if (
        properties.get_layout() == h5d.COMPACT
        and space.get_simple_extent_npoints() * kind.get_size() > _LARGEST_COMPACT
    ):
        properties.set_layout(h5d.CONTIGUOUS)
    if properties.get_layout() == h5d.CHUNKED:
        properties.set_chunk(properties.get_chunk())  # forgets the size of the old type
    made = h5d.create(group, name, kind, space, dcpl=properties)
    attributes.copy(source, made, without={NAME})
    if cast.after == casting.BFLOAT16:
        h5py.Dataset(made).attrs[NAME] = cast.after
    counts = Counts()
    for block in blocks(source):
        values, counted = casting.cast(
            datasets.read_slab(source, block, cast.before), cast.before, cast.after, cast.through
        )
        _write(made, block, values)
        counts += counted
    return counts


def measure(source: h5d.DatasetID, cast: Cast) -> Counts:
    """
    Return what a cast would do to the values.

    :raises WriteError: where the source is not what the plan says.
    """
    check(source, cast)
    counts = (
        casting.cast(
            datasets.read_slab(source, block, cast.before), cast.before, cast.after, cast.through
        )[1]
        for block in blocks(source)
    )
    return sum(counts, Counts())


def is_cast(source: h5d.DatasetID, made: h5d.DatasetID, cast: Cast) -> bool:
    """Return whether a dataset holds, bit by bit, the cast values of another, in its layout."""
    if (
        stored_dtype(made) != cast.after
        or made.shape != source.shape
        or h5a.exists(made, NAME) != (cast.after == casting.BFLOAT16)
    ):
        return False
    return all(
        casting.cast(
            datasets.read_slab(source, block, cast.before), cast.before, cast.after, cast.through
        )[0].tobytes()
        == datasets.read_slab(made, block, cast.after).tobytes()
        for block in blocks(source)
    )


def scalar(group: h5g.GroupID, name: bytes, dtype: str, value: float) -> None:
    """Make a dataset of one value."""
    is_bfloat16 = dtype == casting.BFLOAT16
    array = (
        np.array(value, dtype=casting.DTYPES[dtype]).view("V2")
        if is_bfloat16
        else np.array(value, dtype=dtype)
    )
    kind = _type(dtype) if dtype in casting.DTYPES else h5t.py_create(array.dtype, logical=True)
    properties = h5p.create(h5p.DATASET_CREATE)
    properties.set_obj_track_times(False)
    made = h5d.create(group, name, kind, h5s.create(h5s.SCALAR), dcpl=properties)
    made.write(h5s.ALL, h5s.ALL, array)
    if is_bfloat16:
        h5py.Dataset(made).attrs[NAME] = dtype


def is_scalar(made: h5d.DatasetID, dtype: str, value: float) -> bool:
    """Return whether a dataset is the one value that :func:`scalar` makes."""
    if made.shape != ():
        return False
    if dtype == casting.BFLOAT16:
        expected = np.array(value, dtype=casting.DTYPES[dtype])
        return (
            stored_dtype(made) == dtype
            and datasets.read_slab(made, ((), ()), dtype).tobytes() == expected.tobytes()
        )
    found = np.zeros((), dtype=made.dtype)
    made.read(h5s.ALL, h5s.ALL, found)
    return bool(
        made.dtype == np.dtype(dtype) and found.tobytes() == np.array(value, dtype=dtype).tobytes()
    )


def check(source: h5d.DatasetID, cast: Cast) -> None:
    """
    Make sure that a dataset is the one that the plan speaks of.

    :raises WriteError: where it has another dtype, or keeps its values elsewhere.
    """
    where = "/".join(cast.tensor)
    found = stored_dtype(source)
    if found != cast.before:
        raise WriteError(
            "source-changed",
            f"stores {where} as {found or 'another type'}, but the plan expects "
            f"{cast.before}; run again with --preview",
        )
    if cast.after not in casting.DTYPES or (cast.through or cast.after) not in casting.DTYPES:
        raise WriteError(
            "not-rewritable",
            f"{where} cannot be cast to {cast.through or cast.after}: only floats can be cast",
        )
    properties = source.get_create_plist()
    if properties.get_layout() == h5d.VIRTUAL or properties.get_external_count():
        raise WriteError(
            "not-rewritable", f"{where} stores its values in another file, which was not read"
        )
    if beyond := _hdf5.inflation(source):
        raise WriteError("not-rewritable", f"{where} was not read: its {beyond}")
    if (
        properties.get_layout() == h5d.CHUNKED
        and math.prod(properties.get_chunk()) > _LARGEST_CHUNK
    ):
        raise WriteError(
            "not-rewritable",
            f"{where} has chunks of {math.prod(properties.get_chunk())} values; the "
            f"maximum is {_LARGEST_CHUNK}",
        )


def stored_dtype(dataset: h5d.DatasetID) -> str | None:
    """Return Keras' name of a stored float dtype; None for other types."""
    kind = dataset.get_type()
    size = kind.get_size()
    match kind.get_class():
        case h5t.FLOAT if (
            size == _BFLOAT16_BYTES and kind.get_fields()[2] == _BFLOAT16_EXPONENT_BITS
        ):
            return casting.BFLOAT16
        case h5t.FLOAT if f"float{8 * size}" in casting.DTYPES:
            return f"float{8 * size}"
        case h5t.OPAQUE if size == _BFLOAT16_BYTES and attributes.stored_text(dataset, NAME) in {
            None,
            casting.BFLOAT16.encode(),
        }:
            return casting.BFLOAT16
    return None


def blocks(dataset: h5d.DatasetID) -> Iterator[Slab]:
    """
    Yield blocks of at most :data:`BLOCK` bytes that cover a dataset, made of whole chunks where it
    has some.
    """
    if dataset.shape is None:
        return
    chunk = _hdf5.chunk_shape(dataset)
    largest = BLOCK // 8  # as float64, the widest there is
    if chunk:
        largest = min(largest, _hdf5.MOST_CHUNKS * math.prod(chunk))
    step = datasets.fitting_step(dataset.shape, chunk or (1,) * len(dataset.shape), largest)
    yield from datasets.cover(dataset.shape, step)


def _type(dtype: str) -> h5t.TypeID:
    if dtype == casting.BFLOAT16:
        return h5t.py_create(np.dtype("V2"), logical=True)
    return {"float16": h5t.IEEE_F16LE, "float32": h5t.IEEE_F32LE, "float64": h5t.IEEE_F64LE}[dtype]


def _write(dataset: h5d.DatasetID, block: Slab, values: np.ndarray[Any, Any]) -> None:
    plain = np.ascontiguousarray(values).reshape(values.shape)
    is_bfloat16 = plain.dtype == casting.DTYPES[casting.BFLOAT16]
    dataset.write(
        *datasets.spaces(dataset, block),
        plain.view("V2") if is_bfloat16 else plain,
        mtype=dataset.get_type() if is_bfloat16 else None,
    )
