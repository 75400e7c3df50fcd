"""
Rewriting of HDF5 models, and comparison with their source.

If only texts change, the file is copied and the attributes are changed in the copy. If tensors are
cast, a new file is created from the objects of the old file.

All objects, links, attributes and stored bytes of a written file are compared with its source,
except the planned changes. If stored bytes are the values, they are compared in the file; chunks
are compared in compressed form. Changed values are read back and compared with the expected values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
from h5py import h5a, h5d, h5g, h5i, h5l, h5o
from msgspec import Struct

from policytool.formats import casting
from policytool.formats.hdf5 import attributes, datasets, storage
from policytool.formats.hdf5 import read as layout
from policytool.formats.hdf5.datasets import (
    dataset_at,
    group_at,
    links_of,
    object_address,
    path_text,
)
from policytool.formats.hdf5.rebuild import (
    DTYPE_ATTRIBUTE,
    Rebuild,
    cast_blocks,
    cast_counts,
    casts_by_address,
    is_cast,
    is_scalar,
    rebuild,
)
from policytool.formats.writers import edit_texts
from policytool.formats.writing import WriteError, difference_error, require_same
from policytool.support.files import atomic
from policytool.support.files.atomic import Range, same_ranges

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from policytool.formats.edits import Cast, Counted, StateSlot
    from policytool.formats.hdf5.datasets import Slab
    from policytool.formats.hdf5.storage import OpenHdf5, Storage
    from policytool.formats.writers import Changes, FileChange

    Pair = tuple[h5g.GroupID, h5g.GroupID, tuple[bytes, ...]]
    Placed: TypeAlias = tuple[h5d.DatasetID, Storage]
    Chunk: TypeAlias = tuple[int, int, int]
    """The filter mask, the offset in the file, and the size."""


def compare(source: OpenHdf5, draft: OpenHdf5, changes: Rebuild) -> None:
    """
    Compare a file with its source.

    :raises WriteError: if they differ by anything but the changes.
    """
    old, new = source.root, draft.root
    work = _Comparison(source.storage, draft.storage, casts_by_address(old, changes.casts))
    work.root(old, new, changes)
    if changes.state is not None:
        work.state(old, new, changes.state)


class _Comparison:
    """The comparison of one file."""

    def __init__(self, old: Storage, new: Storage, casts: dict[int, Cast]) -> None:
        self._old, self._new, self._casts = old, new, casts
        self._new_addresses: dict[int, int] = {}
        """The address of an object in the draft by its address in the source."""

        self._compared_addresses: set[int] = set()

    def root(self, old: h5g.GroupID, new: h5g.GroupID, changes: Rebuild) -> None:
        """Compare everything except the groups that are rebuilt."""
        texts = {name.encode(): value.encode("utf-8") for name, value in changes.texts.items()}
        self._attributes(old, new, (), excluded=texts)
        for name, value in texts.items():
            require_same(
                h5a.exists(new, name)
                and attributes.same_text_type(h5a.open(old, name), h5a.open(new, name))
                and attributes.stored_text(new, name) == value,
                name.decode(),
            )
        self._new_addresses[object_address(old)] = object_address(new)
        self._compared_addresses.add(object_address(new))
        pending: list[Pair] = [(old, new, ())]
        while pending:
            old_group, new_group, path = pending.pop()
            pending += self._group(
                old_group, new_group, path, changes.new_groups if not path else ()
            )

    def state(self, old: h5g.GroupID, new: h5g.GroupID, slots: tuple[StateSlot, ...]) -> None:
        """Check that the optimizer's state consists of exactly its slots, with their values."""
        groups = {slot.tensor[:depth] for slot in slots for depth in range(1, len(slot.tensor))}
        expected = {slot.tensor for slot in slots} | groups
        stored_paths = {
            path for name in {slot.tensor[0] for slot in slots} for path in _paths(new, (name,))
        }
        if stored_paths != expected:
            raise difference_error("/".join(min(stored_paths ^ expected)))
        for path in groups:
            old_group, new_group = group_at(old, path), group_at(new, path)
            if old_group is not None and new_group is not None:
                self._attributes(old_group, new_group, tuple(step.encode() for step in path))
        for slot in slots:
            new_dataset, slot_path = (
                dataset_at(new, slot.tensor),
                tuple(step.encode() for step in slot.tensor),
            )
            if new_dataset is None:
                raise difference_error(path_text(slot_path))
            if slot.source is None:
                require_same(
                    is_scalar(new_dataset, slot.dtype or "float32", slot.value or 0.0),
                    path_text(slot_path),
                )
            elif (dataset := dataset_at(old, slot.source)) is not None:
                self._dataset(dataset, new_dataset, slot_path)

    def _group(
        self,
        old: h5g.GroupID,
        new: h5g.GroupID,
        path: tuple[bytes, ...],
        excluded: Collection[bytes],
    ) -> Iterator[Pair]:
        """Compare two groups, and yield the pairs of their subgroups."""
        old_links, new_links = (
            {link.name: link for link in links_of(group) if link.name not in excluded}
            for group in (old, new)
        )
        require_same(old_links == new_links, path_text(path))
        for link in old_links.values():
            child_path = (*path, link.name)
            if link.kind == h5l.TYPE_HARD:
                yield from self._object(old, new, child_path)
            elif link.kind in {h5l.TYPE_SOFT, h5l.TYPE_EXTERNAL} and old.links.get_val(
                link.name
            ) != new.links.get_val(link.name):
                raise difference_error(path_text(child_path))

    def _object(
        self, old: h5g.GroupID, new: h5g.GroupID, path: tuple[bytes, ...]
    ) -> Iterator[Pair]:
        """
        Compare two objects, and yield them with their path if they are groups. An object that was
        compared before must be linked at the same places in both files.
        """
        old_address, new_address = object_address(old, path[-1]), object_address(new, path[-1])
        if old_address in self._new_addresses or new_address in self._compared_addresses:
            require_same(self._new_addresses.get(old_address) == new_address, path_text(path))
            return
        self._new_addresses[old_address] = new_address
        self._compared_addresses.add(new_address)
        first, second = h5o.open(old, path[-1]), h5o.open(new, path[-1])
        require_same(type(first) is type(second), path_text(path))
        if isinstance(first, h5d.DatasetID):
            self._dataset(first, second, path)
            return
        self._attributes(first, second, path)
        if isinstance(first, h5g.GroupID):
            yield first, second, path
        else:
            require_same(first.equal(second), path_text(path))

    def _attributes(
        self,
        old: attributes.Object,
        new: attributes.Object,
        path: tuple[bytes, ...],
        excluded: Collection[bytes] = (),
    ) -> None:
        """Compare the attributes of two objects."""
        old_names, new_names = (
            {name for name in attributes.names(item) if name not in excluded} for item in (old, new)
        )
        require_same(old_names == new_names, f"the attributes of {path_text(path)}")
        for name in old_names:
            require_same(
                attributes.same_attribute(h5a.open(old, name), h5a.open(new, name)),
                f"the attribute {name.decode('utf-8', 'replace')} of {path_text(path)}",
            )

    def _dataset(self, old: h5d.DatasetID, new: h5d.DatasetID, path: tuple[bytes, ...]) -> None:
        """Compare two datasets, whose values may differ only by a planned cast."""
        cast = self._casts.get(object_address(old))
        if cast is not None:
            self._attributes(old, new, path, excluded={DTYPE_ATTRIBUTE})
            require_same(is_cast(old, new, cast), path_text(path))
            return
        self._attributes(old, new, path)
        require_same(
            old.get_type().equal(new.get_type())
            and old.get_space().get_simple_extent_type() == new.get_space().get_simple_extent_type()
            and old.shape == new.shape
            and (
                old.shape is None
                or old.get_space().get_simple_extent_dims(maxdims=True)
                == new.get_space().get_simple_extent_dims(maxdims=True)
            )
            and _has_same_storage((old, self._old), (new, self._new)),
            path_text(path),
        )


