"""
The size in bytes of an attribute's texts, which the library returns only after reading them.

Texts of any length are kept in heaps, and an attribute holds references to them: a length, an
address and a number for each (HDF5 file format specification 3.0, IV.A.2.m and VIII.B). Several may
lead to one text, so that a small file can name more than memory holds. The lengths are read from
the object's header here.
"""

from __future__ import annotations

import os
import struct
from functools import partial
from typing import TYPE_CHECKING, BinaryIO, Final
from weakref import WeakValueDictionary

from h5py import h5i, h5o
from msgspec import Struct

from policytool.support.files.random_access import positioned_read

if TYPE_CHECKING:
    from collections.abc import Iterator

    from h5py import h5d, h5f, h5g

    from policytool.support.files.random_access import PositionedRead

_REFERENCE: Final = struct.Struct("<I12x")
_SIZES: Final = (8, 8)
"""The sizes of offsets and lengths in bytes that the library uses by default."""

_OLD: Final = struct.Struct("<BxH4xI4x")
_OLD_MESSAGE: Final = struct.Struct("<HHB3x")
_NEW_MESSAGE: Final = struct.Struct("<BHB")
_CONTINUATION: Final = struct.Struct("<QQ")
_ATTRIBUTE_HEAD: Final = struct.Struct("<BBHHH")
_ATTRIBUTE_TYPE: Final = 0x0C
_CONTINUATION_TYPE: Final = 0x10
_SHARED: Final = 0x02
_MOST: Final = 2**20
"""The maximum number of bytes read of a header; a header for thousands of layers has 64 KiB."""

_Message = tuple[int, int, bytes]
"""The type, the flags and the body of a message."""

_Part = tuple[int, int]
"""The offset and the size of a part of a header."""


_streams: Final[WeakValueDictionary[int, BinaryIO]] = WeakValueDictionary()
"""The streams from which h5py reads open files, by the library's number of the file."""


class _Make(Struct, frozen=True, kw_only=True):
    """The layout of the messages in a header."""

    head: struct.Struct
    """The type, length and flags of a message."""

    extra: int = 0
    """The number of bytes between the flags and the body, with the creation order."""

    before: int = 0
    """The number of bytes of a continuation before its messages, with a signature."""

    behind: int = 0
    """The number of bytes of a continuation after its messages, with a checksum."""


def remember_stream(file: h5f.FileID, stream: BinaryIO) -> None:
    """Record the stream from which h5py reads a file, because the library has only descriptors."""
    _streams[h5o.get_info(file).fileno] = stream


def text_bytes(holder: h5g.GroupID | h5d.DatasetID, name: bytes, count: int) -> int | None:
    """
    Return the total size of an attribute's texts in bytes.

    None if the file cannot be read without the HDF5 library, or if the attribute is not stored in
    the object's header.

    :param count: the number of texts in the attribute
    """
    file = h5i.get_file_id(holder)
    if file.get_create_plist().get_sizes() != _SIZES:
        return None
    try:
        info = h5o.get_info(holder)
        stream = _streams.get(info.fileno)
        read = positioned_read(stream) if stream else partial(os.pread, file.get_vfd_handle())
        start = file.get_create_plist().get_userblock()
        matches = [
            data
            for kind, flags, body in _messages(read, start, info.addr)
            if kind == _ATTRIBUTE_TYPE
            and not flags & _SHARED
            and (data := _attribute_data(body, name)) is not None
        ]
    except (OSError, RuntimeError, ValueError, struct.error):
        return None  # not a file of the operating system, or an unsupported header version
    if len(matches) != 1 or len(matches[0]) < count * _REFERENCE.size:
        return None
    return sum(
        int(length) for (length,) in _REFERENCE.iter_unpack(matches[0][: count * _REFERENCE.size])
    )


def _messages(read: PositionedRead, start: int, address: int) -> Iterator[_Message]:
    """
    Yield the messages of an object's header, in all its parts.

    :raises ValueError: for a header with an unsupported version, and for too large a header.
    """
    head = read(64, start + address)
    layout, part = _new_make(address, head) if head[:4] == b"OHDR" else _old_make(address, head)
    parts, remaining = [part], _MOST
    while parts:
        place, size = parts.pop()
        remaining -= size
        if remaining < 0:
            raise ValueError(size)
        data = read(size, start + place)
        position = 0
        while position + layout.head.size + layout.extra <= len(data):
            kind, length, flags = layout.head.unpack_from(data, position)
            position += layout.head.size + layout.extra
            body = data[position : position + length]
            position += length
            if kind == _CONTINUATION_TYPE:
                place, part_size = _CONTINUATION.unpack_from(body)
                parts.append((place + layout.before, part_size - layout.before - layout.behind))
            yield kind, flags, body


def _old_make(address: int, head: bytes) -> tuple[_Make, _Part]:
    """Return the layout of a header of version 1, and its first part."""
    version, _, size = _OLD.unpack_from(head)
    if version != 1:
        raise ValueError(version)
    return _Make(head=_OLD_MESSAGE), (address + _OLD.size, size)


def _new_make(address: int, head: bytes) -> tuple[_Make, _Part]:
    """Return the layout of a header of version 2, and its first part."""
    flags = head[5]
    width = 1 << (flags & 3)
    before = 6 + (16 if flags & 0x20 else 0) + (4 if flags & 0x10 else 0)
    size = int.from_bytes(head[before : before + width], "little")
    return _Make(head=_NEW_MESSAGE, extra=2 if flags & 0x04 else 0, before=4, behind=4), (
        address + before + width,
        size,
    )


def _attribute_data(body: bytes, name: bytes) -> bytes | None:
    """Return the data of an attribute message; None for an attribute of another name."""
    version, _, *sizes = _ATTRIBUTE_HEAD.unpack_from(body)
    position = _ATTRIBUTE_HEAD.size + (1 if version == 3 else 0)  # noqa: PLR2004  # a character set
    if body[position : position + sizes[0]].rstrip(b"\0") != name:
        return None
    padded = [-(-size // 8) * 8 for size in sizes] if version == 1 else sizes
    return body[position + sum(padded) :]
