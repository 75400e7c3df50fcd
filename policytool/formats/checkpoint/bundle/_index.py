"""
The index of a checkpoint: a sorted table with an entry for each tensor.

Keys of the slices of partitioned variables are in an encoding that sorts as what it encodes does.
Sources: tensorflow/core/lib/strings/ordered_code.cc, ``EncodeTensorNameSlice`` in
tensorflow/core/util/saved_tensor_slice_util.cc.

The sorted table that a checkpoint's index is: LevelDB's format, without its compression.

Blocks of sorted keys, each without the beginning it shares with the one before; a block that lists
the other blocks; at the end a footer that says where that one is. Every block has a checksum.

Numbers have seven bits a byte, lowest first, as in protobuf and in TensorFlow's string tensors.
Checksums are CRC-32C with the masking of LevelDB's tables, whose stored checksums would otherwise
be checksums of checksums (tensorflow/core/lib/hash/crc32c.h).
"""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, Any, Final

import google_crc32c
from msgspec import Struct

from policytool.formats.checkpoint import MAGIC
from policytool.releases import dtypes
from policytool.support import limits
from policytool.support.errors import BundleError
from policytool.support.text import protobuf_messages
from policytool.support.text.protobuf_splice import read_varint

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from policytool.support.limits import Limit

_MASK: Final = 0xA282EAD8
_ALL: Final = 0xFFFFFFFF


def extend_checksum(checksum: int, data: bytes) -> int:
    """
    Return the checksum of the bytes of ``checksum`` followed by ``data``; 0 is the checksum of no
    bytes.
    """
    result: int = google_crc32c.extend(checksum, data)  # the implementation has no types
    return result


def masked_checksum(checksum: int) -> int:
    """Return the stored form of a checksum."""
    return (((checksum >> 15) | (checksum << 17)) + _MASK) & _ALL


FOOTER: Final = 48
"""Bytes of the footer: two handles of at most 20 bytes together, zeros up to 40, and the magic."""

_TRAILER: Final = struct.Struct("<BI")
"""The bytes after a block: its compression, and the checksum of the block and this byte."""

_UINT32: Final = struct.Struct("<I")


def check_limit(limit: Limit, count: int, claim: str, *, counting: bool = False) -> None:
    """
    Check that a count does not exceed a limit.

    :param claim: the beginning of the error message, such as ``its object graph has``
    :param counting: as in :meth:`policytool.support.limits.Limit.exceeded_message`
    :raises BundleError: if the count exceeds the limit.
    """
    if excess := limit.exceeded_message(count, counting=counting):
        raise BundleError("checkpoint-limit", f"{claim} {excess}")


def is_table(tail: bytes) -> bool:
    """Return whether a file that ends with ``tail`` is a table."""
    return len(tail) >= FOOTER and tail.endswith(MAGIC)


def read_table(data: bytes, name: str) -> Iterator[tuple[bytes, bytes]]:
    """
    Yield the keys and values of the table. Error messages refer to the table as ``name``.

    :raises BundleError: if the table is truncated, damaged, compressed, or exceeds a limit.
    """
    if not is_table(data):
        raise BundleError(
            "truncated",
            f"{name} is truncated or is not the index of a checkpoint; copy or download it again",
        )
    try:
        yield from _pairs(data, name)
    except ValueError as error:
        raise _damage(name, str(error)) from error


