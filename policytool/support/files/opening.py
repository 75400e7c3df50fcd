"""
Opening files for reading: the only module that opens input files. It uses
:mod:`policytool.support.files.remote` for files on other machines.

A model file must be a regular file, after links are resolved. Other files may wait for a writer
forever (a FIFO) or never end (a device), and a symbolic link in a repository or an archive can lead
to either. A file is therefore opened without waiting, and its kind is checked on the open
descriptor. At most a limit is read, because the reported size can be wrong: files grow, and files
in ``/proc`` report no size.

Baselines, plans, settings and the list of paths on stdin may also be pipes, which have a size limit
and a time limit.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, TypeVar, cast

from policytool.support import limits
from policytool.support.errors import ModelFileError
from policytool.support.files import listings
from policytool.support.files.random_access import positioned_read
from policytool.support.files.remote_path import RemotePath
from policytool.support.processes import collection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from policytool.support.files.remote import Session
    from policytool.support.files.remote_path import AnyPath
    from policytool.support.limits import Limit

Answer = TypeVar("Answer")

_AT_ONCE: Final = getattr(os, "O_NONBLOCK", 0)
"""
Prevents waiting for the other end of a FIFO, or for a device; Windows has neither, and lacks this
flag.
"""

_FLAGS: Final = (
    getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)
)
_BLOCK: Final = 2**16
"""The number of bytes per read if the size is unknown: the capacity of a pipe."""
_READER_SECONDS: Final = 2.0
_MOMENT: Final = 0.02
_BLOB: Final = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
"""The name of a file in the cache of the Hub's client: its hash."""

_KINDS: Final = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a character device"),
    (stat.S_ISBLK, "a block device"),
)


class NotRegularError(OSError):
    """Something other than a regular file; ``strerror`` describes its kind."""

    def __init__(self, path: Path, kind: str) -> None:
        super().__init__(errno.EINVAL, f"it is {kind}; only regular files are supported", str(path))
        self.kind = kind


class TooLargeError(OSError):
    """The file exceeds a limit; ``excess`` is the end of a sentence with its size and the limit."""

    def __init__(self, path: AnyPath | str, excess: str) -> None:
        super().__init__(errno.EFBIG, f"it has {excess}", str(path))
        self.excess = excess


def open_regular(path: Path) -> int:
    """
    Return a descriptor of a regular file, which the caller closes; symbolic links are followed.

    :raises NotRegularError: for a FIFO, a socket or a device.
    :raises OSError: if it cannot be opened; IsADirectoryError for a directory.
    """
    _check_regular(path, path.stat())  # opening a device may have side effects
    descriptor = os.open(path, os.O_RDONLY | _AT_ONCE | _FLAGS)
    try:
        _check_regular(path, os.fstat(descriptor))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


@contextlib.contextmanager
def regular_file(path: Path) -> Iterator[int]:
    """
    Open a regular file for the duration of a block, and yield its descriptor.

    :raises OSError: as :func:`open_regular`.
    """
    descriptor = open_regular(path)
    try:
        yield descriptor
    finally:
        with contextlib.suppress(OSError):  # the read data do not depend on it
            os.close(descriptor)


def regular_stream(path: AnyPath) -> BinaryIO:
    """
    Return a regular file, or a remote one, as a binary stream, which the caller closes.

    :raises ModelFileError: if the server of a remote file does not deliver it.
    :raises OSError: as :func:`open_regular`.
    """
    if isinstance(path, RemotePath):
        return cast("BinaryIO", session().stream(path))
    return os.fdopen(open_regular(path), "rb")


def read_head(path: AnyPath, count: int) -> bytes:
    """
    Return the first bytes of a regular file, or a remote one.

    :raises ModelFileError: as :func:`regular_stream`.
    :raises OSError: as :func:`open_regular`.
    """
    if isinstance(path, RemotePath):
        with regular_stream(path) as stream:
            return stream.read(count)
    with regular_file(path) as descriptor:
        return _first(descriptor, count)


def read_tail(path: Path, count: int) -> bytes:
    """
    Return the last bytes of a regular file.

    :raises OSError: as :func:`open_regular`.
    """
    with regular_file(path) as descriptor:
        os.lseek(descriptor, max(0, os.fstat(descriptor).st_size - count), os.SEEK_SET)
        return _first(descriptor, count)


