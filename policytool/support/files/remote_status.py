"""What servers tell about a file or a directory, whichever backend asks them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

_VERSIONS: Final = (
    "ETag",
    "etag",
    "generation",
    "blob_id",
    "Content-MD5",
    "Digest",
)
"""Keys under which backends tell the version of a file's content, the best first."""

_TIMES: Final = (
    "CRC",
    "LastModified",
    "last_modified",
    "Last-Modified",
    "updated",
    "mtime",
    "created",
)
"""Keys of what may be equal for two contents, as times are that have a resolution of a second."""

_WEAK_ETAG: Final = "W/"


_MOST_BYTES: Final = 2**63 - 1
"""The largest size of a file that has an offset in a system call."""


class InvalidSizeError(Exception):
    """A server says a size that no file has."""


class Status(NamedTuple):
    """A server's description of a file or a directory."""

    is_directory: bool
    size: int | None
    """Bytes; None where the server does not say."""

    version: str
    """What differs between two contents of one name: an etag or a generation, else a time."""

    is_exact: bool = False
    """Whether two contents cannot have the same version."""


def status_from(entry: Mapping[str, Any]) -> Status:
    """
    Return the status that an entry of a listing of fsspec describes.

    :raises InvalidSizeError: if its size is none.
    """
    size = _size(entry.get("size"))
    exact = next((str(entry[key]) for key in _VERSIONS if entry.get(key)), "")
    return Status(
        is_directory=entry.get("type") == "directory",
        size=size,
        version=exact or next((str(entry[key]) for key in _TIMES if entry.get(key)), ""),
        is_exact=bool(exact) and not exact.startswith(_WEAK_ETAG),
    )


def _size(raw_size: object) -> int | None:
    if raw_size is None:
        return None
    try:
        size = int(raw_size)  # type: ignore[call-overload]  # some backends pass on what a server says
    except (TypeError, ValueError):
        raise InvalidSizeError from None
    if not 0 <= size <= _MOST_BYTES:
        raise InvalidSizeError
    return int(size)
