"""
The values of HDF5 files: complete models, weights files, and files in Keras 3's layout.

Datasets are located by hard links; other links are not followed. Values are read in C order, a
block at a time.
"""

from __future__ import annotations

import itertools
import math
from posixpath import commonprefix
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import numpy as np
from h5py import h5, h5d, h5g, h5l, h5o, h5p, h5s, h5t
from msgspec import Struct

from policytool.formats import casting
from policytool.formats.document import BLOCK, DamagedValuesError, Values, ValuesError, by_number
from policytool.formats.hdf5 import library
from policytool.formats.hdf5 import library as _hdf5
from policytool.formats.hdf5.read import WEIGHTS
from policytool.releases import dtypes
from policytool.support import limits
from policytool.support.files import opening
from policytool.support.processes import crash_guard

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from policytool.formats.document import Array, Tensor

    Slab = tuple[tuple[int, ...], tuple[int, ...]]
    """The start and the shape of a block."""
    from collections.abc import Iterable
    from contextlib import ExitStack

    import h5py

    from policytool.formats.base import Probe
    from policytool.formats.document import Document
    from policytool.support.files.remote_path import AnyPath


GroupType = TypeVar("GroupType")


class Link(Struct, frozen=True, kw_only=True):
    """One link of a group."""

    name: bytes
    kind: int
    cset: int

    @property
    def properties(self) -> h5p.PropLCID:
        """The creation properties for a copy of this link."""
        link_properties = h5p.create(h5p.LINK_CREATE)
        link_properties.set_char_encoding(self.cset)
        return link_properties


def links_of(group: h5g.GroupID) -> list[Link]:
    """Return the links of a group in creation order if the file stores it, otherwise by name."""
    group_links: list[Link] = []
    is_ordered = group.get_create_plist().get_link_creation_order() & h5p.CRT_ORDER_TRACKED
    group.links.iterate(
        lambda name, info: group_links.append(Link(name=name, kind=info.type, cset=info.cset)),
        idx_type=h5.INDEX_CRT_ORDER if is_ordered else h5.INDEX_NAME,
        info=True,
    )
    return group_links


def object_address(group: h5g.GroupID, name: bytes = b".") -> int:
    """Return the address of an object in its file, which all hard links to it share."""
    low, high = h5g.get_objinfo(group, name).objno
    return int(low | high << 64)


def object_at(root: h5g.GroupID, path: Sequence[str]) -> h5g.GroupID | h5d.DatasetID | None:
    """
    Return the group or dataset at a path of hard links; None if it does not exist, or if the path
    exceeds the depth limit of models.
    """
    return HardLinks(root).object_at(path)


class OpenGroups(Generic[GroupType]):
    """
    The groups of the latest path, which stay open, because the variables of a layer are read or
    written one after the other.
    """

    def __init__(self, root: GroupType) -> None:
        self._open: list[tuple[str, GroupType]] = [("", root)]

    @property
    def last(self) -> GroupType:
        """The innermost open group."""
        return self._open[-1][1]

    def close_others(self, path: Sequence[str]) -> Sequence[str]:
        """Close the groups that are not on a path; return the steps from the last one on."""
        depth = len(commonprefix([list(path), [step for step, _ in self._open[1:]]]))
        del self._open[depth + 1 :]
        return path[depth:]

    def enter(self, step: str, group: GroupType) -> None:
        """Keep a group of the last one open."""
        self._open.append((step, group))


class HardLinks(OpenGroups[h5g.GroupID]):
    """The objects at paths of hard links."""

    def object_at(self, path: Sequence[str]) -> h5g.GroupID | h5d.DatasetID | None:
        """Return the object at a path, as the function :func:`object_at`."""
        if len(path) > limits.H5_DEPTH.value + 1:
            return None
        steps = self.close_others(path)
        item: object = self.last
        for step in steps:
            name = step.encode("utf-8", "surrogateescape")
            if not isinstance(item, h5g.GroupID):
                return None
            links = item.links
            if not links.exists(name) or links.get_info(name).type != h5l.TYPE_HARD:
                return None
            item = h5o.open(item, name)
            if isinstance(item, h5g.GroupID):
                self.enter(step, item)
        return item if isinstance(item, h5g.GroupID | h5d.DatasetID) else None


def dataset_at(root: h5g.GroupID, path: Sequence[str]) -> h5d.DatasetID | None:
    """Return the dataset at a path of hard links; None if it does not exist."""
    item = object_at(root, path)
    return item if isinstance(item, h5d.DatasetID) else None


def group_at(root: h5g.GroupID, path: Sequence[str]) -> h5g.GroupID | None:
    """Return the group at a path of hard links; None if it does not exist."""
    item = object_at(root, path)
    return item if isinstance(item, h5g.GroupID) else None


def path_text(path: tuple[bytes, ...]) -> str:
    """Return a path as messages show it."""
    return b"/".join(path).decode("utf-8", "replace") or "/"


_BITS: Final = {"bfloat16": "u2", "float8_e4m3fn": "u1", "float8_e5m2": "u1"}
"""
Dtypes that NumPy lacks and HDF5 cannot convert, with the unsigned integers of the same size.
"""

