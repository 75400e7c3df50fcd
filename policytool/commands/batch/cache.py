"""
Results of earlier runs, in a directory that ``--cache`` names.

An entry is a file whose name is a hash of everything that decides a result. It contains the result
as JSON, which the codec checks against the type, so that a damaged entry costs time and nothing
else. Several runs may share the directory: an entry appears whole or not at all.
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
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

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

Item = TypeVar("Item")
Request = TypeVar("Request")
Result = TypeVar("Result")

_FOLDER: Final = ".policytool-cache"
"""
In the directory that was named: hidden, so that an audit of a directory above does not find it.
"""

_HEAD: Final = b"policytool-cache 1 "
_GROUP: Final = re.compile(r"[0-9a-f]{2}")
_ENTRY: Final = re.compile(r"[0-9a-f]{62}")
_DRAFT: Final = re.compile(r"\.[0-9a-f]{62}\.[0-9a-f]{16}")
_PRIVATE: Final = 0o700
_DAY: Final = 86_400.0
"""Seconds after which the time of the last use is written again."""

_HOUR: Final = 3_600.0
"""Seconds after which the draft of an entry has been left by a process that was killed."""

_SHARE: Final = 64
"""An entry may have this part of the bytes of the cache: 16 MiB by default."""

_DAMAGED: Final = (KeyError, TypeError, ValueError, RecursionError, OverflowError)
_PACKAGES: Final = ("h5py", "numpy", "ml_dtypes", "protobuf", "PyYAML", "google-crc32c")
"""Libraries whose messages and values are part of results."""


@dataclass(frozen=True, slots=True)
class _CachedResult(Generic[Result]):
    """A result, which may be None."""

    result: Result


@dataclass(frozen=True, kw_only=True, slots=True)
class CacheEntry:
    """Where the result of an item is kept."""

    key: str | None
    """None if it is not kept."""

    exists: bool
    """Whether there is an intact entry."""


class ResultCache:
    """
    The directory, and how often it helped in a run.

    :raises CacheError: if the directory cannot be created or read.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.asked = 0
        """Results that were needed."""

        self.found = 0
        """Results that came from the directory."""

        self.unwritten: OSError | None = None
        """Why an entry could not be written; no further one is tried then."""

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
        """Return the results of a task and a request; None if the task's are not kept."""
        if task.caching is None:
            return None
        return CachedResults(self, task, task.caching, request)

    def read(self, key: str) -> bytes | None:
        """Return the body of an entry; None if there is none, or it is damaged."""
        path = self._path(key)
        most = _most_bytes()
        try:
            data = opening.read_head(path, most + 1)
        except OSError:  # none, or unreadable: the model is read instead
            return None
        head, _, body = data.partition(b"\n")
        if len(data) > most or head != _HEAD + checksum(key, body):
            return None
        return body

    def mark_used(self, key: str) -> None:
        """Write the time of use of an entry, once a day; a directory may be read-only."""
        path = self._path(key)
        with contextlib.suppress(OSError):
            if path.stat().st_mtime < time.time() - _DAY:
                os.utime(path)

    def write(self, key: str, body: bytes) -> None:
        """Write an entry, unless it is too large; what fails is kept in ``unwritten``."""
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
        Remove the entries that were not used for longest, until nine tenths of the limit are left,
        and what processes left that were killed.

        Only regular files with names of entries are removed, and no link is followed.
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
        """Yield the regular files in the groups, with their statuses."""
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
    """The results of one task and one request."""

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
        own = {limits.CACHE_BYTES.name}
        counted = {name: value for name, value in limits.overrides().items() if name not in own}
        about = [VERSION, _code(), task.module, sorted(counted.items()), request]
        self._about = hashlib.sha256(codec.encode(about).encode())

    def entry(self, item: Item) -> CacheEntry:
        """Return the entry under which an item's result is kept."""
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
        Keep a result if its item is still the same, and return whether that was tried.

        Failures are not kept: many depend on the machine, and a model that cannot be read may be
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
        """Add to the numbers of requested and of cached results."""
        self._cache.asked += requested
        self._cache.found += hits

    def _key(self, item: Item, identity: InputIdentity) -> str:
        hashed = self._about.copy()
        hashed.update(codec.encode([item, self._task.shown(item), identity.text]).encode())
        return hashed.hexdigest()


def _code() -> list[Any]:
    """
    Return what identifies the code that makes results: policytool's files, as their sizes and times
    say, Python and libraries. A checkout changes without its version.
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
    user = os.geteuid() if hasattr(os, "geteuid") else None  # who may read which file
    return [files, versions, sys.version, sys.platform, user]


def checksum(key: str, body: bytes) -> bytes:
    """Return the checksum of an entry, which is no other entry's."""
    return hashlib.sha256(key.encode() + b"\n" + body).hexdigest().encode()


def _most_bytes() -> int:
    return max(limits.CACHE_BYTES.value // _SHARE, 1)


def _remove(path: Path) -> None:
    """
    Remove an entry. Another run may have removed it; one that cannot be removed is tried again
    later.
    """
    with contextlib.suppress(OSError):
        path.unlink()
