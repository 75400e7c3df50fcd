"""
HDF5 files over which the library goes in circles, made from sound ones by changing some bytes.

HDF5 1.14.2 to 2.0.0 follow both kinds without end. ``python -m tests.helpers.endless DIR`` writes
one of each.
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.helpers.small_models import h5_model, sequential

if TYPE_CHECKING:
    from collections.abc import Callable

_COLLECTION_HEAD: Final = 16
"""Signature, version and size (HDF5 file format, section III.E)."""

_OBJECT_HEAD: Final = 16
"""Index, reference count and size."""


def endless_collection(path: Path) -> Path:
    """
    Write a model whose global heap says that its free space has no bytes: whoever steps over it, to
    read the config, stays where he is.

    The process takes time and no memory.
    """
    data = bytearray(h5_model(path, sequential()).read_bytes())
    offset = data.index(b"GCOL") + _COLLECTION_HEAD
    while (index := struct.unpack_from("<H", data, offset)[0]) != 0:
        size = struct.unpack_from("<Q", data, offset + 8)[0]
        offset += _OBJECT_HEAD + (size + 7) // 8 * 8
    struct.pack_into("<Q", data, offset + 8, index)
    path.write_bytes(data)
    return path


def endless_list(path: Path) -> Path:
    """
    Write a model with a local heap whose first free block is followed by itself: whoever lists a
    group's links takes ever more memory.
    """
    data = bytearray(h5_model(path, sequential()).read_bytes())
    head = data.index(b"HEAP")
    _, free, start = struct.unpack_from("<QQQ", data, head + 8)
    struct.pack_into("<Q", data, start + free, free)
    path.write_bytes(data)
    return path


ENDLESS: Final[dict[str, Callable[[Path], Path]]] = {
    "collection": endless_collection,
    "list": endless_list,
}


if __name__ == "__main__":
    for name, make in ENDLESS.items():
        make(Path(sys.argv[1], f"endless-{name}.h5"))