def _pairs(data: bytes, name: str) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a table, whose blocks must be in order and within the limits."""
    _, position = _handle(data, len(data) - FOOTER)  # an empty block of TensorFlow
    index, _ = _handle(data, position)
    keys, count, last, free = 0, 0, None, 0
    largest, most = limits.CHECKPOINT_INDEX_BYTES.value, limits.CHECKPOINT_ENTRIES.value
    for separator, handle in _entries(_block(data, index, name), name):
        (offset, size), _ = _handle(handle, 0)
        if offset < free:
            raise ValueError("its blocks overlap")
        free, keys = offset + size, keys + len(separator)
        for key, value in _entries(_block(data, (offset, size), name), name):
            count, keys = count + 1, keys + len(key)
            if last is not None and key <= last:
                raise ValueError("its keys are not sorted")
            if count > most or keys > largest:
                raise _limit_error(name, count, keys)
            last = key
            yield key, value
        if keys > largest:  # blocks may be empty
            raise _limit_error(name, count, keys)


def _limit_error(name: str, count: int, keys: int) -> BundleError:
    if excess := limits.CHECKPOINT_ENTRIES.exceeded_message(count, counting=True):
        return BundleError("checkpoint-limit", f"{name} has {excess}")
    return BundleError(
        "checkpoint-limit",
        f"{name} has keys of {limits.CHECKPOINT_INDEX_BYTES.exceeded_message(keys, counting=True)}",
    )


def _handle(data: bytes, position: int) -> tuple[tuple[int, int], int]:
    """Return the offset and size of a block, and the position after them."""
    offset, position = read_varint(data, position, len(data))
    size, position = read_varint(data, position, len(data))
    return (offset, size), position


def _block(data: bytes, place: tuple[int, int], name: str) -> bytes:
    """Return a block after verifying its checksum."""
    offset, size = place
    end = offset + size
    if end + _TRAILER.size > len(data) - FOOTER:
        raise ValueError(f"a block of {size} bytes at {offset} is outside the file")
    compression, checksum = _TRAILER.unpack_from(data, end)
    if masked_checksum(extend_checksum(0, data[offset : end + 1])) != checksum:
        raise ValueError(f"the block at byte {offset} does not match its checksum")
    if compression:
        compression_name = "Snappy" if compression == 1 else f"method {compression}"
        raise BundleError(
            "checkpoint-unsupported",
            f"{name} is compressed ({compression_name}), but TensorFlow never compresses an "
            "index; save the checkpoint again with TensorFlow",
        )
    return data[offset:end]


def _entries(block: bytes, name: str) -> Iterator[tuple[bytes, bytes]]:
    """
    Yield the keys and values of a block. The list of complete keys at the end of the block is not
    needed for sequential reading.
    """
    if len(block) < _UINT32.size:
        raise ValueError("a block is too short")
    (restarts,) = _UINT32.unpack_from(block, len(block) - _UINT32.size)
    end = len(block) - _UINT32.size * (restarts + 1)
    if end < 0:
        raise ValueError("a block lists more keys than it can contain")
    key, position, longest = b"", 0, limits.CHECKPOINT_KEY_BYTES.value
    while position < end:
        shared, position = read_varint(block, position, end)
        suffix_length, position = read_varint(block, position, end)
        size, position = read_varint(block, position, end)
        if shared > len(key) or suffix_length + size > end - position:
            raise ValueError("an entry is longer than its block")
        if shared + suffix_length > longest:  # before creating the key, which could be long
            raise BundleError(
                "checkpoint-limit",
                f"{name} has a key of "
                f"{limits.CHECKPOINT_KEY_BYTES.exceeded_message(shared + suffix_length)}",
            )
        key = key[:shared] + block[position : position + suffix_length]
        value = position + suffix_length
        position = value + size
        yield key, block[value:position]


def _damage(name: str, reason: str) -> BundleError:
    return BundleError(
        "checkpoint-damaged", f"{name} is damaged: {reason}; copy or download it again"
    )


MARK: Final = b"\x00"
"""The first byte of the key of a slice, the number zero; no key of a variable begins with it."""

WHOLE: Final = -1
"""The length of an extent that covers a dimension."""

_ENDED: Final = b"\x00\x01"
_ESCAPES: Final = {0x00: b"\x00\xff", 0xFF: b"\xff\x00"}


def slice_key(name: bytes, extents: Iterable[tuple[int, int]]) -> bytes:
    """
    Return the key of a variable's slice. ``extents`` has the start and the length of the slice in
    each dimension; the length is :data:`WHOLE` for the whole dimension.
    """
    numbers = [encode_signed(number) for extent in extents for number in extent]
    return (
        MARK
        + b"".join(_ESCAPES.get(byte, bytes((byte,))) for byte in name)
        + _ENDED
        + encode_unsigned(len(numbers) // 2)
        + b"".join(numbers)
    )


def encode_unsigned(number: int) -> bytes:
    """Return an unsigned number's encoding: its length in bytes, then the bytes, big-endian."""
    size = (number.bit_length() + 7) // 8
    return bytes((size,)) + number.to_bytes(size, "big")


def encode_signed(number: int) -> bytes:
    """
    Return the encoding of a signed number. The number of leading ones is the length in bytes; all
    bits are inverted for a negative number.
    """
    bits = (number if number >= 0 else ~number).bit_length()
    size = (
        bits // 7 + 1
    )  # of the eight bits of each byte, one marks the length; one more is the sign
    header = ((1 << size) - 1) << (7 * size)  # `size` ones from the highest of 8 * size bits
    return ((number & ((1 << 8 * size) - 1)) ^ header).to_bytes(size, "big")


UNKNOWN: Final = "unknown"
"""The dtype for a number that no release of TensorFlow defines."""

STRING: Final = "string"
_REFERENCE: Final = 100
"""The difference between the numbers of a dtype and of a reference to it (types.proto)."""


class Entry(Struct, frozen=True, kw_only=True):
    """A tensor in a checkpoint: its dtype, its shape, and the location of its values."""

    key: str
    dtype: str
    """
    The name in Keras, or ``string``, ``resource`` or ``variant``; ``unknown`` for an undefined
    number.
    """

    shape: tuple[int, ...]
    shard: int
    """The number of the shard with the values."""

    offset: int
    size: int
    """The number of stored bytes; for a partitioned variable, the sum over its parts."""

    checksum: int
    """The stored checksum, which is masked."""

    slices: tuple[Part, ...] = ()
    """
    The parts of a partitioned variable (TF 1), in order along the partitioned axis; empty for
    other variables.
    """


