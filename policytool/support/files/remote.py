"""
Files on other machines, read through fsspec: statuses, listings and ranges of bytes.

Members of zip archives, for URLs such as ``zip://MEMBER::ARCHIVE``, may be local or remote.

Only :mod:`policytool.support.files.opening` uses this module, and passes it a function that opens
local files.
"""

from __future__ import annotations

import errno
import os
import weakref
import zipfile
from collections import deque
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, cast

from policytool.support import limits
from policytool.support.errors import ModelFileError
from policytool.support.files.random_access import SeekableStream, member_start, positioned_read
from policytool.support.files.remote_path import (
    AZURE,
    MODELS,
    PACKAGES,
    ZIP,
    RemotePath,
    Status,
    status_from,
)
from policytool.support.files.remote_requests import no_ranges, request, silence
from policytool.support.files.remote_stream import Kinds, RemoteStream, Source, new_kinds

if TYPE_CHECKING:
    from collections.abc import Callable

    from policytool.support.files.remote_path import AnyPath


_ENCRYPTED: Final = 0x1
_BLOCK: Final = 2**20


def archive_system(path: RemotePath, opened: BinaryIO | SeekableStream) -> Any:  # noqa: ANN401  # fsspec has no types
    """
    Return the file system of an open archive.

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

    :raises ModelFileError: if the member is damaged, or its decompressed size exceeds the limits.
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
        stream, first = own(_inflate(path, archive, info)), 0
    else:
        header = member_start(positioned_read(stream), info.header_offset)
        if header is None or info.file_size != info.compress_size:
            raise _bad_archive(path)
        first = header
    return lambda start, stop: positioned_read(stream)(stop - start, first + start)


def _inflate(path: RemotePath, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> BinaryIO:
    """Return a compressed member of an archive as a temporary file."""
    import tempfile
    import zlib

    file: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the last reader
    remaining = info.file_size
    try:
        with archive.open(info) as member:
            while remaining and (block := member.read(min(remaining, _BLOCK))):
                file.write(block)
                remaining -= len(block)
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


_RESOLVED: Final = (f"{ZIP}:", f"{MODELS}:")
"""Beginnings of the names of file systems that depend on a file or on a registry."""

_INSTALLED: Final = {"fsspec": "'policytool[remote]'", "mlflow": "'policytool[mlflow]'"}
"""The extras that install a package."""

_INNER: Final = frozenset({ZIP, MODELS})
"""Protocols whose file systems use paths in an archive or a registered model."""


class Session:
    """
    The remote files of one process, with data about them that are cached until :meth:`forget`.

    A forked process needs a separate session, because connections cannot be shared.
    """

    def __init__(self, open_local: Callable[[Path], BinaryIO]) -> None:
        self._open_local = open_local
        self._systems: dict[str, Any] = {}
        self._statuses: dict[str, Status | None] = {}
        self._listings: dict[str, tuple[RemotePath, ...]] = {}
        self._sources: dict[str, Source] = {}
        self._kinds: dict[str, Kinds] = {}
        """What was learned about the files of each directory."""

        self._pieces: deque[tuple[Source, int, int]] = deque()
        self._held = 0
        self._files: list[BinaryIO] = []
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._abandon)

    def forget(self) -> None:
        """Discard cached data about files, so that they are requested again."""
        self._held = 0
        for file in self._files:
            file.close()
        self._files.clear()
        for known in (self._statuses, self._listings, self._sources, self._kinds, self._pieces):
            known.clear()
        for name in [name for name in self._systems if name.startswith(_RESOLVED)]:
            del self._systems[name]
        for system in self._systems.values():
            system.invalidate_cache()

    def status(self, path: RemotePath) -> Status | None:
        """
        Return the server's status of a path; None if the path does not exist.

        A web address is a single file: files next to it are not requested.

        :raises ModelFileError: if the request fails.
        """
        if path.is_web and path.is_derived:
            return None
        known = self._statuses
        above = path.parent
        if path.url not in known and above != path and above.url in self._listings:
            return None
        if path.url not in known:
            try:
                system = self.system(path)
                known[path.url] = request(
                    path, lambda: status_from(system.info(_bounded_place(path, system)))
                )
            except FileNotFoundError:
                known[path.url] = None
        return known[path.url]

    def existing_status(self, path: RemotePath) -> Status:
        """
        Return the server's status of a file or directory. Different contents have different
        statuses.

        :raises ModelFileError: if a request fails.
        :raises FileNotFoundError: if the path does not exist.
        """
        status = self.status(path)
        if status is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path.shown)
        return status

    def children(self, path: RemotePath) -> tuple[RemotePath, ...]:
        """
        Return the paths directly in a directory, in name order; empty for a web address.

        :raises ModelFileError: if the request fails, or the server lists too many names.
        :raises FileNotFoundError: if there is no such directory.
        """
        if path.is_web:
            return ()
        if path.url not in self._listings:
            system = self.system(path)

            def entries() -> list[tuple[str, Status]]:
                place = _bounded_place(path, system)
                return [
                    (name.rpartition("/")[2], status_from(entry))
                    for entry in system.ls(place, detail=True)
                    # S3 also lists an empty object that represents the directory itself
                    if (name := str(entry["name"]).strip("/")) != place.strip("/")
                ]

            statuses = dict(request(path, entries))
            if excess := limits.REMOTE_NAMES.exceeded_message(len(statuses)):
                raise ModelFileError(path.shown, "remote-limit", f"is a directory of {excess}")
            below = {
                path / name: statuses[name] for name in sorted(statuses) if name not in {".", ".."}
            }
            self._statuses.update((child.url, status) for child, status in below.items())
            self._listings[path.url] = tuple(below)
        return self._listings[path.url]

    def matches(self, path: RemotePath, home: RemotePath) -> tuple[RemotePath, ...]:
        """
        Return the paths that match a glob below a directory, in name order.

        :raises ModelFileError: if the request fails, or the server lists too many names.
        """
        try:
            system = self.system(path)

            def entries() -> list[tuple[str, Status]]:
                place, base = _bounded_place(path, system), place_of(home, system).strip("/")
                return [
                    (name.strip("/").removeprefix(base).lstrip("/"), status_from(entry))
                    for name, entry in sorted(system.glob(place, detail=True).items())
                ]

            statuses = dict(request(path, entries))
        except FileNotFoundError:
            return ()
        if excess := limits.REMOTE_NAMES.exceeded_message(len(statuses)):
            raise ModelFileError(path.shown, "remote-limit", f"is a pattern that matches {excess}")
        below = {home / name: status for name, status in statuses.items()}
        self._statuses.update((child.url, status) for child, status in below.items())
        return tuple(below)

    def stream(self, path: RemotePath) -> RemoteStream:
        """
        Return a file as a binary stream, of which only the ranges that are read are transferred.

        :raises ModelFileError: if the request fails.
        :raises FileNotFoundError: if the file does not exist.
        :raises IsADirectoryError: for a directory.
        """
        sources = self._sources
        if path.url not in sources:
            sources[path.url] = self._source(path)
        return RemoteStream(sources[path.url])

    def system(self, path: RemotePath) -> Any:  # noqa: ANN401  # fsspec has no types
        """
        Return the file system of a path.

        :raises ModelFileError: if a package is missing, or an archive cannot be read.
        :raises FileNotFoundError: if there is no such archive, or no such registered model.
        """
        systems = self._systems
        if path.registered:
            name = f"{MODELS}:{path.registered}"
            if name not in systems:
                _check_package(path)
                systems[name] = self._registered_system(path)
            return systems[name]
        archive = path.archive
        if archive is not None:
            name = f"{ZIP}:{path.url.partition('::')[2]}"
            if name not in systems:
                _check_package(path)
                systems[name] = self._archive_system(path, archive)
            return systems[name]
        name = path.protocol
        if name in systems and name not in AZURE:
            return systems[name]
        _check_package(path)
        import fsspec

        def make() -> Any:  # noqa: ANN401  # as above
            kind = fsspec.get_filesystem_class(path.protocol)
            return kind(**kind._get_kwargs_from_urls(path.url))  # noqa: SLF001  # as fsspec.core does

        systems[name] = request(path, make)
        silence(PACKAGES[path.protocol])
        return systems[name]

    def own(self, file: BinaryIO) -> BinaryIO:
        """Return an open file, which :meth:`forget` closes."""
        self._files.append(file)
        return file

    def _source(self, path: RemotePath) -> Source:
        status = self.existing_status(path)
        if status.is_directory:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path.shown)
        if status.size is None:
            raise no_ranges(path)
        kinds = self._kinds.setdefault(path.parent.url, new_kinds())
        return Source(path, status.size, _fetcher(self, path, status.size), self._keep, kinds)

    def _keep(self, source: Source, start: int, size: int) -> None:
        """Count a cached piece of a source, and discard the oldest pieces beyond the limit."""
        self._pieces.append((source, start, size))
        self._held += size
        while self._held > limits.REMOTE_CACHE_BYTES.value and len(self._pieces) > 1:
            oldest, first, width = self._pieces.popleft()
            self._held -= width
            oldest.drop(first)

    def _registered_system(self, path: RemotePath) -> Any:  # noqa: ANN401  # as above
        """Return the file system of a registered model."""
        from fsspec.implementations.dirfs import DirFileSystem

        from policytool.support.files.mlflow_registry import find_files

        storage = find_files(path)
        if not isinstance(storage, RemotePath):
            return storage
        try:
            bucket = self.system(storage)
        except ModelFileError as error:
            raise ModelFileError(path.shown, error.code, error.message) from error
        return DirFileSystem(path=place_of(storage, bucket), fs=bucket, skip_instance_cache=True)

    def _abandon(self) -> None:
        """
        Leave the connections to the process that opened them. Azure's backend closes connections at
        the end of a process, and a forked process would wait for a thread that it does not have.
        """
        for finalizer in list(getattr(weakref.finalize, "_registry", ())):
            registration = finalizer.peek()
            if registration is not None and any(
                registration[0] is system for system in self._systems.values()
            ):
                finalizer.detach()

    def _archive_system(self, path: RemotePath, archive: AnyPath) -> Any:  # noqa: ANN401  # as above
        """Return the file system of an archive, which is opened once."""
        try:
            opened = (
                self.own(self._open_local(archive))
                if isinstance(archive, Path)
                else self.stream(archive)
            )
        except FileNotFoundError:
            raise
        except OSError as error:
            message = f"is a member of an archive that cannot be read: {error.strerror}"
            raise ModelFileError(path.shown, "unreadable", message) from error
        return archive_system(path, opened)


def _fetcher(session: Session, path: RemotePath, size: int) -> Callable[[int, int], bytes]:
    """
    Return the function that reads the bytes of a file between two offsets, in one request or more.
    """
    system = session.system(path)
    if path.protocol == ZIP:
        local = member_fetcher(session.own, path, system.zip)
        return lambda start, stop: request(path, lambda: local(start, stop))
    if path.registered:
        from policytool.support.files.mlflow_registry import Artifacts

        if isinstance(system, Artifacts):
            return system.reader(path, size, session.own)
    place = place_of(path, system)
    handle = request(path, lambda: system.open(place, "rb", cache_type="none"))
    if not handle.seekable():
        raise no_ranges(path)

    def fetch(start: int, stop: int) -> bytes:
        handle.seek(start)
        data: bytes = handle.read(stop - start)
        return data

    return lambda start, stop: request(path, lambda: fetch(start, stop))


def place_of(path: RemotePath, system: Any) -> str:  # noqa: ANN401  # fsspec has no types
    """Return the name of a path in its file system of fsspec."""
    return path.location if path.protocol in _INNER else str(system._strip_protocol(path.url))  # noqa: SLF001  # fsspec documents it


def _bounded_place(path: RemotePath, system: Any) -> str:  # noqa: ANN401  # as above
    place = place_of(path, system)
    if excess := limits.REMOTE_PATH_BYTES.exceeded_message(
        len(path.location.encode("utf-8", "surrogatepass"))
    ):
        raise ModelFileError(path.shown, "remote-limit", f"has a path of {excess}")
    return place


def _check_package(path: RemotePath) -> None:
    """Check that the package for a protocol is installed."""
    package = PACKAGES[path.protocol]
    if find_spec("fsspec") is None or find_spec(package) is None:
        command = _INSTALLED.get(package, f"'policytool[remote]' {package}")
        raise ModelFileError(
            path.shown,
            "remote-package",
            f"requires a Python package for {path.protocol}: URLs; install it with: "
            f"pip install {command}",
        )
