"""
Creation of a file from the objects of another file: some datasets are cast block by block, some
texts are changed, and the optimizer's state gets a new layout.

HDF5 copies all other objects in their stored form: chunks stay compressed, and links stay links.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import h5py
import numpy as np
from h5py import h5a, h5d, h5g, h5l, h5o, h5p, h5s, h5t
from msgspec import Struct, field

from policytool.formats import casting
from policytool.formats.casting import Counts
from policytool.formats.hdf5 import attributes, datasets
from policytool.formats.hdf5 import library as _hdf5
from policytool.formats.hdf5.datasets import (
    Link,
    dataset_at,
    group_at,
    links_of,
    object_address,
    path_text,
)
from policytool.formats.writing import WriteError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from policytool.formats.edits import Cast, StateSlot
    from policytool.formats.hdf5.datasets import Slab
    from policytool.formats.hdf5.storage import OpenHdf5


BLOCK: Final = 16 * 2**20
"""The maximum number of bytes of a tensor in memory."""

DTYPE_ATTRIBUTE: Final = b"dtype"
"""
The attribute with the name of a dtype for which HDF5 has no type, in Keras 3
(keras/src/saving/saving_lib.py, ``H5Entry``).
"""

_LARGEST_CHUNK: Final = 16 * 2**20
"""The maximum number of values per chunk; h5py uses 1 MiB, and Keras never requests chunks."""

_LARGEST_COMPACT: Final = 64_000
"""The maximum size of a compact dataset, which is in its object header of less than 64 KiB."""


def cast_into(source: h5d.DatasetID, group: h5g.GroupID, name: bytes, cast: Cast) -> Counts:
    """
    Create a dataset with the values of ``source`` in another dtype, and with its layout, filters
    and attributes.

    :raises WriteError: if the source does not match the plan.
    """
    check_cast(source, cast)
    properties, space = source.get_create_plist(), source.get_space()
    properties.set_obj_track_times(False)  # as h5py does: same input, same file
    kind = _type(cast.after)
    if (
        properties.get_layout() == h5d.COMPACT
        and space.get_simple_extent_npoints() * kind.get_size() > _LARGEST_COMPACT
    ):
        properties.set_layout(h5d.CONTIGUOUS)
    if properties.get_layout() == h5d.CHUNKED:
        properties.set_chunk(properties.get_chunk())  # forgets the size of the old type
    dataset = h5d.create(group, name, kind, space, dcpl=properties)
    attributes.copy(source, dataset, excluded={DTYPE_ATTRIBUTE})
    if cast.after == casting.BFLOAT16:
        h5py.Dataset(dataset).attrs[DTYPE_ATTRIBUTE] = cast.after
    counts = Counts()
    for block in cast_blocks(source):
        values, counted = casting.cast(
            datasets.read_slab(source, block, cast.before), cast.before, cast.after, cast.through
        )
        _write(dataset, block, values)
        counts += counted
    return counts


def cast_counts(source: h5d.DatasetID, cast: Cast) -> Counts:
    """
    Return the effects that a cast would have on the values.

    :raises WriteError: if the source does not match the plan.
    """
    check_cast(source, cast)
    return sum(
        (
            casting.cast(
                datasets.read_slab(source, block, cast.before),
                cast.before,
                cast.after,
                cast.through,
            )[1]
            for block in cast_blocks(source)
        ),
        Counts(),
    )


def is_cast(source: h5d.DatasetID, dataset: h5d.DatasetID, cast: Cast) -> bool:
    """Return whether a dataset contains exactly the cast values of ``source``."""
    if (
        stored_dtype(dataset) != cast.after
        or dataset.shape != source.shape
        or h5a.exists(dataset, DTYPE_ATTRIBUTE) != (cast.after == casting.BFLOAT16)
    ):
        return False
    return all(
        casting.cast(
            datasets.read_slab(source, block, cast.before), cast.before, cast.after, cast.through
        )[0].tobytes()
        == datasets.read_slab(dataset, block, cast.after).tobytes()
        for block in cast_blocks(source)
    )


def create_scalar(group: h5g.GroupID, name: bytes, dtype: str, value: float) -> None:
    """Create a scalar dataset."""
    is_bfloat16 = dtype == casting.BFLOAT16
    array = (
        np.array(value, dtype=casting.DTYPES[dtype]).view("V2")
        if is_bfloat16
        else np.array(value, dtype=dtype)
    )
    kind = _type(dtype) if dtype in casting.DTYPES else h5t.py_create(array.dtype, logical=True)
    properties = h5p.create(h5p.DATASET_CREATE)
    properties.set_obj_track_times(False)
    dataset = h5d.create(group, name, kind, h5s.create(h5s.SCALAR), dcpl=properties)
    dataset.write(h5s.ALL, h5s.ALL, array)
    if is_bfloat16:
        h5py.Dataset(dataset).attrs[DTYPE_ATTRIBUTE] = dtype


def is_scalar(dataset: h5d.DatasetID, dtype: str, value: float) -> bool:
    """Return whether a dataset is a scalar with this dtype and value."""
    if dataset.shape != ():
        return False
    if dtype == casting.BFLOAT16:
        expected = np.array(value, dtype=casting.DTYPES[dtype])
        return (
            stored_dtype(dataset) == dtype
            and datasets.read_slab(dataset, ((), ()), dtype).tobytes() == expected.tobytes()
        )
    array = np.zeros((), dtype=dataset.dtype)
    dataset.read(h5s.ALL, h5s.ALL, array)
    return bool(
        dataset.dtype == np.dtype(dtype)
        and array.tobytes() == np.array(value, dtype=dtype).tobytes()
    )


def check_cast(source: h5d.DatasetID, cast: Cast) -> None:
    """
    Check that a dataset matches the plan and can be cast.

    :raises WriteError: if it has another dtype, stores its values elsewhere, or is too large.
    """
    dataset_path = "/".join(cast.tensor)
    dtype = stored_dtype(source)
    if dtype != cast.before:
        raise WriteError(
            "source-changed",
            f"stores {dataset_path} as {dtype or 'another type'}, but the plan expects "
            f"{cast.before}; run again with --preview",
        )
    if cast.after not in casting.DTYPES or (cast.through or cast.after) not in casting.DTYPES:
        raise WriteError(
            "not-rewritable",
            f"{dataset_path} cannot be cast to {cast.through or cast.after}: only floats can be "
            "cast",
        )
    properties = source.get_create_plist()
    if properties.get_layout() == h5d.VIRTUAL or properties.get_external_count():
        raise WriteError(
            "not-rewritable",
            f"{dataset_path} stores its values in another file, which was not read",
        )
    if excess := _hdf5.inflation(source):
        raise WriteError("not-rewritable", f"{dataset_path} was not read: its {excess}")
    if (
        properties.get_layout() == h5d.CHUNKED
        and math.prod(properties.get_chunk()) > _LARGEST_CHUNK
    ):
        raise WriteError(
            "not-rewritable",
            f"{dataset_path} has chunks of {math.prod(properties.get_chunk())} values; the "
            f"maximum is {_LARGEST_CHUNK}",
        )


def stored_dtype(dataset: h5d.DatasetID) -> str | None:
    """Return Keras' name of a stored float dtype; None for other types."""
    kind = dataset.get_type()
    size = kind.get_size()
    match kind.get_class():
        case h5t.FLOAT if (
            size == _hdf5.BFLOAT16_BYTES and kind.get_fields()[2] == _hdf5.BFLOAT16_EXPONENT_BITS
        ):
            return casting.BFLOAT16
        case h5t.FLOAT if f"float{8 * size}" in casting.DTYPES:
            return f"float{8 * size}"
        case h5t.OPAQUE if size == _hdf5.BFLOAT16_BYTES and attributes.stored_text(
            dataset, DTYPE_ATTRIBUTE
        ) in {
            None,
            casting.BFLOAT16.encode(),
        }:
            return casting.BFLOAT16
    return None


