"""
Old texts taken out of a file for good.

A text of variable length lies in a global heap, which HDF5 neither clears nor protects by a
checksum: an old config would stay in the file, to be found by whoever looks. It is overwritten in
the draft before HDF5 opens it for writing.
"""

from __future__ import annotations

import mmap
import os
from typing import TYPE_CHECKING, Final

from policytool.formats.hdf5.rewriting import attributes, storage
from policytool.support.files.atomic import open_descriptor, write_all

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_SHORTEST: Final = 16
"""Shorter texts are everywhere, and say nothing."""

_NEAR: Final = 4 * 2**20
"""
Keras writes its attributes near the start of a file or at its end, so that is where one looks
first.
"""


def wipe(draft: Path, name: bytes, text: bytes) -> None:
    """
    Overwrite the text of an attribute of variable length with zeros.

    :raises OSError: where the draft cannot be written.
    """
    if len(text) < _SHORTEST:
        return
    with open_descriptor(draft, os.O_RDWR) as descriptor:
        for place in _places(descriptor, text):
            write_all(descriptor, bytes(len(text)), place)
            with storage.reading(draft) as file:
                if attributes.stored_text(file.root, name) == b"":
                    return
            write_all(descriptor, text, place)  # the same bytes, but not those of the attribute


def _places(descriptor: int, text: bytes) -> Iterator[int]:
    """Yield where the text stands, the likely places first."""
    size = os.fstat(descriptor).st_size
    seen: set[int] = set()
    with mmap.mmap(descriptor, size, access=mmap.ACCESS_READ) as view:
        for start, end in (
            (0, _NEAR + len(text)),
            (max(0, size - _NEAR - len(text)), size),
            (0, size),
        ):
            place = view.find(text, start, end)
            while place >= 0:
                if place not in seen:
                    seen.add(place)
                    yield place
                place = view.find(text, place + 1, end)
