"""The hidden names of drafts, and the removal of those whose process is gone."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import sys
import zlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

SUFFIX: Final = ".policytool-draft"
_HIDDEN: Final = re.compile(
    rf"\..*\.([0-9a-f]{{8}})-([0-9]+)-[0-9a-f]+{re.escape(SUFFIX)}", re.DOTALL
)
_AT_FDCWD: Final = -100
_RENAME_NOREPLACE: Final = 1
"""Both as Linux has them (rename(2)); elsewhere there is no such call."""

_NAME_BYTES: Final = 180
"""Of a file's own name in a hidden one: file systems allow 255 bytes in all."""


def hidden(target: Path) -> Path:
    """Return a hidden name beside ``target``, which nothing else has."""
    start = os.fsdecode(os.fsencode(target.name)[:_NAME_BYTES])
    return target.with_name(f".{start}.{_host()}-{os.getpid()}-{os.urandom(4).hex()}{SUFFIX}")


def remove_stale(directory: Path) -> None:
    """Remove the drafts in ``directory`` that processes of this host left when they were killed."""
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        for name in [entry.name for entry in entries]:
            match = _HIDDEN.fullmatch(name)
            if match and match[1] == _host() and not _is_running(int(match[2])):
                remove(directory / name)


def remove(path: Path) -> None:
    """Remove a file or a directory, as far as that is possible."""
    with contextlib.suppress(OSError):
        try:
            path.unlink(
                missing_ok=True
            )  # without asking what it is: a system that fails to say so may remove it all the same
        except (IsADirectoryError, PermissionError):
            import shutil  # with socket 5 ms, only where something is written

            shutil.rmtree(path)


def rename_to_free(source: Path, name: Path) -> bool:
    """
    Rename a file to a name that nothing has, and return whether the system can do that in one step.

    :raises OSError: where the system fails, with EEXIST where something has the name.
    """
    if sys.platform != "linux":
        return False
    import ctypes  # only where a file system has no links

    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:
        return False
    if (
        call(
            _AT_FDCWD,
            os.fsencode(source),
            _AT_FDCWD,
            os.fsencode(name),
            ctypes.c_uint(_RENAME_NOREPLACE),
        )
        == 0
    ):
        return True
    failed = ctypes.get_errno()
    if failed in {errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP}:
        return False
    raise OSError(failed, os.strerror(failed), str(name))


def _host() -> str:
    import socket

    return f"{zlib.crc32(socket.gethostname().encode()):08x}"


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # it runs, and is someone else's
        return True
    return True
