"""
Reading of HDF5 with h5py's low-level interface: names, shapes and dtypes of datasets, but not their
values.

Soft, external and user-defined links, external storage and virtual datasets are reported and not
followed.
"""

from __future__ import annotations

import errno
import itertools
import math
import os
import re
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import h5py
import numpy as np
from h5py import h5a, h5d, h5g, h5i, h5l, h5o, h5t

from policytool.formats.document import Observation, Tensor
from policytool.formats.hdf5 import text_sizes
from policytool.formats.hdf5.group_links import GroupLinks
from policytool.releases import dtypes
from policytool.support import limits
from policytool.support.files import opening
from policytool.support.files.remote_path import RemotePath
from policytool.support.processes import crash_guard

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import BinaryIO

    from policytool.formats.base import Probe
    from policytool.formats.hdf5.group_links import Link
    from policytool.support.files.random_access import SeekableStream
    from policytool.support.files.remote_path import AnyPath

    _Below = tuple[h5g.GroupID, tuple[str, ...], int]
    """A subgroup, its path and its address."""

_TRUNCATED: Final = re.compile(
    r"truncated file: eof = (\d+), sblock->base_addr = \d+, stored_eof = (\d+)"
)
DAMAGE: Final = (
    RuntimeError,
    OSError,
    LookupError,
    ValueError,
    TypeError,
    OverflowError,
    MemoryError,
    SystemError,
)
"""
The exceptions of h5py for damage, which depend on its location; SystemError if the operating system
fails in a callback.
"""

RECORDING: Final = "recording"
"""The dataset with the JSON text of a recorded run."""

RECORDING_MARK: Final = "policytool-recording"

_LARGE: Final = 4 * 2**20
"""The number of bytes of values that may be declared without being stored, as fill values."""

_CLAIMED: Final = 2**30
"""
The number of bytes that a dataset may declare without storing them; any computer can allocate that
much.
"""

MOST_CHUNKS: Final = 2**14
"""
The maximum number of chunks per read: HDF5 needs 1 KiB of memory for each chunk, stored or not.

Chunks of h5py have at least 16 KiB, and Keras never requests chunks.
"""

_UNSTORED_CHUNKS: Final = 2**10
_UNSTORED_SHARE: Final = 4
"""The maximum number of chunks per stored chunk, if a dataset exceeds the allowed number."""

_SPARE: Final = 64 * 2**20
_CHUNK_COPIES: Final = 4
"""
The number of buffers per chunk: the stored bytes, one for each of two filters, and a buffer that a
filter doubles until the values fit.
"""

BFLOAT16_BYTES: Final = 2
BFLOAT16_EXPONENT_BITS: Final = 8
_UNTYPED: Final = {"opaque16": "bfloat16"}
"""
Stored types without a dtype in HDF5: h5py writes ml_dtypes' bfloat16 as NumPy's ``|V2``. Keras 3
adds the dtype as an attribute in archives, and fails without it (``H5Entry`` in
keras/src/saving/saving_lib.py).
"""
_LINKS: Final = {h5l.TYPE_SOFT: "soft", h5l.TYPE_EXTERNAL: "external"}


class TextsError(ValueError):
    """An attribute that may exceed the size limit of attributes."""


@dataclass
class Contents:
    """The contents of a file; filled during a walk through it."""

    tensors: list[Tensor] = field(default_factory=list)
    observations: list[Observation] = field(default_factory=list)
    has_objects: bool = False
    """Whether a group has the name ``vars``, as in the layout of Keras 2.12 on."""

    names: dict[str, str] = field(default_factory=dict)
    """
    The names of layers (attribute ``name``, Keras 3.6 on) by the path of the parent of ``vars``.
    """

    untyped: list[str] = field(default_factory=list)
    """The paths of datasets of :data:`_UNTYPED` that lack their dtype."""

    single: set[tuple[str, ...]] = field(default_factory=set)
    """The paths of groups that contain one dataset and list one weight (legacy layout)."""

    orders: dict[tuple[str, ...], tuple[str, ...]] = field(default_factory=dict)
    """
    The weights of each layer in the layer's order (attribute ``weight_names``) by the path of the
    layer's group (legacy layout).
    """