def cast_blocks(dataset: h5d.DatasetID) -> Iterator[Slab]:
    """
    Yield blocks of at most :data:`BLOCK` bytes that cover a dataset; the blocks consist of whole
    chunks if the dataset has chunks.
    """
    if dataset.shape is None:
        return
    chunk = _hdf5.chunk_shape(dataset)
    largest = BLOCK // 8  # as float64, the widest dtype
    if chunk:
        largest = min(largest, _hdf5.MOST_CHUNKS * math.prod(chunk))
    yield from datasets.cover(
        dataset.shape,
        datasets.fitting_step(dataset.shape, chunk or (1,) * len(dataset.shape), largest),
    )


def _type(dtype: str) -> h5t.TypeID:
    if dtype == casting.BFLOAT16:
        return h5t.py_create(np.dtype("V2"), logical=True)
    return {"float16": h5t.IEEE_F16LE, "float32": h5t.IEEE_F32LE, "float64": h5t.IEEE_F64LE}[dtype]


def _write(dataset: h5d.DatasetID, block: Slab, values: np.ndarray[Any, Any]) -> None:
    contiguous = np.ascontiguousarray(values).reshape(values.shape)
    is_bfloat16 = contiguous.dtype == casting.DTYPES[casting.BFLOAT16]
    dataset.write(
        *datasets.spaces(dataset, block),
        contiguous.view("V2") if is_bfloat16 else contiguous,
        mtype=dataset.get_type() if is_bfloat16 else None,
    )


