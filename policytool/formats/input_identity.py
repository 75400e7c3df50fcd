"""
The identity of a model, from names and statuses or from a server's listing. It shows whether a
model has changed since it was read.

No file is opened, and no link inside a model is followed to a directory. For remote models, only
versions of the content count, such as etags, because times from servers have a resolution of one
second.

The identity contains all files that a result depends on: those of the model, and files next to it
whose names begin with its name, such as the shards of a checkpoint and the file that a suggested
command would write.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from policytool.formats.checkpoint import INDEX
from policytool.formats.saved_model import GRAPH
from policytool.support.errors import ModelFileError
from policytool.support.files import listings, opening
from policytool.support.files.remote_path import ZIP

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.support.files.remote_path import RemotePath


_FILES: Final = 10_000
"""The maximum number of files and directories in a model; real models have a few dozen."""

_NEIGHBORS: Final = 100
"""The maximum number of files next to a model whose names begin with its name."""

Row = tuple[str | int, ...]


class InputIdentity(NamedTuple):
    """The identity of all files that are read from a path."""

    text: str
    newest_ns: int
    """The latest change of a file, in nanoseconds since the epoch."""

    def is_settled(self, now_ns: int) -> bool:
        """
        Return whether the latest change is old enough that a new change would have a later time.
        """
        return self.newest_ns < now_ns - listings.SETTLING_NS


class _UnclearError(Exception):
    """The statuses, or the listing, do not show which files would be read."""


def input_identity(path: Path) -> InputIdentity | None:
    """
    Return the identity of the model at a path.

    None if its status cannot be read, if it has too many files, or if it contains a link to a
    directory or another entry that is neither a file nor a directory.
    """
    if path.name in {"", ".."}:
        return None
    try:
        rows = list(_rows(path))
    except (_UnclearError, OSError, ValueError):  # reading it shows what is wrong
        return None
    return InputIdentity(
        json.dumps([str(path.absolute()), rows]),
        max(int(time_ns) for row in rows for time_ns in row[1:3]),
    )


def _rows(path: Path) -> Iterator[Row]:
    """
    Yield the identity of each file that the result depends on.

    :raises OSError: if a status cannot be read.
    """
    status = path.stat()
    yield from _link_rows("", path)
    yield _row("", status)
    is_directory = stat.S_ISDIR(status.st_mode)
    has_graph = False
    if is_directory:
        for row in _below(path):
            has_graph = has_graph or row[0] == GRAPH
            yield row
    elif not stat.S_ISREG(status.st_mode):
        raise _UnclearError
    yield from _beside(path, path.name if has_graph else path.stem)


def _below(root: Path) -> Iterator[Row]:
    """Yield the identity of each file and directory below a directory."""
    folders, count = [""], 0
    while folders:
        folder = folders.pop()
        with os.scandir(root / folder) as entries:
            children = sorted(entries, key=lambda entry: entry.name)
        for entry in children:
            count += 1
            name = f"{folder}/{entry.name}" if folder else entry.name
            status = entry.stat()
            is_directory = stat.S_ISDIR(status.st_mode)
            is_clear = stat.S_ISREG(status.st_mode) or (is_directory and not entry.is_symlink())
            if count > _FILES or not is_clear:
                raise _UnclearError
            if entry.is_symlink():
                yield from _link_rows(name, Path(entry.path))
            if is_directory:
                folders.append(name)
            yield _row(name, status)


def _beside(path: Path, own_name: str) -> Iterator[Row]:
    """Yield the identity of each file next to a model whose name begins with the model's name."""
    directory = path.absolute().parent
    for number, name in enumerate(
        listings.listing(directory).beginning_in_any_case(f"{own_name}.")
    ):
        if number > _NEIGHBORS:
            raise _UnclearError
        if name == path.name:
            continue
        place = directory / name
        yield from _link_rows(f"../{name}", place)
        try:
            yield _row(f"../{name}", place.stat())
        except FileNotFoundError:  # a link to nothing
            yield (f"../{name}", 0, 0)


def _link_rows(name: str, place: Path) -> Iterator[Row]:
    """Yield the identity of a link and of its target; nothing if the path is not a link."""
    status = os.lstat(place)
    if stat.S_ISLNK(status.st_mode):
        yield _row(name, status)
        # readers compare the target of the link with the directory of the model
        yield (os.path.realpath(place), 0, 0)
        yield (os.path.realpath(place.parent), 0, 0)


def _row(name: str, status: os.stat_result) -> Row:
    """Return a name and a status, in which the times come first."""
    return (
        name,
        status.st_mtime_ns,
        status.st_ctime_ns,
        status.st_size,
        status.st_mode,
        status.st_ino,
        status.st_dev,
    )


_RemoteRow = tuple[str, int | None, str]


def remote_identity(path: RemotePath) -> InputIdentity | None:
    """
    Return the identity of the model at a URL; None if the server sends no exact version of a file,
    if the model has too many files, and for a member of an archive.
    """
    if path.protocol == ZIP:
        return None
    try:
        rows = list(_remote_rows(path))
    except (_UnclearError, ModelFileError, OSError):  # reading it shows what is wrong
        return None
    return InputIdentity(json.dumps([path.shown, rows]), 0)


def _remote_rows(path: RemotePath) -> Iterator[_RemoteRow]:
    """
    Yield the identity of each file that the result depends on; for a checkpoint, the files next to
    its index.

    :raises OSError: if there is no such file.
    """
    if opening.is_directory(path):
        yield from _remote_rows_below(path)
    elif path.name.endswith(INDEX):
        start = path.name.removesuffix(INDEX)
        for name in sorted(opening.names(path.parent)):
            if name.startswith(f"{start}.") and opening.is_file(path.parent / name):
                yield _remote_row(path.parent / name, name)
    else:
        yield _remote_row(path, "")


def _remote_rows_below(root: RemotePath) -> Iterator[_RemoteRow]:
    """Yield the identity of each file and directory below a directory."""
    for number, (name, path, is_directory) in enumerate(opening.remote_tree(root)):
        if number >= _FILES:
            raise _UnclearError
        yield (name, None, "") if is_directory else _remote_row(path, name)


def _remote_row(path: RemotePath, name: str) -> _RemoteRow:
    status = opening.session().existing_status(path)
    if not status.is_exact:
        raise _UnclearError
    return (name, status.size, status.version)
