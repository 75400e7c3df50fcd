"""
What a checkpoint's index says of each tensor, as values; every number is checked before anything
relies on it.

Keys of the slices of partitioned variables are in an encoding that sorts as what it encodes does.
Sources: tensorflow/core/lib/strings/ordered_code.cc, ``EncodeTensorNameSlice`` in
tensorflow/core/util/saved_tensor_slice_util.cc.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from policytool.formats.checkpoint.bundle._table import check_limit
from policytool.releases import dtypes
from policytool.support import limits
from policytool.support.text import protobuf_messages

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


MARK: Final = b"\x00"
"""How the key of a slice begins, and that of no variable: the number zero."""

WHOLE: Final = -1
"""The length of an extent that covers a dimension."""

_ENDED: Final = b"\x00\x01"
_ESCAPES: Final = {0x00: b"\x00\xff", 0xFF: b"\xff\x00"}


def slice_key(name: bytes, extents: Iterable[tuple[int, int]]) -> bytes:
    """
    Return the key of a variable's slice, given as a start and a length (:data:`WHOLE` for all) in
    each dimension.
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
    """Return a number of no sign: how many bytes it takes, and these, highest first."""
    size = (number.bit_length() + 7) // 8
    return bytes((size,)) + number.to_bytes(size, "big")


def encode_signed(number: int) -> bytes:
    """
    Return a number with its sign: as many ones at the front as it takes bytes, all inverted where
    it is negative.
    """
    bits = (number if number >= 0 else ~number).bit_length()
    size = (
        bits // 7 + 1
    )  # of the eight bits of each byte, one marks the length; one more is the sign
    header = ((1 << size) - 1) << (7 * size)  # `size` ones from the highest of 8 * size bits
    return ((number & ((1 << 8 * size) - 1)) ^ header).to_bytes(size, "big")


UNKNOWN: Final = "unknown"
"""The dtype of a number that no release of TensorFlow gave a meaning."""

STRING: Final = "string"
_REFERENCE: Final = 100
"""A dtype's number plus this is a reference to such a tensor (types.proto)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """A tensor in a checkpoint: what it is and where its values lie."""

    key: str
    dtype: str
    """
    Keras' name, also ``string``, ``resource`` and ``variant``; ``unknown`` for a number without a
    name.
    """

    shape: tuple[int, ...]
    shard: int
    """The number of the file that has the values."""

    offset: int
    size: int
    """Bytes stored; of a partitioned variable those of its parts together."""

    checksum: int
    """As it is stored: masked."""

    slices: tuple[Part, ...] = ()
    """
    The parts of a partitioned variable (TF 1), in the order of its one axis that is partitioned;
    none of any other.
    """


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """One slice of a partitioned variable."""

    start: tuple[int, ...]
    """Where it begins in each dimension; it is as long as the shape of its entry says."""

    entry: Entry


def parse(
    key: bytes, value: bytes, name: str
) -> tuple[Entry, tuple[tuple[tuple[int, int], ...], ...]]:
    """
    Return an entry of the index ``name``, without parts, and the extents of its slices: a start and
    a length in each dimension.

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
        rest = tuple(start for index, start in enumerate(part.start) if index != axis)
        if any(rest) or part.start[axis] != end:
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
    Return the one axis along which the parts are shorter than the tensor, the first where none is.

    :raises ValueError: where there are several, or the tensor has no axis.
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
    if len(message.extents) != len(entry.shape):
        raise ValueError(
            f"a slice of {entry.key} has {len(message.extents)} dimensions, but the "
            f"tensor has {len(entry.shape)}"
        )
    return tuple(
        (extent.start, extent.length if extent.HasField("length") else WHOLE)
        for extent in message.extents
    )