def blocks(path: Path, size: int) -> Iterator[bytes]:
    """
    Yield the content of a regular file in blocks; the file is open only while one is read, so that
    thousands of files can be read at the same time.

    :raises OSError: as :func:`open_regular`.
    """
    start = 0
    while True:
        with regular_file(path) as descriptor:
            os.lseek(descriptor, start, os.SEEK_SET)
            block = _first(descriptor, size, size)
        if not block:
            return
        start += len(block)
        yield block


def read_bounded(path: AnyPath, limit: Limit) -> bytes:
    """
    Return the bytes of a regular file, or a remote one.

    :raises TooLargeError: if the size of the file, or the number of bytes read, exceeds the limit.
    :raises ModelFileError: as :func:`regular_stream`.
    :raises OSError: as :func:`open_regular`.
    """
    if isinstance(path, RemotePath):
        size = file_size(path)
        if excess := limit.exceeded_message(size):
            raise TooLargeError(path, excess)
        with regular_stream(path) as stream:
            return positioned_read(stream)(size, 0)
    with regular_file(path) as descriptor:
        size = os.fstat(descriptor).st_size
        if excess := limit.exceeded_message(size):
            raise TooLargeError(path, excess)
        return _check_size(_first(descriptor, limit.value + 1, size + 1), path, limit)


def read_user_file(path: Path, limit: Limit) -> bytes:
    """
    Return the bytes of a file that the user specified: a regular file, or a pipe or device that
    ends within :data:`limits.PIPE_SECONDS`.

    :raises TooLargeError: if the size exceeds the limit.
    :raises TimeoutError: if a pipe does not end in time.
    :raises OSError: if the file cannot be read.
    """
    mode = path.stat().st_mode
    if stat.S_ISREG(mode):
        return read_bounded(path, limit)
    if not (stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)):
        raise _wrong_kind(path, mode)

    most = limit.value + 1  # before the thread starts, which does not see the limits of this thread

    def read() -> bytes:
        descriptor = os.open(path, os.O_RDONLY | _FLAGS)
        try:
            return _first(descriptor, most)
        finally:
            os.close(descriptor)

    return _check_size(_in_time(read, path), path, limit)


def read_stream(stream: BinaryIO, limit: Limit) -> bytes:
    """
    Return all bytes of an open stream, such as stdin's buffer.

    :raises TooLargeError: if the size exceeds the limit.
    :raises TimeoutError: if the stream does not end within :data:`limits.PIPE_SECONDS`.
    :raises OSError: if the stream cannot be read.
    """
    most = limit.value + 1  # as above
    try:
        descriptor = stream.fileno()
    except io.UnsupportedOperation:  # a stream in memory
        return _check_size(stream.read(most), "-", limit)
    # do not read the stream itself: the interpreter cannot exit while a thread waits in it
    is_regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
    return _check_size(
        _first(descriptor, most) if is_regular else _in_time(lambda: _first(descriptor, most), "-"),
        "-",
        limit,
    )


def write_stream(path: Path, pieces: Iterable[bytes]) -> None:
    """
    Write pieces to a pipe or a device. Fail if the reader accepts nothing for
    :data:`limits.PIPE_SECONDS`.

    :raises TimeoutError: if the reader accepts nothing in time.
    :raises OSError: if there is no reader, or if writing fails.
    """
    import select

    descriptor = _open_read(path)
    try:
        for piece in pieces:
            remaining = memoryview(piece)
            while remaining:
                try:
                    remaining = remaining[os.write(descriptor, remaining) :]
                except BlockingIOError:
                    if not select.select((), (descriptor,), (), limits.PIPE_SECONDS.value)[1]:
                        raise _too_late(path, "its reader read nothing within") from None
    finally:
        os.close(descriptor)


def _open_read(path: Path) -> int:
    """
    Return a descriptor to write to. A reader that starts at the same time has
    :data:`_READER_SECONDS` to open its end of a pipe.
    """
    end = time.monotonic() + _READER_SECONDS
    while True:
        try:
            return os.open(path, os.O_WRONLY | _AT_ONCE | _FLAGS)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            if time.monotonic() > end:
                raise OSError(
                    errno.ENXIO, "it has no reader; start the reader first", str(path)
                ) from error
        time.sleep(_MOMENT)