_ROW: Final = 32 * BLOCK
"""
The maximum number of bytes of chunks in memory: chunks are read completely, and C order needs a row
of chunks.
"""

_READ: Final = frozenset({h5t.INTEGER, h5t.FLOAT, h5t.OPAQUE, h5t.ENUM, h5t.COMPOUND, h5t.STRING})


def dataset_blocks(
    files: Iterable[HardLinks], path: tuple[str, ...], tensor: Tensor
) -> Iterator[Array]:
    """
    Yield the values of the dataset at ``path`` in the first file that contains it.

    :raises ValuesError: if the dataset does not exist, or its values cannot be read.
    """
    try:
        items = (links.object_at(path) for links in files)
        dataset = next((item for item in items if isinstance(item, h5d.DatasetID)), None)
        if dataset is None:
            raise ValuesError("the file contains no values for this variable")
        _check(dataset)
        for slab in slabs(dataset):
            yield read_slab(dataset, slab, tensor.dtype).reshape(-1)
    except _hdf5.DAMAGE as error:
        raise DamagedValuesError(f"its values cannot be read ({_hdf5.reason(error)})") from error


def names_at(root: h5g.GroupID, path: tuple[str, ...], attribute: str) -> tuple[str, ...]:
    """
    Return the names in an attribute of a group; empty if the group does not exist or is damaged.
    """
    try:
        group = group_at(root, path)
        return _hdf5.attribute_names(group, attribute) if group is not None else ()
    except _hdf5.DAMAGE:
        return ()