def _paths(root: h5g.GroupID, start: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the paths of all objects below a group."""
    pending = [start]
    while pending:
        path = pending.pop()
        yield path
        group = group_at(root, path)
        if group is not None:
            pending += [
                (*path, link.name.decode("utf-8", "surrogateescape")) for link in links_of(group)
            ]


def _has_same_storage(old: Placed, new: Placed) -> bool:
    """Return whether two datasets of one type and shape have the same storage and values."""
    old_properties, new_properties = old[0].get_create_plist(), new[0].get_create_plist()
    layout = old_properties.get_layout()
    if layout != new_properties.get_layout() or _filters(old_properties) != _filters(
        new_properties
    ):
        return False
    if (
        layout == h5d.VIRTUAL
        or old_properties.get_external_count()
        or new_properties.get_external_count()
    ):
        return bool(
            old_properties.equal(new_properties)
        )  # the values are in other files, which are not opened
    if layout == h5d.CHUNKED and old_properties.get_chunk() != new_properties.get_chunk():
        return False
    if not attributes.is_plain(old[0].get_type()):
        return _same_values(old[0], new[0])
    if layout == h5d.CHUNKED:
        return (
            _same_chunks_after_user_block(old[0], new[0])
            if _has_user_block(old[0]) or _has_user_block(new[0])
            else _same_chunks(old, new)
        )
    ranges = [_contiguous(*placed) for placed in (old, new)]
    return (
        same_ranges(ranges[0], ranges[1])
        if ranges[0] and ranges[1]
        else _same_values(old[0], new[0])
    )


def _contiguous(dataset: h5d.DatasetID, storage: Storage) -> Range | None:
    """
    Return the range of a dataset's bytes in the file; None if they are in its header or not stored.
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
    old_chunks, new_chunks = _chunks(old[0]), _chunks(new[0])
    return old_chunks.keys() == new_chunks.keys() and all(
        mask == new_chunks[place][0]
        and same_ranges(_range(old, start, size), _range(new, *new_chunks[place][1:]))
        for place, (mask, start, size) in old_chunks.items()
    )


def _has_user_block(dataset: h5d.DatasetID) -> bool:
    return bool(h5i.get_file_id(dataset).get_create_plist().get_userblock())


def _same_chunks_after_user_block(old: h5d.DatasetID, new: h5d.DatasetID) -> bool:
    """
    Return whether chunks after a user block are equal, without using their offsets, which HDF5 1.14
    and 2.0 count from different ends of the user block.
    """
    chunk_offsets = _chunks(old).keys()
    return chunk_offsets == _chunks(new).keys() and all(
        old.read_direct_chunk(place) == new.read_direct_chunk(place) for place in chunk_offsets
    )


def _range(placed: Placed, start: int, size: int) -> Range:
    return Range(descriptor=placed[1].descriptor, start=placed[1].start + start, size=size)


def _chunks(dataset: h5d.DatasetID) -> dict[tuple[int, ...], Chunk]:
    """Return the chunks by their offset in the dataset."""
    chunks: dict[tuple[int, ...], Chunk] = {}
    dataset.chunk_iter(
        lambda info: chunks.update(
            {info.chunk_offset: (info.filter_mask, info.byte_offset, info.size)}
        )
    )
    return chunks


def _same_values(old: h5d.DatasetID, new: h5d.DatasetID) -> bool:
    return all(_freeze_block(old, block) == _freeze_block(new, block) for block in cast_blocks(old))


def _freeze_block(dataset: h5d.DatasetID, block: Slab) -> object:
    kind = dataset.get_type()
    as_stored = (np.dtype(f"V{kind.get_size()}"), kind)
    return attributes.freeze(
        datasets.read_as(
            dataset, block, *(as_stored if attributes.is_plain(kind) else (dataset.dtype, None))
        )
    )


def _filters(properties: h5d.PropDCID) -> list[object]:
    return [properties.get_filter(index) for index in range(properties.get_nfilters())]


_PARTS: Final = (layout.CONFIG, layout.TRAINING)


class Hdf5Change(Struct, frozen=True, kw_only=True):
    """The changes to texts, tensors and optimizer state in an HDF5 file."""

    rebuild: Callable[[OpenHdf5], Rebuild]
    """Returns the changes for the new file."""

    def measure(self, source: Path) -> Counted:
        """Return the effects that casts would have on the values."""
        with storage.reading(source) as opened:
            return measure(opened, self.rebuild(opened))

    def write(self, source: Path, draft: Path) -> Counted:
        """Write the changed source into an empty draft."""
        with storage.reading(source) as opened:
            changes = self.rebuild(opened)
            if changes.casts or changes.state is not None:
                with storage.creating(draft, opened) as target:
                    return rebuild(opened, target, changes)
            old = {
                name.encode(): attributes.stored_text(opened.root, name.encode()) or b""
                for name in changes.texts
            }
            variable = {
                name: text
                for name, text in old.items()
                if attributes.is_variable(opened.root, name)
            }
        atomic.copy_file(source, draft)
        for name, text in variable.items():
            storage.wipe(draft, name, text)
        with storage.drafting(draft, "r+") as target:
            for part, new in changes.texts.items():
                attributes.change_text(target.file, part.encode(), new.encode("utf-8"))
        return {}

    def compare(self, source: Path, draft: Path) -> None:
        """Compare a draft with its source."""
        with storage.reading(source) as opened, storage.reading(draft) as target:
            compare(opened, target, self.rebuild(opened))


def measure(opened: OpenHdf5, changes: Rebuild) -> Counted:
    """Return the effects that casts would have on the values of an open file."""
    casts_by_address(opened.root, changes.casts)  # checks that all datasets exist
    datasets = {path: dataset_at(opened.root, path) for path in changes.casts}
    return {cast.tensor: cast_counts(datasets[path], cast) for path, cast in changes.casts.items()}


def file_changes(_path: Path, changes: Changes) -> Mapping[str, FileChange]:
    """
    Return the change to the file.

    :raises WriteError: for changes that HDF5 models do not support.
    """
    if changes.state is not None:
        raise WriteError(
            "not-rewritable", "the optimizer state of an HDF5 model cannot be rearranged"
        )
    casts = _casts_from_root(changes.casts)
    return {
        "": Hdf5Change(
            rebuild=lambda opened: Rebuild(
                casts=casts, texts=edit_texts(texts(opened), changes.edits)
            )
        )
    }


def texts(opened: OpenHdf5) -> Mapping[str, str]:
    """Return the model's config and its training config."""
    return {
        part: text.decode("utf-8")
        for part, text in {
            part: attributes.stored_text(opened.root, part.encode()) for part in _PARTS
        }.items()
        if text is not None
    }


def _casts_from_root(casts: Sequence[Cast]) -> Mapping[tuple[str, ...], Cast]:
    """
    Return the casts by path from the root. The paths of layers' tensors are relative to the group
    of weights; the paths of the optimizer's tensors are relative to the root.
    """
    bfloat16 = next((cast for cast in casts if cast.after == casting.BFLOAT16), None)
    if bfloat16 is not None:
        raise WriteError(
            "not-rewritable",
            f"{'/'.join(bfloat16.tensor)} cannot be stored as bfloat16: no release can read "
            "this dtype from HDF5",
        )
    return {
        cast.tensor
        if cast.path is None and cast.tensor[:1] == (layout.OPTIMIZER,)
        else (layout.WEIGHTS, *cast.tensor): cast
        for cast in casts
    }