def find_status(name: Path) -> os.stat_result | None:
    """
    Return the status of a path, without following links; None if the path does not exist.

    ``lexists()`` also returns False if the disk fails, and an existing file would be replaced.

    :raises OSError: if the operating system cannot determine whether the path exists.
    """
    try:
        return os.lstat(name)
    except (FileNotFoundError, NotADirectoryError):
        return None


def is_file(path: AnyPath) -> bool:
    """
    Return whether a path leads to a file.

    :raises ModelFileError: as :func:`regular_stream`.
    :raises OSError: if its parent may not be entered.
    """
    if isinstance(path, RemotePath):
        status = session().status(path)
        return status is not None and not status.is_directory
    return path.is_file()


def is_reachable_file(path: AnyPath) -> bool:
    """
    Return whether a path leads to a file; False also if its parent may not be entered.

    :raises ModelFileError: as :func:`regular_stream`.
    """
    return is_file(path) if isinstance(path, RemotePath) else os.path.isfile(path)  # noqa: PTH113  # Path.is_file raises


def is_directory(path: AnyPath) -> bool:
    """
    Return whether a path leads to a directory, or to a prefix of remote files.

    :raises ModelFileError: as :func:`regular_stream`.
    :raises OSError: if its parent may not be entered.
    """
    if isinstance(path, RemotePath):
        status = session().status(path)
        return status is not None and status.is_directory
    return path.is_dir()


def exists(path: AnyPath) -> bool:
    """
    Return whether a path exists, with links followed.

    :raises ModelFileError: as :func:`regular_stream`.
    :raises OSError: if its parent may not be entered.
    """
    if isinstance(path, RemotePath):
        return session().status(path) is not None
    return path.exists()


def is_taken(path: AnyPath) -> bool:
    """
    Return whether a path exists; also True for a broken link.

    :raises ModelFileError: as :func:`regular_stream`.
    """
    return exists(path) if isinstance(path, RemotePath) else os.path.lexists(path)


def names(directory: AnyPath) -> frozenset[str]:
    """
    Return the names directly in a directory; empty for a web address.

    :raises ModelFileError: as :func:`regular_stream`.
    :raises OSError: if it cannot be read.
    """
    if isinstance(directory, RemotePath):
        return frozenset(child.name for child in session().children(directory))
    return listings.listing(directory).all


def remote_tree(root: RemotePath) -> Iterator[tuple[str, RemotePath, bool]]:
    """
    Yield each file and directory below a remote directory, at any depth: the path relative to it,
    the path, and whether it is a directory.

    :raises ModelFileError: if a request fails, the server lists too many names, or a name is
        outside the directory.
    """
    pending, count = [root], 0
    while pending:
        folder = pending.pop()
        for name in sorted(names(folder)):
            count += 1
            if excess := limits.REMOTE_NAMES.exceeded_message(count, counting=True):
                raise ModelFileError(root.shown, "remote-limit", f"is a directory of {excess}")
            child = folder / name
            if child.leads_out(root):
                raise ModelFileError(child.shown, "unsafe-path", "is outside the model's directory")
            has_children = is_directory(child)
            if has_children:
                pending.append(child)
            yield child.relative_name(root), child, has_children


def matches(path: RemotePath) -> tuple[RemotePath, ...]:
    """
    Return the remote files and directories that a glob matches, in name order; nothing for a path
    that is not a glob.

    :raises ModelFileError: as :func:`regular_stream`.
    """
    home = path.before_pattern()
    return session().matches(path, home) if home is not None else ()


@contextlib.contextmanager
def without_collection(path: AnyPath) -> Iterator[None]:
    """
    Disable garbage collection while a remote file is read. Otherwise, threads of the backend can
    wait for the lock of h5py while the reader waits for these threads.
    """
    with (
        collection.without_collection()
        if isinstance(path, RemotePath)
        else contextlib.nullcontext()
    ):
        yield


def forget() -> None:
    """Discard cached data of remote files, so that the next reader sees their current state."""
    session().forget()


