"""
Caches results of earlier runs in the directory of ``--cache``.

An entry is a file. Its name is a hash of all inputs of the result, and it contains the result as
JSON. The codec checks the type of the result, so a damaged entry only costs time. Several runs can
share the directory, because entries are written atomically.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import stat
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic

from msgspec import Struct

from policytool.commands.batch.task import Item, Request, Result
from policytool.commands.inspect import Failure
from policytool.support import limits
from policytool.support.errors import CacheError
from policytool.support.files import atomic, opening
from policytool.support.processes import interrupts
from policytool.support.project import VERSION
from policytool.support.text import codec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.commands.batch.task import Caching, Task
    from policytool.formats.input_identity import InputIdentity


_FOLDER: Final = ".policytool-cache"
"""
The name of a hidden directory in that of ``--cache``, so that an audit of a parent directory does
not find the entries.
"""

_HEAD: Final = b"policytool-cache 1 "
_GROUP: Final = re.compile(r"[0-9a-f]{2}")
_ENTRY: Final = re.compile(r"[0-9a-f]{62}")
_DRAFT: Final = re.compile(r"\.[0-9a-f]{62}\.[0-9a-f]{16}")
_PRIVATE: Final = 0o700
_DAY: Final = 86_400.0
"""Minimum time in seconds between two updates of the time of use of an entry."""

_HOUR: Final = 3_600.0
"""Age in seconds from which on a draft of an entry is assumed to be from a killed process."""

_SHARE: Final = 64
"""The size limit of the cache divided by that of an entry, which is 16 MiB by default."""

_DAMAGED: Final = (KeyError, TypeError, ValueError, RecursionError, OverflowError)
_PACKAGES: Final = ("h5py", "numpy", "ml_dtypes", "protobuf", "PyYAML", "google-crc32c")
"""Libraries whose versions can change results, such as error messages."""


class _CachedResult(Struct, Generic[Result], frozen=True):
    """A result, which may be None; None instead of this object means that no result is cached."""

    result: Result


class CacheEntry(Struct, frozen=True, kw_only=True):
    """The cache entry of an item."""

    key: str | None
    """The key of the entry; None if the result of the item cannot be cached."""

    exists: bool
    """Whether an intact entry exists."""


class ResultCache:
    """
    The cache directory, with the number of hits in a run.

    :raises CacheError: if the directory cannot be created or read.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.requested = 0
        """The number of requested results."""

        self.hits = 0
        """The number of results from the cache."""

        self.unwritten: OSError | None = None
        """Why an entry could not be written; no further entries are then written."""

        self._root = directory / _FOLDER
        try:
            directory.mkdir(_PRIVATE, parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                self._root.mkdir(_PRIVATE)
            if not stat.S_ISDIR(os.lstat(self._root).st_mode):
                raise NotADirectoryError(0, "it is not a directory", str(self._root))
            with os.scandir(self._root):
                pass
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise CacheError(
                f"--cache {directory} cannot be used: {reason}; specify a directory that you can "
                "write to"
            ) from error

    def results(
        self, task: Task[Item, Request, Result], request: Request
    ) -> CachedResults[Item, Request, Result] | None:
        """Return the cached results of a task and a request; None if the task has no caching."""
        if task.caching is None:
            return None
        return CachedResults(self, task, task.caching, request)

    def read(self, key: str) -> bytes | None:
        """Return the body of an entry; None if it does not exist or is damaged."""
        path = self._path(key)
        most = _most_bytes()
        try:
            data = opening.read_head(path, most + 1)
        except OSError:  # missing or unreadable; the model is read instead
            return None
        head, _, body = data.partition(b"\n")
        if len(data) > most or head != _HEAD + checksum(key, body):
            return None
        return body

    def mark_used(self, key: str) -> None:
        """Update the time of use of an entry, at most daily. Errors are ignored."""
        path = self._path(key)
        with contextlib.suppress(OSError):
            if path.stat().st_mtime < time.time() - _DAY:
                os.utime(path)

    def write(self, key: str, body: bytes) -> None:
        """Write an entry, unless it is too large; if that fails, set ``unwritten`` to the error."""
        data = b"%s%s\n%s" % (_HEAD, checksum(key, body), body)
        if self.unwritten is not None or len(data) > _most_bytes():
            return
        path = self._path(key)
        draft = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
        entry = interrupts.add_path(draft)
        try:
            with contextlib.suppress(FileExistsError):
                path.parent.mkdir(_PRIVATE)
            if not stat.S_ISDIR(os.lstat(path.parent).st_mode):
                raise NotADirectoryError(0, "it is not a directory", str(path.parent))
            try:
                with atomic.open_descriptor(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL) as file:
                    atomic.write_all(file, data, 0)
                draft.replace(path)
            except BaseException:
                with contextlib.suppress(OSError):
                    draft.unlink(missing_ok=True)
                raise
        except OSError as error:
            self.unwritten = error
        finally:
            interrupts.remove(entry)

    def trim(self) -> None:
        """
        Remove drafts of killed processes. If the cache exceeds its limit, remove the entries that
        were not used for the longest time, until its size is at most nine tenths of the limit.

        Only regular files with the names of entries and drafts are removed. Links are not followed.
        """
        most = limits.CACHE_BYTES.value
        old = time.time() - _HOUR
        entries: list[tuple[float, int, Path]] = []
        for path, status in self._files():
            if _ENTRY.fullmatch(path.name):
                entries.append((status.st_mtime, status.st_size, path))
            elif _DRAFT.fullmatch(path.name) and status.st_mtime < old:
                _remove(path)
        total = sum(size for _, size, _ in entries)
        if total <= most:
            return
        for _, size, path in sorted(entries):
            if total <= most - most // 10:
                return
            _remove(path)
            total -= size

    def _files(self) -> Iterator[tuple[Path, os.stat_result]]:
        """Yield the regular files of the cache with their status."""
        with contextlib.suppress(OSError), os.scandir(self._root) as groups:
            for group in groups:
                if not _GROUP.fullmatch(group.name) or not group.is_dir(follow_symlinks=False):
                    continue
                with contextlib.suppress(OSError), os.scandir(group.path) as files:
                    for file in files:
                        with contextlib.suppress(OSError):  # another run has removed it
                            if file.is_file(follow_symlinks=False):
                                yield Path(file.path), file.stat(follow_symlinks=False)

    def _path(self, key: str) -> Path:
        return self._root / key[:2] / key[2:]


class CachedResults(Generic[Item, Request, Result]):
    """The cached results of one task and one request."""

    def __init__(
        self,
        cache: ResultCache,
        task: Task[Item, Request, Result],
        caching: Caching[Item],
        request: Request,
    ) -> None:
        self._cache = cache
        self._task = task
        self._caching = caching
        self._read = task.readers().result
        irrelevant_limits = {limits.CACHE_BYTES.name}
        counted = {
            name: value
            for name, value in limits.overrides().items()
            if name not in irrelevant_limits
        }
        identity = [VERSION, _code(), task.module, sorted(counted.items()), request]
        self._about = hashlib.sha256(codec.encode(identity).encode())

    def entry(self, item: Item) -> CacheEntry:
        """Return the cache entry of an item."""
        identity = self._caching.identity(item)
        if identity is None or not identity.is_settled(time.time_ns()):
            return CacheEntry(key=None, exists=False)
        key = self._key(item, identity)
        return CacheEntry(key=key, exists=self._cache.read(key) is not None)

    def find(self, key: str | None) -> _CachedResult[Result] | None:
        """Return the cached result; None if there is none, or if it has another type."""
        body = self._cache.read(key) if key is not None else None
        if key is None or body is None:
            return None
        try:
            cached: _CachedResult[Result] = _CachedResult(self._read(json.loads(body)))
        except _DAMAGED:
            return None
        self._cache.mark_used(key)
        return cached

    def keep(self, item: Item, key: str | None, result: Result | Failure) -> bool:
        """
        Cache a result if its item has not changed, and return whether writing it was tried.

        Failures are not cached, because many depend on the machine, and an unreadable model may be
        readable the next time.
        """
        if key is None or isinstance(result, Failure):
            return False
        self._caching.refresh(item)
        if not self._caching.is_complete(item):
            return False
        identity = self._caching.identity(item)
        if identity is None or self._key(item, identity) != key:
            return False
        self._cache.write(key, codec.encode(result).encode())
        return True

    def count(self, requested: int, hits: int) -> None:
        """Add to the numbers of requested results and of hits."""
        self._cache.requested += requested
        self._cache.hits += hits

    def _key(self, item: Item, identity: InputIdentity) -> str:
        """Return the name of an entry: a hash of everything that the result depends on."""
        hashed = self._about.copy()
        hashed.update(codec.encode([item, self._task.shown(item), identity.text]).encode())
        return hashed.hexdigest()


def _code() -> list[Any]:
    """
    Return values that identify the code that computes results: the sizes and times of policytool's
    files, and the versions of Python and libraries. The version of policytool is not sufficient,
    because files of a checkout change without it.
    """
    from importlib.metadata import PackageNotFoundError, version  # 15 ms, only with --cache

    root = Path(__file__).parents[2]
    files = []
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(names):
            status = Path(folder, name).stat()
            files.append([folder, name, status.st_size, status.st_mtime_ns])
    versions = []
    for package in _PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            versions.append([package, version(package)])
    user = os.geteuid() if hasattr(os, "geteuid") else None  # decides which files are readable
    return [files, versions, sys.version, sys.platform, user]


def checksum(key: str, body: bytes) -> bytes:
    """Return the checksum of an entry, which depends on its key and body."""
    return hashlib.sha256(key.encode() + b"\n" + body).hexdigest().encode()


def _most_bytes() -> int:
    return max(limits.CACHE_BYTES.value // _SHARE, 1)


def _remove(path: Path) -> None:
    """
    Remove a file. Errors are ignored: another run may have removed the file, and the next run tries
    again.
    """
    with contextlib.suppress(OSError):
        path.unlink()