def slabs(dataset: h5d.DatasetID) -> Iterator[Slab]:
    """
    Yield slabs that cover a dataset in C order: at most :data:`BLOCK` bytes or a row of chunks.

    :raises ValuesError: for chunks that are too large or too many to be read at once.
    """
    shape = dataset.shape
    if shape is None:
        return
    value_size = dataset.get_type().get_size()
    largest = max(1, BLOCK // max(1, value_size))
    if chunk := _hdf5.chunk_shape(dataset):
        rows = _chunk_rows(shape, chunk, value_size, largest)
        step = [rows * chunk[0], *shape[1:]]
    else:
        step = fitting_step(shape, (1,) * len(shape), largest)
    yield from cover(shape, step)


def _chunk_rows(
    shape: tuple[int, ...], chunk: tuple[int, ...], value_size: int, largest: int
) -> int:
    """
    Return how many rows of chunks a slab has; at least one.

    :param largest: the number of values of a slab, if a row of chunks does not have more
    :raises ValuesError: if a row is too large.
    """
    row_values = chunk[0] * math.prod(shape[1:])
    row_chunks = _hdf5.chunks_of(shape[1:], chunk[1:])
    needed_bytes = max(math.prod(chunk), min(row_values, math.prod(shape))) * value_size
    if needed_bytes > _ROW:
        raise ValuesError(
            f"its chunks need {needed_bytes} bytes of memory at once; the maximum is {_ROW}"
        )
    if row_chunks > _hdf5.MOST_CHUNKS:
        raise ValuesError(
            f"{row_chunks} of its chunks must be read at once; the maximum is {_hdf5.MOST_CHUNKS}"
        )
    fitting = min(largest // max(1, row_values), _hdf5.MOST_CHUNKS // max(1, row_chunks))
    return max(1, fitting)


def fitting_step(shape: Sequence[int], chunk: Sequence[int], largest: int) -> list[int]:
    """
    Return the shape of the largest slabs that consist of whole chunks and have at most ``largest``
    values.
    """
    step = list(chunk)
    for axis in reversed(range(len(shape))):
        step[axis] = min(
            step[axis] * max(1, largest // max(1, math.prod(step))), max(shape[axis], 1)
        )
        if step[axis] < shape[axis]:
            break
    return step


def cover(shape: Sequence[int], step: Sequence[int]) -> Iterator[Slab]:
    """
    Yield the slabs of shape ``step`` that cover an array of shape ``shape``. The last slabs along
    each axis are cut at its end.
    """
    for start in itertools.product(
        *(range(0, size, max(width, 1)) for size, width in zip(shape, step, strict=True))
    ):
        yield (
            start,
            tuple(
                min(width, size - first)
                for first, size, width in zip(start, shape, step, strict=True)
            ),
        )


def _check(dataset: h5d.DatasetID) -> None:
    """
    Check that a dataset's values are in this file and do not expand far beyond the stored bytes.

    :raises ValuesError: if they are elsewhere, expand too far, or have an unsupported type.
    """
    if dataset.get_offset() is None:  # not one contiguous block of this file
        properties = dataset.get_create_plist()
        if properties.get_layout() == h5d.VIRTUAL or properties.get_external_count():
            raise ValuesError("its values are in another file, which was not opened")
    kind = dataset.get_type()
    if kind.get_class() not in _READ or (kind.get_class() == h5t.STRING and kind.is_variable_str()):
        raise ValuesError("its values are neither numbers nor fixed-length text")
    if excess := _hdf5.inflation(dataset):
        raise ValuesError(f"its {excess}")


def read_slab(dataset: h5d.DatasetID, slab: Slab, dtype: str) -> Array:
    """Return the values of a slab in the machine's byte order, with NumPy's form of the dtype."""
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
    Return a slab as an array of a dtype. HDF5 does not convert values if ``kind`` is the dataset's
    type.
    """
    array = np.zeros(slab[1], dtype=dtype)
    _hdf5.read(dataset, *spaces(dataset, slab), array, kind)
    return array


def spaces(dataset: h5d.DatasetID, slab: Slab) -> tuple[Any, Any]:
    """Return the data spaces of a slab in memory and in the file."""
    start, shape = slab
    if shape == dataset.shape:
        return h5s.ALL, h5s.ALL
    space = dataset.get_space()
    space.select_hyperslab(start, shape)
    return h5s.create_simple(shape), space


_LARGE: Final = 64 * 2**20
"""The number of bytes of values in all datasets that may be declared without being stored."""


def open_values(probe: Probe, document: Document, stack: ExitStack) -> Values:
    """
    Open the values of a file.

    :raises ModelFileError: if the file is truncated or has a damaged beginning.
    """
    if reason := reason_not_to_read((probe.path,), document):
        return UnreadValues(reason)
    stack.enter_context(crash_guard.limited_memory())
    file = library.open_file(probe, probe.path)
    stack.callback(library.close, file)
    return Hdf5Values(file, document)


def open_files(
    probe: Probe, paths: Sequence[AnyPath], document: Document, stack: ExitStack
) -> Values:
    """
    Open the values of one model in several files in Keras 3's layout.

    :raises ModelFileError: if a file is truncated or has a damaged beginning.
    """
    if reason := reason_not_to_read(paths, document):
        return UnreadValues(reason)
    stack.enter_context(crash_guard.limited_memory())
    files = []
    for path in paths:
        files.append(library.open_file(probe, path, path.name))
        stack.callback(library.close, files[-1])
    return KerasValues(files)


def reason_not_to_read(files: Iterable[AnyPath], document: Document) -> str:
    """
    Return the reason why values are not read: they would expand too far beyond the size of the
    files. Return an empty text if they are within the limit.

    Each dataset on its own may be within the limit: a dataset that is stored once can appear at any
    number of places, and the values of small datasets may not be stored at all.
    """
    stored = max(sum(map(opening.file_size, files)), 1)
    claims = (
        dtypes.itemsize(tensor.dtype) * math.prod(tensor.shape or ())
        for tensor in (*(document.tensors or ()), *document.state)
    )
    # a dataset with a larger claim is rejected on its own
    claimed = sum(claim for claim in claims if claim <= stored * limits.H5_RATIO.value)
    excess = limits.H5_RATIO.exceeded_message(-(-claimed // stored)) if claimed > _LARGE else ""
    return f"all datasets together would expand {excess}" if excess else ""


class UnreadValues(Values):
    """The values of a file that exceeds the limit on values, and is not read."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def blocks(self, tensor: Tensor) -> Iterator[Array]:  # noqa: ARG002  # of no tensor
        """Raise the reason for every tensor."""
        raise ValuesError(self._reason)


class Hdf5Values:
    """The values of one open file."""

    def __init__(self, file: h5py.File, document: Document) -> None:
        self._root = file.id
        self._links = HardLinks(file.id)
        self._prefix = (WEIGHTS,) if document.format == "h5" else ()
        self._state = frozenset(document.state)
        self._orders: dict[tuple[str, ...], dict[str, int]] = {}

    def blocks(self, tensor: Tensor) -> Iterator[Array]:
        """Yield a tensor's values; see :class:`policytool.formats.document.Values`."""
        return dataset_blocks(
            (self._links,),
            tensor.path if tensor in self._state else (*self._prefix, *tensor.path),
            tensor,
        )

    def in_order(self, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return a layer's tensors in the order of its group's ``weight_names``."""
        return tuple(sorted(tensors, key=self._rank))

    def _rank(self, tensor: Tensor) -> int:
        """Return the position of a tensor in the names that its group lists."""
        for end in range(1, len(tensor.path)):
            rank = self._order(tensor.path[:end]).get("/".join(tensor.path[end:]))
            if rank is not None:
                return rank
        return 0

    def _order(self, path: tuple[str, ...]) -> dict[str, int]:
        """Return the position of each name; the first position of a duplicate name."""
        if path not in self._orders:
            names = names_at(self._root, (*self._prefix, *path), "weight_names")
            self._orders[path] = {
                _hdf5.followed_path(name): place for place, name in reversed(list(enumerate(names)))
            }
        return self._orders[path]


class KerasValues:
    """The values of a model's weights files in Keras 3's layout."""

    def __init__(self, files: Sequence[h5py.File]) -> None:
        self._files = [HardLinks(file.id) for file in files]

    def blocks(self, tensor: Tensor) -> Iterator[Array]:
        """Yield a tensor's values; see :class:`policytool.formats.document.Values`."""
        return dataset_blocks(self._files, tensor.path, tensor)

    def in_order(self, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return the tensors by path, in which numbers give the order of the layer's variables."""
        return by_number(tensors)