def file_size(path: AnyPath) -> int:
    """
    Return the size of a file in bytes.

    :raises ModelFileError: as :func:`regular_stream`.
    :raises OSError: if the file does not exist.
    """
    if isinstance(path, RemotePath):
        return session().stream(path).seek(0, os.SEEK_END)
    return path.stat().st_size


def links_out(path: AnyPath, home: AnyPath) -> bool:
    """
    Return whether a path, with links resolved, is outside a directory, except for the files of the
    same repository in the cache of the Hub's client. Remote files have no links, but their names
    may contain ``..``.
    """
    if isinstance(path, RemotePath) or isinstance(home, RemotePath):
        return not (isinstance(path, RemotePath) and isinstance(home, RemotePath)) or (
            path.leads_out(home)
        )
    # realpath supports circular links, for which Path.resolve raises
    resolved, root = Path(os.path.realpath(path)), Path(os.path.realpath(home))
    return not (resolved.is_relative_to(root) or _is_cached_blob(resolved, root))


def links_beside(path: AnyPath) -> bool:
    """Return whether a path is a link to a file in another directory; see :func:`links_out`."""
    if isinstance(path, RemotePath):
        return path.leads_out(path.parent)
    # as above
    resolved, root = Path(os.path.realpath(path)), Path(os.path.realpath(path.parent))
    return resolved.parent != root and not _is_cached_blob(resolved, root)


def _is_cached_blob(resolved: Path, root: Path) -> bool:
    """
    Return whether a file belongs to the repository of a directory in the cache of the Hub's client:
    ``models--NAME/blobs/HASH``, to which the links in ``models--NAME/snapshots/COMMIT`` lead.
    """
    return _BLOB.fullmatch(resolved.name) is not None and any(
        snapshots.name == "snapshots"
        and snapshots.parent.name.startswith("models--")
        and resolved.parent == snapshots.with_name("blobs")
        for snapshots in root.parents
    )


_sessions: Final[dict[int, Session]] = {}
"""The remote session by process number, because a forked process cannot use its parent's."""


def session() -> Session:
    """Return the session of this process, with its cached data of remote files."""
    process = os.getpid()
    if process not in _sessions:
        from policytool.support.files.remote import Session  # only for a URL

        _sessions.clear()
        _sessions[process] = Session(regular_stream)
    return _sessions[process]


def _check_regular(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise _wrong_kind(path, status.st_mode)


def _wrong_kind(path: Path, mode: int) -> OSError:
    if stat.S_ISDIR(mode):
        return IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    return NotRegularError(
        path, next((kind for is_kind, kind in _KINDS if is_kind(mode)), "a special file")
    )


def _first(descriptor: int, most: int, expected: int = 0) -> bytes:
    """Return at most ``most`` bytes; the first read requests ``expected`` bytes."""
    blocks, remaining = [], most
    while remaining and (block := os.read(descriptor, min(remaining, max(expected, _BLOCK)))):
        blocks.append(block)
        remaining -= len(block)
        expected = 0
    return b"".join(blocks)


def _check_size(data: bytes, path: Path | str, limit: Limit) -> bytes:
    if excess := limit.exceeded_message(len(data), counting=True):
        raise TooLargeError(path, excess)
    return data


def _in_time(read: Callable[[], Answer], path: Path | str) -> Answer:
    """
    Return the result of a function that may wait forever. It runs in a thread, which is abandoned
    if it takes too long.
    """
    import queue
    import threading

    answers: queue.SimpleQueue[tuple[Answer | None, Exception | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            answers.put((read(), None))
        except (OSError, MemoryError) as error:
            answers.put((None, error))

    threading.Thread(target=run, daemon=True).start()
    try:
        answer, error = answers.get(timeout=limits.PIPE_SECONDS.value)
    except queue.Empty:
        raise _too_late(path, "it did not end within") from None
    if error is not None:
        raise error
    return answer  # type: ignore[return-value]  # None only beside an error


def _too_late(path: Path | str, what: str) -> TimeoutError:
    limit = limits.PIPE_SECONDS
    return TimeoutError(
        errno.ETIMEDOUT,
        f"{what} the {limit.name} limit of {limit.value} second{'s' if limit.value > 1 else ''}",
        str(path),
    )