STATE: str = "optimizer"
"""The group of the optimizer's state, unless a slot has another group."""


class Rebuild(Struct, frozen=True, kw_only=True):
    """The changes in the new file."""

    casts: Mapping[tuple[str, ...], Cast] = field(default_factory=dict)
    """The casts by the path of their tensor from the root."""

    texts: Mapping[str, str] = field(default_factory=dict)
    """New values of text attributes of the root."""

    state: tuple[StateSlot, ...] | None = None

    @property
    def new_groups(self) -> frozenset[bytes]:
        """The groups at the root that are created again from slots."""
        if self.state is None:
            return frozenset()
        return frozenset(slot.tensor[0].encode() for slot in self.state) or frozenset(
            {STATE.encode()}
        )


def casts_by_address(root: h5g.GroupID, casts: Mapping[tuple[str, ...], Cast]) -> dict[int, Cast]:
    """
    Return the casts by the address of their dataset, so that all hard links to it get the same
    cast.

    :raises WriteError: if a dataset is missing, or if two casts of one dataset differ.
    """
    casts_by_object: dict[int, Cast] = {}
    for path, cast in casts.items():
        dataset = dataset_at(root, path)
        if dataset is None:
            raise WriteError(
                "source-changed",
                f"has no tensor {'/'.join(path)}, which the plan casts; run again with --preview",
            )
        check_cast(dataset, cast)
        other = casts_by_object.setdefault(object_address(dataset), cast)
        if (other.after, other.through) != (cast.after, cast.through):
            raise WriteError(
                "not-rewritable",
                f"{'/'.join(other.tensor)} and {'/'.join(cast.tensor)} are the same "
                "dataset, but the plan casts them differently",
            )
    return casts_by_object


def rebuild(source: OpenHdf5, target: OpenHdf5, changes: Rebuild) -> dict[tuple[str, ...], Counts]:
    """
    Fill an empty file; return the effects of the casts on the values.

    :raises WriteError: if the source does not match the plan, or contains objects that cannot be
        copied.
    """
    work = _Work(source, target, changes)
    work.copy_all()
    if changes.state is not None:
        work.make_state(changes.state)
    return work.counts


