"""
HDF5: whole models, and files of weights alone; and the published defects of the library that reads
them, by its version (data/hdf5_defects.json).
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final

from policytool.formats.base import HEAD_BYTES, Format
from policytool.releases import data
from policytool.support.files import opening
from policytool.support.files.random_access import positioned_read
from policytool.support.files.remote_path import RemotePath

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.formats.base import Probe


SIGNATURE: Final = b"\x89HDF\r\n\x1a\n"

_SMALLEST_USER_BLOCK: Final = 512
"""
HDF5 allows a user block before its superblock, of 512 bytes or a power of two above (HDF5 file
format, section II.A); the library looks for the signature up to the end of the file.
"""

_ZIP: Final = (b"PK\x03\x04", b"PK\x05\x06")
"""
How a zip archive begins.

In one that stores an HDF5 file uncompressed, as ``.keras`` does, that file may begin at one of
these places.
"""


def recognise(probe: Probe) -> bool:
    """
    Return whether the file has HDF5's signature where the library looks for it, and does not begin
    as a zip archive does.
    """
    return probe.head.startswith(SIGNATURE) or (
        not probe.head.startswith(_ZIP) and bool(superblocks(probe))
    )


def superblocks(probe: Probe) -> tuple[int, ...]:
    """
    Return every place of a file at which the library finds a signature, or would find one if it was
    the first; of a remote file, which no library gets, only those in its first bytes.

    :raises OSError: where it cannot be read.
    """
    if probe.is_directory:
        return ()
    return tuple(_signatures(probe))


def _signatures(probe: Probe) -> Iterator[int]:
    yield from [
        offset
        for offset in (0, *_user_blocks(len(probe.head)))
        if probe.head.startswith(SIGNATURE, offset)
    ]
    if len(probe.head) < HEAD_BYTES or isinstance(probe.path, RemotePath):
        return
    with opening.regular_stream(probe.path) as stream:
        size = stream.seek(0, os.SEEK_END)
        read = positioned_read(stream)
        for offset in _user_blocks(size):
            if offset >= HEAD_BYTES and read(len(SIGNATURE), offset) == SIGNATURE:
                yield offset


def _user_blocks(size: int) -> Iterator[int]:
    """Yield the sizes of user blocks that a file of a size has room for."""
    offset = _SMALLEST_USER_BLOCK
    while offset + len(SIGNATURE) <= size:
        yield offset
        offset *= 2


FORMAT: Final = Format(
    package=__name__,
    reader=f"{__name__}.read:read",
    changes_finder=f"{__name__}.rewrite:file_changes",
    creator_maker=f"{__name__}.create:creator",
    values_opener=f"{__name__}.datasets:open_values",
    document_format="h5",
    title="HDF5",
    suffixes=(".h5", ".hdf5"),
    recognise=recognise,
)


SAFE_VERSION: Final = "1.14.4"
"""
The first release without a hole through which a file writes to memory (CVE-2026-26200); the wheels
of h5py 3.13 and later have 1.14.6 or a later one.
"""


def installed_version() -> str:
    """Return the version of the HDF5 library that h5py has."""
    from policytool.formats.hdf5.library import library  # h5py costs 80 ms

    return library()


def published_defects(version: str) -> tuple[str, ...]:
    """Return the ids of the defects that a release has, by the first releases without them."""
    return tuple(
        defect["id"]
        for defect in data.read("hdf5_defects")["defects"]
        if _version_numbers(version) < _version_numbers(defect["fixed_in"])
    )


def defects_warning(version: str) -> str:
    """
    Return what is to be said of a version, as a sentence; empty for one without known defects.
    """
    defects = published_defects(version)
    if not defects:
        return ""
    advice = "; install h5py 3.13 or later" if is_below_floor(version) else ""
    return (
        f"the HDF5 library {version} has published vulnerabilities that a file can trigger "
        f"({', '.join(defects)}){advice}"
    )


def is_below_floor(version: str) -> bool:
    """Return whether a release has the hole that a newer h5py would close."""
    return _version_numbers(version) < _version_numbers(SAFE_VERSION)


def _version_numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])