@contextmanager
def open_checked(
    probe: Probe, source: AnyPath | SeekableStream, member: str = ""
) -> Iterator[h5py.File]:
    """
    Open HDF5 for reading, without file locks.

    :raises ModelFileError: if it is truncated or damaged.
    """
    with crash_guard.limited_memory():
        file = open_file(probe, source, member)
        try:
            yield file
        except TextsError as error:
            raise probe.failure("h5-limit", f"{_subject(member)}{error}") from error
        except DAMAGE as error:
            raise probe.failure(
                "damaged-h5",
                f"{_subject(member)}is a damaged HDF5 file ({reason(error)}); copy or download it "
                "again",
            ) from error
        finally:
            close(file)


def close(file: h5py.File | BinaryIO) -> None:
    """
    Close a file that was read. Failures are ignored, because the read data do not depend on them.
    """
    with suppress(*DAMAGE):
        file.close()


def open_file(probe: Probe, source: AnyPath | SeekableStream, member: str = "") -> h5py.File:
    """
    Return HDF5 opened for reading, without file locks; the caller closes it.

    :raises ModelFileError: if the file is truncated or has a damaged beginning.
    """
    try:
        if isinstance(source, Path):
            return _open_path(source)
        return _open_stream(
            opening.regular_stream(source)
            if isinstance(source, RemotePath)
            else cast("BinaryIO", source)
        )
    except (opening.NotRegularError, FileNotFoundError, IsADirectoryError):
        raise
    except (OSError, RuntimeError, SystemError) as error:
        if match := _TRUNCATED.search(str(error)):
            raise probe.failure(
                "truncated",
                (
                    f"{_subject(member)}is truncated: it has {match[1]} bytes, but its header "
                    f"declares {match[2]}; copy or download it again"
                ),
            ) from error
        raise probe.failure(
            "damaged-h5",
            f"{_subject(member)}cannot be opened as HDF5 ({reason(error)}); copy or download it "
            "again",
        ) from error


def _open_stream(stream: BinaryIO) -> h5py.File:
    file = h5py.File(stream, "r")
    text_sizes.remember_stream(file.id, stream)
    return file


def _open_path(path: Path) -> h5py.File:
    """
    Open the file at a path.

    The library accepts only a path, not a descriptor. Its file is compared with that of a
    descriptor, because the path may be replaced before the library opens it.
    """
    with opening.regular_file(path) as descriptor:
        file = h5py.File(path, "r", locking=False)
        if not os.path.samestat(os.fstat(descriptor), os.fstat(file.id.get_vfd_handle())):
            close(file)
            raise OSError(errno.ESTALE, "it was replaced while policytool opened it")
        return file


def _subject(member: str) -> str:
    """
    Return the beginning of a message about a member; empty for the file itself, whose messages
    begin with a verb after the path.
    """
    return f"{member} " if member else ""


def is_recording(probe: Probe, file: h5py.File) -> bool:
    """Return whether an open file is a recorded run (``check --record``), of any version."""
    is_there = file.id.links.exists(RECORDING.encode())  # does not follow a link
    return is_there and attribute_text(probe, file, "format") == RECORDING_MARK