class _Work:
    """The state while one file is created."""

    def __init__(self, source: OpenHdf5, target: OpenHdf5, changes: Rebuild) -> None:
        self._source, self._target, self._changes = source, target, changes
        self._old, self._new = source.root, target.root
        self._casts = casts_by_address(self._old, changes.casts)
        self._made: dict[int, bytes] = {object_address(self._old): b"/"}
        """The new path of each copied object by its old address, for more hard links to it."""
        self.counts: dict[tuple[str, ...], Counts] = {}

    def copy_all(self) -> None:
        """Copy every object except the groups that are created again."""
        texts = {
            name.encode(): value.encode("utf-8") for name, value in self._changes.texts.items()
        }
        attributes.copy(self._old, self._new, excluded=texts)
        for name, value in texts.items():
            attributes.copy_text(self._old, self._new, name, value)
        pending: list[tuple[h5g.GroupID, h5g.GroupID, tuple[bytes, ...]]] = [
            (self._old, self._new, ())
        ]
        while pending:
            old, new, path = pending.pop()
            self._target.storage.check()
            for link in links_of(old):
                if not path and link.name in self._changes.new_groups:
                    continue
                below = self._copy_link(old, new, link, (*path, link.name))
                if below is not None:
                    pending.append((*below, (*path, link.name)))

    def make_state(self, slots: tuple[StateSlot, ...]) -> None:
        """Create the groups of the optimizer's state from its slots."""
        for slot in slots:
            self._target.storage.check()
            group, name = self._group(slot.tensor[:-1]), slot.tensor[-1].encode()
            if slot.source is None:
                create_scalar(group, name, slot.dtype or "float32", slot.value or 0.0)
                continue
            dataset = dataset_at(self._old, slot.source)
            if dataset is None:
                raise WriteError(
                    "source-changed",
                    (
                        f"has no tensor {'/'.join(slot.source)}, which the plan keeps; run "
                        "--preview again"
                    ),
                )
            self._copy_dataset(dataset, group, name)

    def _copy_link(
        self, old: h5g.GroupID, new: h5g.GroupID, link: Link, path: tuple[bytes, ...]
    ) -> tuple[h5g.GroupID, h5g.GroupID] | None:
        """
        Copy one link; if it leads to a group that must still be filled, return the old and the new
        group.
        """
        if link.kind == h5l.TYPE_SOFT:
            new.links.create_soft(link.name, old.links.get_val(link.name), lcpl=link.properties)
        elif link.kind == h5l.TYPE_EXTERNAL:
            new.links.create_external(
                link.name, *old.links.get_val(link.name), lcpl=link.properties
            )
        elif link.kind != h5l.TYPE_HARD:
            raise WriteError(
                "not-rewritable",
                f"{path_text(path)} is a user-defined HDF5 link, which cannot be copied to a new "
                "file",
            )
        elif (copied_path := self._made.get(number := object_address(old, link.name))) is not None:
            new.links.create_hard(link.name, self._new, copied_path, lcpl=link.properties)
        else:
            self._made[number] = b"/" + b"/".join(path)
            return self._copy_object(old, new, link)
        return None

    def _copy_object(
        self, old: h5g.GroupID, new: h5g.GroupID, link: Link
    ) -> tuple[h5g.GroupID, h5g.GroupID] | None:
        """Copy the object behind a link; return the old and the new group if it is a group."""
        item = h5o.open(old, link.name)
        if isinstance(item, h5g.GroupID):
            new_group = h5g.create(
                new, link.name, lcpl=link.properties, gcpl=item.get_create_plist()
            )
            attributes.copy(item, new_group)
            return item, new_group
        if isinstance(item, h5d.DatasetID):
            self._copy_dataset(item, new, link.name, link)
        else:
            h5o.copy(old, link.name, new, link.name, lcpl=link.properties)
        return None

    def _copy_dataset(
        self, dataset: h5d.DatasetID, group: h5g.GroupID, name: bytes, link: Link | None = None
    ) -> None:
        """Copy a dataset, with its values cast if a cast is planned."""
        dataset_name = name.decode("utf-8", "replace")
        cast = self._casts.get(object_address(dataset))
        if cast is not None:
            self.counts[cast.tensor] = cast_into(dataset, group, name, cast)
            return
        attributes.refuse_references(dataset.get_type(), dataset_name)
        h5o.copy(dataset, b".", group, name, **({} if link is None else {"lcpl": link.properties}))

    def _group(self, path: tuple[str, ...]) -> h5g.GroupID:
        """
        Return the group at a path of the new file. A group that is created copies the properties
        and attributes of the source's group at that path, if there is one.
        """
        group = self._new
        for depth, step in enumerate(path, start=1):
            name = step.encode()
            if group.links.exists(name):
                group = h5g.open(group, name)
                continue
            old_group = group_at(self._old, path[:depth])
            child = h5g.create(
                group, name, gcpl=None if old_group is None else old_group.get_create_plist()
            )
            if old_group is not None:
                attributes.copy(old_group, child)
            group = child
        return group
