"""
HDF5: complete models, and weights files; also the published defects of each version of the HDF5
library (data/hdf5_defects.json).
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
The first bytes of zip archives.

In an archive with an uncompressed HDF5 member, such as ``.keras``, the member may start at an
offset where HDF5 searches for its signature.
"""


def recognise(probe: Probe) -> bool:
    """
    Return whether the file has HDF5's signature at an offset that the library searches, and does
    not begin like a zip archive.
    """
    return probe.head.startswith(SIGNATURE) or (
        not probe.head.startswith(_ZIP) and bool(superblocks(probe))
    )


def superblocks(probe: Probe) -> tuple[int, ...]:
    """
    Return all offsets of a file at which the library can find a signature. For a remote file, which
    the library does not open directly, only its first bytes are searched.

    :raises OSError: if the file cannot be read.
    """
    if probe.is_directory:
        return ()
    return tuple(_signatures(probe))


def _signatures(probe: Probe) -> Iterator[int]:
    """Yield the offsets of HDF5 signatures at which the library searches."""
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
    """Yield the possible sizes of user blocks in a file of this size."""
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
The first release that fixes a vulnerability with which a file can write to memory (CVE-2026-26200).
The wheels of h5py 3.13 and later contain 1.14.6 or later.
"""


def installed_version() -> str:
    """Return the version of h5py's HDF5 library."""
    from policytool.formats.hdf5.library import library  # h5py costs 80 ms

    return library()


def published_defects(version: str) -> tuple[str, ...]:
    """Return the ids of the defects that are fixed only in releases after this version."""
    return tuple(
        defect["id"]
        for defect in data.read("hdf5_defects")["defects"]
        if _version_numbers(version) < _version_numbers(defect["fixed_in"])
    )


def defects_warning(version: str) -> str:
    """
    Return a warning about the defects of a version, as a sentence; empty if it has no known
    defects.
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
    """Return whether a release has the vulnerability that a newer h5py fixes."""
    return _version_numbers(version) < _version_numbers(SAFE_VERSION)


def _version_numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])