def attribute_text(probe: Probe, group: h5py.Group, name: str) -> str | None:
    """
    Return a text attribute of any string type; None if the group does not have it.
    """
    if name not in group.attrs:
        return None
    attribute = group.attrs.get_id(name)
    if attribute.shape != ():
        raise probe.failure(
            "h5-not-keras",
            f"attribute {name} should be text, but is an array of shape {attribute.shape}",
        )
    if attribute.get_type().get_class() != h5t.STRING:
        raise probe.failure(
            "h5-not-keras", f"attribute {name} should be text, but has another type"
        )
    probe.check_limit(
        limits.JSON_BYTES, attribute.get_storage_size(), "h5-limit", f"has an attribute {name} of"
    )
    value = group.attrs[name]
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError as error:
            raise probe.failure(
                "invalid-json", f"attribute {name} is not UTF-8 text (byte {error.start})"
            ) from error
    return str(value)


def group(parent: h5py.Group, name: str) -> h5g.GroupID | None:
    """Return a group by name; None unless a hard link with the name leads to a group."""
    if not is_hard_link(parent, name):
        return None
    item = h5o.open(parent.id, name.encode())
    return item if isinstance(item, h5g.GroupID) else None


def is_hard_link(parent: h5py.Group, name: str) -> bool:
    """Return whether a group has a hard link with a name."""
    links = parent.id.links
    return bool(links.exists(name.encode()) and links.get_info(name.encode()).type == h5l.TYPE_HARD)


def has_group(parent: h5g.GroupID, path: str) -> bool:
    """Return whether every step of a path exists."""
    steps = path.split("/")
    return all(
        parent.links.exists("/".join(steps[:end]).encode()) for end in range(1, len(steps) + 1)
    )


def followed_path(path: str) -> str:
    """
    Return a path as HDF5 resolves it, without empty steps, because Keras 2 lists paths such as
    ``net//conv/kernel:0``.
    """
    return "/".join(step for step in path.split("/") if step not in {"", "."})


def attribute_names(group: h5g.GroupID, name: str) -> tuple[str, ...]:
    """
    Return the names in an attribute that is an array of texts.

    Keras splits an attribute of more than 64 kB into ``name0``, ``name1``, ...
    """
    names: list[str] = []
    for key in _chunks(group, name):
        attribute = h5a.open(group, key)
        if (
            attribute.shape
            and attribute.shape[0]
            and attribute.get_type().get_class() == h5t.STRING
        ):
            _check_texts(group, attribute, name)
            array = np.zeros(attribute.shape, dtype=attribute.dtype)
            attribute.read(array)
            names += [
                value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
                for value in array.ravel().tolist()
            ]
    return tuple(names)


def _check_texts(holder: h5g.GroupID | h5d.DatasetID, attribute: h5a.AttrID, name: str) -> None:
    """Raise an error if the texts of an attribute may be larger than the limit."""
    count, most = attribute.get_space().get_simple_extent_npoints(), attribute.get_storage_size()
    if attribute.get_type().is_variable_str():
        most = count * h5i.get_file_id(holder).get_filesize()
        if limits.H5_TEXT_BYTES.exceeded_message(most):
            size = text_sizes.text_bytes(holder, attribute.name, count)
            most = most if size is None else size
    if excess := limits.H5_TEXT_BYTES.exceeded_message(most):
        raise TextsError(f"has an attribute {name} of up to {excess}")


def _claimed_bytes(dataset: h5d.DatasetID) -> int:
    return int(dataset.get_space().get_simple_extent_npoints()) * int(dataset.get_type().get_size())


