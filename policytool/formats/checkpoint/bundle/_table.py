"""
The sorted table that a checkpoint's index is: LevelDB's format, without its compression.

Blocks of sorted keys, each without the beginning it shares with the one before; a block that lists
the other blocks; at the end a footer that says where that one is. Every block has a checksum.

Numbers have seven bits a byte, lowest first, as in protobuf and in TensorFlow's string tensors.
Checksums are CRC-32C with the masking of LevelDB's tables, whose stored checksums would otherwise
be checksums of checksums (tensorflow/core/lib/hash/crc32c.h).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import google_crc32c

from policytool.formats.checkpoint import MAGIC
from policytool.support import limits
from policytool.support.errors import BundleError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.support.limits import Limit


_LONGEST: Final = 10
"""Bytes of a number of 64 bits."""

_MORE: Final = 0x80


def read_varint(data: bytes, position: int, end: int) -> tuple[int, int]:
    """
    Return the number at ``position`` and the position after it.

    :raises ValueError: where it does not end before ``end``, or is longer than any number of 64
        bits.
    """
    value = 0
    for index in range(_LONGEST):
        if position + index >= end:
            break
        byte = data[position + index]
        value |= (byte & ~_MORE) << 7 * index
        if byte < _MORE:
            return value, position + index + 1
    raise ValueError(f"no valid number at byte {position}")


_MASK: Final = 0xA282EAD8
_ALL: Final = 0xFFFFFFFF


def extend_checksum(checksum: int, data: bytes) -> int:
    """
    Return the checksum of what ``checksum`` is of, followed by ``data``; 0 is that of nothing.
    """
    result: int = google_crc32c.extend(checksum, data)  # it is typed, and its implementation is not
    return result


def masked_checksum(checksum: int) -> int:
    """Return a checksum as it is stored."""
    return (((checksum >> 15) | (checksum << 17)) + _MASK) & _ALL


FOOTER: Final = 48
"""Bytes of the footer: two handles of at most 20 bytes together, zeros up to 40, and the magic."""

_TRAILER: Final = struct.Struct("<BI")
"""After a block: how it is compressed, and the checksum of both."""

_UINT32: Final = struct.Struct("<I")


def check_limit(limit: Limit, count: int, claim: str, *, counting: bool = False) -> None:
    """
    Make sure that a count is within a limit.

    :param claim: how a sentence about more begins, such as ``its object graph has``
    :param counting: as :meth:`policytool.support.limits.Limit.exceeded_message` takes it
    :raises BundleError: beyond the limit.
    """
    if excess := limit.exceeded_message(count, counting=counting):
        raise BundleError("checkpoint-limit", f"{claim} {excess}")


def is_table(tail: bytes) -> bool:
    """Return whether a file that ends with ``tail`` is a table."""
    return len(tail) >= FOOTER and tail.endswith(MAGIC)


def read_table(data: bytes, name: str) -> Iterator[tuple[bytes, bytes]]:
    """
    Yield the keys and values of the table, which errors call ``name``.

    :raises BundleError: for a table that is truncated, damaged, compressed or beyond the bounds.
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
    _, position = _handle(data, len(data) - FOOTER)  # of a block that TensorFlow leaves empty
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
    """Return a block, verified."""
    offset, size = place
    end = offset + size
    if end + _TRAILER.size > len(data) - FOOTER:
        raise ValueError(f"a block of {size} bytes at {offset} is outside the file")
    compression, checksum = _TRAILER.unpack_from(data, end)
    if masked_checksum(extend_checksum(0, data[offset : end + 1])) != checksum:
        raise ValueError(f"the block at byte {offset} does not match its checksum")
    if compression:
        how = "Snappy" if compression == 1 else f"method {compression}"
        raise BundleError(
            "checkpoint-unsupported",
            f"{name} is compressed ({how}), but TensorFlow never compresses an index; save "
            "the checkpoint again with TensorFlow",
        )
    return data[offset:end]


def _entries(block: bytes, name: str) -> Iterator[tuple[bytes, bytes]]:
    """
    Yield the keys and values of a block; its end lists where keys are whole, which a reader from
    front to back does not need.
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
        own, position = read_varint(block, position, end)
        size, position = read_varint(block, position, end)
        if shared > len(key) or own + size > end - position:
            raise ValueError("an entry is longer than its block")
        if shared + own > longest:  # before it is made: each could be as long as the block
            raise BundleError(
                "checkpoint-limit",
                f"{name} has a key of {limits.CHECKPOINT_KEY_BYTES.exceeded_message(shared + own)}",
            )
        key = key[:shared] + block[position : position + own]
        value = position + own
        position = value + size
        yield key, block[value:position]


def _damage(name: str, reason: str) -> BundleError:
    return BundleError(
        "checkpoint-damaged", f"{name} is damaged: {reason}; copy or download it again"
    )
