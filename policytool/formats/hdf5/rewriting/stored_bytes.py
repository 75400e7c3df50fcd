"""
Datasets compared as they are stored: bytes in the file where these are the values, chunks as they
are compressed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from h5py import h5d, h5i, h5s

from policytool.formats.hdf5 import library as _hdf5
from policytool.formats.hdf5.rewriting import attributes, tensors
from policytool.support.files.byte_ranges import Range, equal

if TYPE_CHECKING:
    from policytool.formats.hdf5.rewriting.storage import Storage

    Placed: TypeAlias = tuple[h5d.DatasetID, Storage]

    Chunk: TypeAlias = tuple[int, int, int]
    """Filter mask, place in the file, size."""


def same(old: Placed, new: Placed) -> bool:
    """Return whether two datasets of one type and shape are stored alike and hold the same."""
    one, other = old[0].get_create_plist(), new[0].get_create_plist()
    layout = one.get_layout()
    if layout != other.get_layout() or _filters(one) != _filters(other):
        return False
    if layout == h5d.VIRTUAL or one.get_external_count() or other.get_external_count():
        return bool(one.equal(other))  # the values lie in other files, which are not opened
    if layout == h5d.CHUNKED and one.get_chunk() != other.get_chunk():
        return False
    if not attributes.is_plain(old[0].get_type()):
        return _same_values(old[0], new[0])
    if layout == h5d.CHUNKED:
        return (
            _same_chunks_behind(old[0], new[0])
            if _has_user_block(old[0]) or _has_user_block(new[0])
            else _same_chunks(old, new)
        )
    ranges = [_contiguous(*placed) for placed in (old, new)]
    return equal(ranges[0], ranges[1]) if ranges[0] and ranges[1] else _same_values(old[0], new[0])


def _contiguous(dataset: h5d.DatasetID, storage: Storage) -> Range | None:
    """
    Return where the bytes of a dataset are; None where they are in its header, or nowhere yet.
    """
    start = dataset.get_offset()
    return (
        None
        if start is None
        else Range(
            descriptor=storage.descriptor,
            start=storage.start + start,
            size=dataset.get_storage_size(),
        )
    )


def _same_chunks(old: Placed, new: Placed) -> bool:
    ones, others = _chunks(old[0]), _chunks(new[0])
    return ones.keys() == others.keys() and all(
        mask == others[place][0]
        and equal(_range(old, start, size), _range(new, *others[place][1:]))
        for place, (mask, start, size) in ones.items()
    )


def _has_user_block(dataset: h5d.DatasetID) -> bool:
    return bool(h5i.get_file_id(dataset).get_create_plist().get_userblock())


def _same_chunks_behind(old: h5d.DatasetID, new: h5d.DatasetID) -> bool:
    """
    Compare chunks behind a user block, from the start or the end of which HDF5 1.14 and 2.0 count
    their places differently.
    """
    places = _chunks(old).keys()
    return places == _chunks(new).keys() and all(
        old.read_direct_chunk(place) == new.read_direct_chunk(place) for place in places
    )


def _range(placed: Placed, start: int, size: int) -> Range:
    return Range(descriptor=placed[1].descriptor, start=placed[1].start + start, size=size)


def _chunks(dataset: h5d.DatasetID) -> dict[tuple[int, ...], Chunk]:
    """Return the chunks by where they begin in the dataset."""
    found: dict[tuple[int, ...], Chunk] = {}
    dataset.chunk_iter(
        lambda info: found.update(
            {info.chunk_offset: (info.filter_mask, info.byte_offset, info.size)}
        )
    )
    return found


def _same_values(old: h5d.DatasetID, new: h5d.DatasetID) -> bool:
    return all(
        _freeze_block(old, block) == _freeze_block(new, block) for block in tensors.blocks(old)
    )


def _freeze_block(dataset: h5d.DatasetID, block: tensors.Block) -> object:
    start, shape = block
    kind = dataset.get_type()
    is_plain = attributes.is_plain(kind)
    array = np.zeros(shape, dtype=f"V{kind.get_size()}" if is_plain else dataset.dtype)
    memory, file = h5s.ALL, h5s.ALL
    if shape:
        memory, file = h5s.create_simple(shape), dataset.get_space()
        file.select_hyperslab(start, shape)
    _hdf5.read(dataset, memory, file, array, kind if is_plain else None)
    return attributes.freeze(array)


def _filters(properties: h5d.PropDCID) -> list[object]:
    return [properties.get_filter(index) for index in range(properties.get_nfilters())]
