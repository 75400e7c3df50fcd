"""Groups, attributes and datasets as Keras writes them."""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import h5py
import numpy as np
from h5py import h5a, h5d, h5g, h5p, h5s, h5t

from policytool.formats import casting
from policytool.formats import placed_values as _values
from policytool.formats.casting import Counts
from policytool.formats.hdf5 import storage
from policytool.formats.hdf5.attributes import stored_text
from policytool.formats.hdf5.datasets import OpenGroups, group_at, spaces
from policytool.formats.hdf5.library import attribute_names
from policytool.formats.writers import flat
from policytool.formats.writing import WriteError, difference_error, require_same

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from policytool.formats.document import Values
    from policytool.formats.edits import Counted, Placement
    from policytool.formats.hdf5.storage import OpenHdf5

    Attributes: TypeAlias = Sequence[
        tuple[Sequence[str], Mapping[str, bytes | str | tuple[str, ...] | None]]
    ]
    """
    Groups by path, with the values of their attributes: ASCII text as bytes, UTF-8 text, or an
    array of names.
    """

_LARGEST_ATTRIBUTE: Final = 64_512
"""
The maximum number of bytes of an attribute's value that always fits in an object header
(``HDF5_OBJECT_HEADER_LIMIT`` in Keras' hdf5_format.py).
"""

OPAQUE: Final = {casting.BFLOAT16: "V2", "float8_e4m3fn": "V1", "float8_e5m2": "V1"}
"""
Dtypes without a type in HDF5, and the type that stores them, together with an attribute for the
dtype's name (keras/src/saving/saving_lib.py, ``H5Entry``).
"""


def describe(root: h5g.GroupID, attributes: Attributes) -> None:
    """
    Create groups with their attributes; None means that a group lacks the attribute.

    :raises WriteError: for a name that HDF5 cannot store.
    """
    groups = Groups(root)
    for path, values in attributes:
        group = groups.require(path)
        for name, value in values.items():
            if isinstance(value, bytes):
                # of variable length, which is stored outside the object header of at most 64 KiB
                h5py.Group(group).attrs.create(name, value, dtype=h5py.string_dtype("ascii"))
            elif isinstance(value, str):
                _write_text(group, name, value)
            elif value is not None:
                _write_names(group, name, value)


def check(root: h5g.GroupID, attributes: Attributes) -> None:
    """
    Check the groups and attributes that :func:`describe` wrote.

    :raises WriteError: if a group is missing, or has a different attribute.
    """
    for path, values in attributes:
        group_path = "/".join(flat(path)) or "/"
        group = group_at(root, flat(path))
        if group is None:
            raise difference_error(group_path)
        for name, value in values.items():
            expected = value.encode() if isinstance(value, str) else value
            require_same(
                (
                    attribute_names(group, name)
                    if isinstance(value, tuple)
                    else stored_text(group, name.encode())
                )
                == expected,
                f"the attribute {name} of {group_path}",
            )


def _write_text(item: h5g.GroupID | h5d.DatasetID, attribute: str, value: str) -> None:
    """Write an attribute that is a text, as h5py does. A model has thousands of them."""
    array = np.asarray(value, dtype=h5py.string_dtype())
    kind = h5t.py_create(array.dtype, logical=True)
    h5a.create(item, attribute.encode(), kind, h5s.create(h5s.SCALAR)).write(array)


def _write_names(group: h5g.GroupID, attribute: str, values: Sequence[str]) -> None:
    """
    Write an attribute that is an array of names. If it does not fit in an object header, split it
    into ``attribute0``, ``attribute1``, ...

    :raises WriteError: if a single name is too long.
    """
    data = np.asarray(
        [value.encode() for value in values]
    )  # without names an array of floats, as in Keras
    if data.size and data.dtype.itemsize > _LARGEST_ATTRIBUTE:
        raise WriteError(
            "not-rewritable",
            f"a name in {attribute} is too long for HDF5 (maximum {_LARGEST_ATTRIBUTE} bytes)",
        )
    pieces = [data]
    while any(piece.nbytes > _LARGEST_ATTRIBUTE for piece in pieces):
        pieces = np.array_split(data, len(pieces) + 1)
    group_attributes = h5py.Group(group).attrs
    for number, piece in enumerate(pieces):
        group_attributes[attribute if len(pieces) == 1 else f"{attribute}{number}"] = piece


