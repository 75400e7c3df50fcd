"""Which files are HDF5."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from policytool.formats.base import Probe

SIGNATURE: Final = b"\x89HDF\r\n\x1a\n"

_SIGNATURE_OFFSETS: Final = (0, 512, 1024, 2048)
"""
HDF5 allows a user block before its superblock, of 512 bytes or a power of two above (HDF5 file
format, section II.A).
"""

_ZIP: Final = b"PK"
"""
How a zip archive begins.

In one that stores a HDF5 file uncompressed, as ``.keras`` does, that file may begin at one of these
places.
"""


def recognise(probe: Probe) -> bool:
    """
    Return whether the file begins with HDF5's signature, a user block apart that is no zip
    archive's beginning.
    """
    return not probe.head.startswith(_ZIP) and any(
        probe.head[offset:].startswith(SIGNATURE) for offset in _SIGNATURE_OFFSETS
    )
