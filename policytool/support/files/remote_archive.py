"""Members of zip archives, local or remote, for URLs such as ``zip://MEMBER::ARCHIVE``."""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING, Any, BinaryIO, Final, cast

from policytool.support import limits
from policytool.support.errors import ModelFileError
from policytool.support.files.random_access import SeekableStream, member_start, positioned_read

if TYPE_CHECKING:
    from collections.abc import Callable

    from policytool.support.files.remote_path import RemotePath

_ENCRYPTED: Final = 0x1
_BLOCK: Final = 2**20


def archive_system(path: RemotePath, opened: BinaryIO | SeekableStream) -> Any:  # noqa: ANN401  # fsspec has no types
    """
    Return the file system of an open archive, which has a member of this path.

    :raises ModelFileError: if the archive is damaged, or has too many members.
    """
    from fsspec.implementations.zip import ZipFileSystem

    try:
        system = ZipFileSystem(fo=opened, mode="r", skip_instance_cache=True)
    except (zipfile.BadZipFile, NotImplementedError, UnicodeDecodeError, EOFError):
        raise _bad_archive(path) from None
    if excess := limits.ZIP_MEMBERS.exceeded_message(len(system.zip.infolist())):
        raise ModelFileError(
            path.shown, "zip-limit", f"is a member of a zip archive that has {excess}"
        )
    return system


def member_fetcher(
    own: Callable[[BinaryIO], BinaryIO], path: RemotePath, archive: zipfile.ZipFile
) -> Callable[[int, int], bytes]:
    """
    Return the function that reads a member of an archive. A compressed member is read from a
    temporary file without a name, which ``own`` closes later.

    :raises ModelFileError: if it is damaged, or would expand beyond the limits.
    """
    info = archive.getinfo(path.location)
    stream = cast("BinaryIO", archive.fp)
    if info.compress_type or info.flag_bits & _ENCRYPTED:
        excess = limits.INFLATED_BYTES.exceeded_message(
            info.file_size
        ) or limits.ZIP_RATIO.exceeded_message(-(-info.file_size // max(info.compress_size, 1)))
        if excess:
            raise ModelFileError(
                path.shown, "zip-limit", f"is a compressed member that would expand to {excess}"
            )
        stream, first = own(_inflated(path, archive, info)), 0
    else:
        header = member_start(positioned_read(stream), info.header_offset)
        if header is None or info.file_size != info.compress_size:
            raise _bad_archive(path)
        first = header
    return lambda start, stop: positioned_read(stream)(stop - start, first + start)


def _inflated(path: RemotePath, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> BinaryIO:
    import tempfile
    import zlib

    file: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the last reader
    left = info.file_size
    try:
        with archive.open(info) as member:
            while left and (block := member.read(min(left, _BLOCK))):
                file.write(block)
                left -= len(block)
    except (RuntimeError, NotImplementedError, EOFError, zipfile.BadZipFile, zlib.error):
        raise _bad_archive(path) from None
    file.flush()
    return file


def _bad_archive(path: RemotePath) -> ModelFileError:
    return ModelFileError(
        path.shown,
        "truncated",
        "is a member of a truncated or damaged zip archive; copy or download it again",
    )