class Groups(OpenGroups[h5g.GroupID]):
    """The groups of a new file."""

    def require(self, path: Sequence[str]) -> h5g.GroupID:
        """Return the group at a path, and create it if it does not exist."""
        for step in self.close_others(flat(path)):
            name, links = step.encode(), self.last.links
            self.enter(
                step,
                h5g.open(self.last, name)
                if links.exists(name)
                else h5g.create(self.last, name, lcpl=_named(name)),
            )
        return self.last


def _named(name: bytes) -> h5p.PropLCID | None:
    """Return the creation properties of a link, which contain the encoding of its name."""
    if name.isascii():
        return None
    properties = h5p.create(h5p.LINK_CREATE)
    properties.set_char_encoding(h5t.CSET_UTF8)
    return properties


def write_variables(
    draft: Path,
    attributes: Attributes,
    placements: Iterable[tuple[str, Placement]],
    values: Values | None,
    start: int = 0,
) -> Counted:
    """
    Create groups, and the datasets of variables, in an empty draft or at its end; return the
    effects of casts on the values.

    :param placements: the variables, each with the group at which its path starts
    :param start: the position in the draft at which HDF5 starts
    :raises WriteError: for names that HDF5 cannot store, and for values that cannot be written.
    :raises OSError: if the operating system fails, for example because the disk is full.
    """
    with storage.drafting(draft, "w", start) as opened:
        describe(opened.root, attributes)
        groups = Groups(opened.root)
        return {
            placement.path: counts
            for prefix, placement in placements
            if (counts := _variable(opened, groups, prefix, placement, values)) is not None
        }


def _variable(
    opened: OpenHdf5, groups: Groups, prefix: str, placement: Placement, values: Values | None
) -> Counts | None:
    """
    Create the dataset of a variable; return the effects of casts on its values, or None without
    casts.

    :raises WriteError: for values that cannot be written.
    :raises OSError: if the operating system fails, for example because the disk is full.
    """
    *above, name = flat((prefix, *placement.path))
    kind = OPAQUE.get(placement.dtype)
    dataset = h5d.create(
        groups.require(above),
        name.encode(),
        h5t.py_create(np.dtype(kind) if kind else _values.dtype_of(placement), logical=True),
        h5s.create_simple(placement.shape),
        dcpl=_without_times(),
    )
    if kind:
        _write_text(dataset, "dtype", placement.dtype)
    total: Counts | None = None
    value_count = 0
    for block, counts in _values.stored_blocks(placement, values):
        if value_count + block.size <= math.prod(
            placement.shape
        ):  # if there are too many values, the last block reports it
            _write(dataset, value_count, block.view(kind) if kind else block)
        opened.storage.check()
        value_count += block.size
        total = (total or Counts()) + counts if counts is not None else total
    return total


@cache
def _without_times() -> h5p.PropDCID:
    """Return the creation properties of a dataset, without the time at which it is written."""
    properties = h5p.create(h5p.DATASET_CREATE)
    properties.set_obj_track_times(False)
    return properties


def boxes(
    shape: tuple[int, ...], start: int, count: int
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """
    Yield the starts and shapes of boxes that cover, in C order, ``count`` values of an array from
    the ``start``-th value on.
    """
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    while count and shape:
        axis = next(
            axis for axis, stride in enumerate(strides) if start % stride == 0 and stride <= count
        )
        begin = tuple(start // stride % size for stride, size in zip(strides, shape, strict=True))
        width = min(count // strides[axis], shape[axis] - begin[axis])
        yield begin, (*(1 for _ in range(axis)), width, *shape[axis + 1 :])
        start, count = start + width * strides[axis], count - width * strides[axis]
    if count:
        yield (), ()


def _write(dataset: h5d.DatasetID, start: int, block: np.ndarray[Any, Any]) -> None:
    """Write values from the ``start``-th on."""
    kind = dataset.get_type() if block.dtype.kind == "V" else None
    for corner, shape in boxes(dataset.shape, start, block.size):
        count = math.prod(shape)
        piece, block = np.ascontiguousarray(block[:count]).reshape(shape), block[count:]
        dataset.write(*spaces(dataset, (corner, shape)), piece, mtype=kind)