def inflation(dataset: h5d.DatasetID) -> str:
    """
    Return, as the end of a sentence, the expansion of a dataset's values over the stored bytes; an
    empty text if it is within the limits.

    Each chunk counts as a whole, even if the dataset is smaller than the chunk or nothing of the
    chunk is stored.
    """
    claimed, stored = (
        max(_claimed_bytes(dataset), _chunk_bytes(dataset)),
        dataset.get_storage_size(),
    )
    excess = (
        limits.H5_RATIO.exceeded_message(-(-claimed // max(stored, 1))) if claimed > _LARGE else ""
    )
    return (
        f"{stored} stored bytes would expand to {claimed} bytes: {excess}"
        if excess
        else _scattering(dataset)
    )


def chunk_shape(dataset: h5d.DatasetID) -> tuple[int, ...]:
    """Return the shape of a dataset's chunks; empty if it has none."""
    if dataset.get_offset() is not None:  # one contiguous block, of which no properties are read
        return ()
    properties = dataset.get_create_plist()
    return tuple(properties.get_chunk()) if properties.get_layout() == h5d.CHUNKED else ()


def chunks_of(shape: tuple[int, ...], chunk: tuple[int, ...]) -> int:
    """Return the number of chunks in a part of a dataset that starts at a chunk's start."""
    return math.prod(-(-size // width) for size, width in zip(shape, chunk, strict=True))


def read(
    dataset: h5d.DatasetID,
    memory: object,
    file: object,
    array: np.ndarray[Any, Any],
    mtype: h5t.TypeID | None,
) -> None:
    """
    Read values, with memory limited to the needs of the chunks, because the size of a chunk after
    its filters is known only after they run, and a single opaque value may be large.
    """
    with crash_guard.limited_memory(_SPARE + _CHUNK_COPIES * _chunk_bytes(dataset)):
        dataset.read(memory, file, array, mtype=mtype)


def _chunk_bytes(dataset: h5d.DatasetID) -> int:
    chunk = chunk_shape(dataset)
    return math.prod(chunk) * int(dataset.get_type().get_size()) if chunk else 0


def _scattering(dataset: h5d.DatasetID) -> str:
    """
    Return, as the end of a sentence, the number of chunks of a dataset that stores too few of them;
    an empty text within the limit.
    """
    chunk = chunk_shape(dataset)
    count = chunks_of(dataset.shape, chunk) if chunk else 0
    if count <= _UNSTORED_CHUNKS or count <= _UNSTORED_SHARE * (stored := dataset.get_num_chunks()):
        return ""
    return f"{count} chunks are more than {_UNSTORED_SHARE} times the {stored} stored chunks"


def walk(probe: Probe, group: h5py.Group, *, attributes: bool = False) -> Contents:
    """
    Return every dataset below ``group`` with its shape and dtype.

    With ``attributes``, also return the names of layers, and the order of weights in groups. A
    group is read completely before the next group is opened, because its metadata are close
    together in the file.

    :raises ModelFileError: if the file exceeds the limits on objects, depth or rank.
    """
    contents = Contents()
    links = GroupLinks(probe)
    parts: list[Contents] = []

    orders: dict[int, tuple[str, ...]] = {}

    def enter(item: h5g.GroupID, path: tuple[str, ...], address: int) -> _WalkFrame:
        """Return a frame of the walk for a group."""
        part = Contents()
        parts.append(part)
        return _WalkFrame(
            item,
            path,
            address,
            part,
            _groups_of(probe, item, path, links.of(item, path, address), part),
        )

    entered = [enter(group.id, (), h5o.get_info(group.id).addr)]
    while entered:
        frame = entered[-1]
        if (below := next(frame.groups, None)) is not None:
            item, path, address = below
            if (
                attributes
                and path[-1] == "vars"
                and (name := _scalar_text(item, b"name")) is not None
            ):
                frame.part.names["/".join(path[:-1])] = name
            entered.append(enter(item, path, address))
            continue
        entered.pop()
        count = frame.below + len(frame.part.tensors)
        if attributes and frame.path and count == 1 and _lists_one_weight(frame.group):
            contents.single.add(frame.path)
        elif attributes and frame.path and count and (order := _weight_order(frame, links, orders)):
            contents.orders[frame.path] = order
        if entered:
            entered[-1].below += count
    for part in parts:
        contents.tensors += part.tensors
        contents.observations += part.observations
        contents.untyped += part.untyped
        contents.has_objects |= part.has_objects
        contents.names |= part.names
    return contents


@dataclass(slots=True)
class _WalkFrame:
    """A group whose subgroups are being visited."""

    group: h5g.GroupID
    path: tuple[str, ...]
    address: int
    part: Contents
    """The contents of the group itself; complete when the walk leaves the group."""

    groups: Iterator[_Below]
    """The subgroups that were not visited yet."""

    below: int = 0
    """The number of datasets in the subgroups that were visited."""


def _groups_of(
    probe: Probe,
    parent: h5g.GroupID,
    path: tuple[str, ...],
    links: Iterable[Link],
    contents: Contents,
) -> Iterator[_Below]:
    """Yield the subgroups of a group, and add its datasets and its other links to the contents."""
    for raw, kind, address in links:
        child = (*path, raw.decode("utf-8", "replace"))
        if kind != h5l.TYPE_HARD:
            contents.observations.append(_link(parent, raw, kind, child))
            continue
        item = h5o.open(parent, raw)
        if isinstance(item, h5g.GroupID):
            contents.has_objects |= raw == b"vars"
            yield item, child, address
        elif isinstance(item, h5d.DatasetID):
            contents.tensors.append(_tensor(probe, item, child, contents))


def _chunks(group: h5g.GroupID, name: str) -> Iterator[bytes]:
    """Yield the names of the parts into which Keras splits a large attribute."""
    if h5a.exists(group, name.encode()):
        yield name.encode()
        return
    for index in itertools.count():
        if not h5a.exists(group, f"{name}{index}".encode()):
            return
        if excess := limits.H5_ATTRIBUTES.exceeded_message(index + 1, counting=True):
            raise TextsError(f"has an attribute {name} that is split into {excess}")
        yield f"{name}{index}".encode()


def _lists_one_weight(group: h5g.GroupID) -> bool:
    """Return whether a group lists a single weight; its name is not read, which takes longer."""
    name = b"weight_names"
    return bool(h5a.exists(group, name) and h5a.open(group, name).shape == (1,))


def _weight_order(
    frame: _WalkFrame, links: GroupLinks, orders: dict[int, tuple[str, ...]]
) -> tuple[str, ...]:
    """Return the order of a group's weights; ``orders`` caches it by the group's address."""
    if frame.address in orders:
        links.count_repeated(len(orders[frame.address]))
    elif h5a.get_num_attrs(frame.group):
        names = attribute_names(frame.group, "weight_names")
        orders[frame.address] = tuple(map(followed_path, names))
    return orders.get(frame.address, ())


def _scalar_text(item: h5g.GroupID | h5d.DatasetID, name: bytes) -> str | None:
    """
    Return a small text attribute; None if it does not exist or has another type, which libhdf5 must
    not convert.
    """
    if not h5a.exists(item, name):
        return None
    attribute = h5a.open(item, name)
    if attribute.shape != () or attribute.get_type().get_class() != h5t.STRING:
        return None
    _check_texts(item, attribute, name.decode())
    array = np.zeros((), dtype=attribute.dtype)
    attribute.read(array)
    value = array.item()
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _link(parent: h5g.GroupID, name: bytes, kind: int, path: tuple[str, ...]) -> Observation:
    """Return the observation that a link was not followed."""
    parent_path = "/".join(path)
    word = _LINKS.get(kind, "user-defined")
    target = ""
    if kind in _LINKS:
        value = parent.links.get_val(name)
        target = " to " + ":".join(
            part.decode("utf-8", "replace")
            for part in (value if isinstance(value, tuple) else (value,))
        )
    article = "an" if word == "external" else "a"
    return Observation(
        code=f"{word}-link",
        message=f"{parent_path} is {article} {word} link{target}; it was not followed",
        where=parent_path,
    )


def _tensor(
    probe: Probe, dataset: h5d.DatasetID, path: tuple[str, ...], contents: Contents
) -> Tensor:
    """Return the description of a dataset."""
    shape = dataset.shape
    if shape is not None and (excess := limits.H5_RANK.exceeded_message(len(shape))):
        raise probe.failure("h5-limit", f"has a dataset {'/'.join(path)} with {excess}")
    if (
        dataset.get_offset() is None
    ):  # only a layout other than one contiguous block of this file can refer to other files
        _observe_layout(dataset, path, contents)
    dtype = _dtype(dataset)
    if dtype in _UNTYPED:
        contents.untyped.append("/".join(path))
    return Tensor(path=path, shape=shape, dtype=_UNTYPED.get(dtype, dtype))


def _observe_layout(dataset: h5d.DatasetID, path: tuple[str, ...], contents: Contents) -> None:
    """Add observations about values outside of the file, and values that are not stored."""
    dataset_path = "/".join(path)
    plist = dataset.get_create_plist()
    if plist.get_layout() == h5d.VIRTUAL:
        contents.observations.append(
            Observation(
                code="virtual-dataset",
                message=(
                    f"{dataset_path} is a virtual dataset whose values are stored elsewhere; it "
                    "was not read"
                ),
                where=dataset_path,
            )
        )
    elif plist.get_external_count():
        target = os.fsdecode(plist.get_external(0)[0])
        contents.observations.append(
            Observation(
                code="external-storage",
                message=f"{dataset_path} stores its values in another file, {target}, which was "
                "not "
                "opened",
                where=dataset_path,
            )
        )
    elif (expansion := _unstored_message(dataset)) is not None:
        contents.observations.append(
            Observation(
                code="unstored-values",
                message=f"{dataset_path} {expansion}; it was not read",
                where=dataset_path,
            )
        )


def _unstored_message(dataset: h5d.DatasetID) -> str | None:
    """
    Return a message if a dataset declares far more values than it stores; None if it is within the
    limits, as every dataset that Keras writes is.
    """
    claimed = _claimed_bytes(dataset)
    if claimed > _CLAIMED and inflation(dataset):
        return f"declares {claimed:,} bytes but stores {dataset.get_storage_size():,}"
    scattering = _scattering(dataset)
    return f"has too many chunks: its {scattering}" if scattering else None


def _dtype(dataset: h5d.DatasetID) -> str:
    """Return the Keras name of a dataset's stored type; ``opaque16`` for bytes without a dtype."""
    stored = dataset.get_type()
    size = stored.get_size()
    match stored.get_class():
        case h5t.FLOAT:
            return _float(stored, size)
        case h5t.INTEGER:
            return f"{'int' if stored.get_sign() == h5t.SGN_2 else 'uint'}{8 * size}"
        case h5t.STRING:
            return "string"
        case h5t.ENUM if size == 1:
            return "bool"
        case h5t.COMPOUND if (
            stored.get_nmembers() == 2  # noqa: PLR2004  # NumPy's complex: a real and an imaginary part
        ):
            return f"complex{8 * size}"
        case h5t.OPAQUE:
            return _opaque(dataset, size)
    return "unknown"


def _float(stored: h5t.TypeFloatID, size: int) -> str:
    if size > BFLOAT16_BYTES:  # only one kind of float is that wide
        return f"float{8 * size}"
    exponent_bits = stored.get_fields()[2]
    if size == 1:
        return {4: "float8_e4m3fn", 5: "float8_e5m2"}.get(exponent_bits, "unknown")
    return "bfloat16" if exponent_bits == BFLOAT16_EXPONENT_BITS else f"float{8 * size}"


def _opaque(dataset: h5d.DatasetID, size: int) -> str:
    name = _scalar_text(dataset, b"dtype")
    if name in dtypes.NAMES:  # Keras 3.0.5 on
        return str(name)
    return f"opaque{8 * size}"


def library() -> str:
    """Return the version of the HDF5 library."""
    return str(h5py.version.hdf5_version)


def reason(error: Exception) -> str:
    """Return the message of h5py, in one line."""
    return str(error).strip("'\" ").splitlines()[0] if str(error) else type(error).__name__