class Part(Struct, frozen=True, kw_only=True):
    """One slice of a partitioned variable."""

    start: tuple[int, ...]
    """The start in each dimension; the shape of the entry has the lengths."""

    entry: Entry


def parse(
    key: bytes, value: bytes, name: str
) -> tuple[Entry, tuple[tuple[tuple[int, int], ...], ...]]:
    """
    Return an entry of the index ``name``, without parts, and the extents of its slices: the start
    and the length in each dimension.

    :raises ValueError: for an invalid entry.
    :raises BundleError: for an entry that exceeds a limit.
    """
    check_limit(limits.CHECKPOINT_ENTRY_BYTES, len(value), f"{name} has an entry of")
    try:
        message = protobuf_messages.parse("BundleEntry", value)
    except ValueError as error:
        raise ValueError("an entry is not a protobuf message") from error
    if message.shape.unknown_rank:
        raise ValueError("an entry has no shape")
    check_limit(limits.CHECKPOINT_RANK, len(message.shape.dims), f"{name} has a tensor of")
    entry = Entry(
        key=key.decode("utf-8", "backslashreplace"),
        dtype=dtypes.OF_TENSORFLOW_ENUM.get(message.dtype % _REFERENCE, UNKNOWN),
        shape=tuple(dimension.size for dimension in message.shape.dims),
        shard=message.shard,
        offset=message.offset,
        size=message.size,
        checksum=message.checksum,
    )
    if min((*entry.shape, entry.shard, entry.offset, entry.size)) < 0:
        raise ValueError(f"{entry.key} has a negative size or offset")
    width = dtypes.itemsize(entry.dtype)
    if width and not message.slices and entry.size != width * math.prod(entry.shape):
        raise ValueError(
            f"{entry.key} has {entry.size} bytes, but {entry.dtype} values of shape "
            f"{list(entry.shape)} require a different size"
        )
    return entry, tuple(_extents(entry, slice_message) for slice_message in message.slices)


def assembled_entry(
    entry: Entry,
    key: bytes,
    slices: Iterable[tuple[tuple[int, int], ...]],
    stored: Mapping[bytes, Entry],
) -> Entry:
    """
    Return a partitioned variable's entry with its parts, which ``stored`` contains by the keys of
    slices.

    :raises ValueError: if parts are missing, or if concatenating them along one axis does not give
        the variable.
    """
    parts: list[Part] = []
    for extents in slices:
        slice_entry = stored.get(slice_key(key, extents))
        lengths = tuple(
            size if length == WHOLE else length
            for size, (_, length) in zip(entry.shape, extents, strict=True)
        )
        if slice_entry is None or slice_entry.shape != lengths or slice_entry.dtype != entry.dtype:
            raise ValueError(f"{entry.key} is partitioned, but slices are missing")
        parts.append(Part(start=tuple(start for start, _ in extents), entry=slice_entry))
    parts.sort(key=lambda part: part.start)
    axis = partitioned_axis(entry.shape, parts)
    end = 0
    for part in parts:
        other_starts = tuple(start for index, start in enumerate(part.start) if index != axis)
        if any(other_starts) or part.start[axis] != end:
            raise ValueError(
                f"{entry.key} is partitioned, but its slices do not form a tensor along one axis"
            )
        end += part.entry.shape[axis]
    if end != entry.shape[axis]:
        raise ValueError(
            f"{entry.key} is partitioned, but its slices do not cover the whole tensor"
        )
    return Entry(
        key=entry.key,
        dtype=entry.dtype,
        shape=entry.shape,
        shard=entry.shard,
        offset=entry.offset,
        size=sum(part.entry.size for part in parts),
        checksum=entry.checksum,
        slices=tuple(parts),
    )


def partitioned_axis(shape: tuple[int, ...], parts: Iterable[Part]) -> int:
    """
    Return the only axis along which the parts are shorter than the tensor, or 0 if no part is.

    :raises ValueError: if there are several such axes, or if the tensor has no axis.
    """
    axes = {
        axis for part in parts for axis, size in enumerate(shape) if part.entry.shape[axis] != size
    }
    if len(axes) > 1 or not shape:
        raise ValueError("a variable is partitioned along several axes, or along none")
    return next(iter(axes), 0)


def _extents(
    entry: Entry, message: Any
) -> tuple[tuple[int, int], ...]:  # message classes made at run time have no static type
    """Return the start and the length of a slice in each dimension."""
    if len(message.extents) != len(entry.shape):
        raise ValueError(
            f"a slice of {entry.key} has {len(message.extents)} dimensions, but the "
            f"tensor has {len(entry.shape)}"
        )
    return tuple(
        (extent.start, extent.length if extent.HasField("length") else WHOLE)
        for extent in message.extents
    )
