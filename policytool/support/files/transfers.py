"""
Transfers of complete files: a local copy of a remote model, and new objects on servers.

An object appears on the server only when it is complete: backends send a large object in parts,
which the server joins at the end.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import time
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from policytool.support.errors import ModelFileError
from policytool.support.files import opening
from policytool.support.files.remote import place_of
from policytool.support.files.remote_requests import changed, request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from policytool.support.files.remote_path import RemotePath, Status

_BLOCK: Final = 8 * 2**20
"""Bytes of one request. S3 accepts parts of at least 5 MiB."""

_MOST_PARTS: Final = 9_000
"""S3 accepts 10,000 parts of one object."""

_UNSUPPORTED: Final = (NotImplementedError, ValueError)
"""The exceptions of backends for an unsupported mode."""

_STEP_SECONDS: Final = 1.0
"""Seconds between two reports of a transfer."""

_report: ContextVar[Callable[[str], None]] = ContextVar(
    "policytool.support.files.transfers", default=lambda _: None
)
"""Receives the progress of transfers."""


@contextmanager
def reporting(report: Callable[[str], None]) -> Iterator[None]:
    """Call ``report`` with the progress of a transfer, once a second, and with "" at its end."""
    token = _report.set(report)
    try:
        yield
    finally:
        _report.reset(token)


def files_below(path: RemotePath) -> dict[str, RemotePath]:
    """
    Return the files below a directory by their path relative to it.

    :raises ModelFileError: as :func:`policytool.support.files.opening.remote_tree`.
    """
    return {
        name: child for name, child, is_directory in opening.remote_tree(path) if not is_directory
    }


def download(files: dict[str, RemotePath], folder: Path) -> None:
    """
    Copy remote files into a local directory, by their relative paths.

    :raises ModelFileError: if a server does not deliver them, one changes meanwhile, or there is
        not enough space for them.
    :raises OSError: if a local file cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    before = {path: _status(path) for path in files.values()}
    total = sum(opening.file_size(path) for path in files.values())
    _check_space(total, folder)
    with _steps("downloading", total) as count_bytes:
        for name, path in files.items():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            with opening.regular_stream(path) as stream, target.open("xb") as copy:
                while block := stream.read(_BLOCK):
                    copy.write(block)
                    count_bytes(path, len(block))
    opening.forget()
    for path, status in before.items():
        if _status(path) != status:
            raise changed(path)


def upload(file: Path, target: RemotePath, *, overwrite: bool) -> None:
    """
    Write a local file to a new object, or replace an object, and check that it arrived completely.

    If the backend supports it, the server itself rejects the replacement of an object.

    :raises FileExistsError: if the object exists and ``overwrite`` is false.
    :raises ModelFileError: if the server does not store the object; no new object then exists.
    """
    system = opening.session().system(target)
    size = opening.file_size(file)
    place = place_of(target, system)
    if not overwrite and opening.is_taken(target):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target.shown)

    def begin() -> Any:  # noqa: ANN401  # fsspec has no types
        settings = {"block_size": max(_BLOCK, size // _MOST_PARTS), "autocommit": False}
        if not overwrite:
            with contextlib.suppress(*_UNSUPPORTED):
                return system.open(place, "xb", **settings)
        return system.open(place, "wb", **settings)

    remote_file = request(target, begin, writes=True)
    try:
        with opening.regular_stream(file) as stream, _steps("uploading", size) as count_bytes:
            while block := stream.read(_BLOCK):
                request(target, lambda block=block: remote_file.write(block), writes=True)  # type: ignore[misc]  # bound now
                count_bytes(target, len(block))
        request(target, remote_file.close, writes=True)
        request(target, remote_file.commit, writes=True)
    except BaseException:
        with contextlib.suppress(Exception):  # the first error is the one to report
            request(target, remote_file.discard, writes=True)
        raise
    opening.forget()
    if opening.file_size(target) != size:
        raise changed(target)


def remove(target: RemotePath) -> None:
    """
    Remove an object.

    :raises ModelFileError: if the server does not remove the object.
    """
    system = opening.session().system(target)
    request(target, lambda: system.rm_file(place_of(target, system)), writes=True)
    opening.forget()


@contextmanager
def _steps(what: str, total: int) -> Iterator[Callable[[RemotePath, int], None]]:
    """Yield a function that counts the bytes copied from or to a path, and reports their share."""
    report = _report.get()
    copied, reported_at = 0, time.monotonic()

    def count_bytes(path: RemotePath, count: int) -> None:
        """
        Add a number of bytes to the sum, and report the share if the last report is old
        enough.
        """
        nonlocal copied, reported_at
        copied += count
        if time.monotonic() - reported_at >= _STEP_SECONDS:
            reported_at = time.monotonic()
            share = copied * 100 // max(total, 1)
            report(f"{what} {path.shown}: {share} % of {total / 10**6:,.0f} MB")

    try:
        yield count_bytes
    finally:
        report("")


def _status(path: RemotePath) -> Status:
    try:
        return opening.session().existing_status(path)
    except FileNotFoundError:
        raise changed(path) from None


def _check_space(needed: int, folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise ModelFileError(
            str(folder),
            "no-space",
            f"has {free:,} free bytes, but a copy of the model needs {needed:,}; set TMPDIR to a "
            "directory with more space",
        )
