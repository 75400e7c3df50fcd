"""The files and directories below a remote directory, at any depth."""

from __future__ import annotations

from typing import TYPE_CHECKING

from policytool.support import limits
from policytool.support.errors import ModelFileError
from policytool.support.files import opening

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.support.files.remote_path import RemotePath


def tree(root: RemotePath) -> Iterator[tuple[str, RemotePath, bool]]:
    """
    Yield each file and directory below a directory: the path relative to it, the path, and whether
    it is a directory.

    :raises ModelFileError: if a request fails, the server lists too many names, or a name leads out
        of the directory.
    """
    pending, count = [root], 0
    while pending:
        folder = pending.pop()
        for name in sorted(opening.names(folder)):
            count += 1
            if excess := limits.REMOTE_NAMES.exceeded_message(count, counting=True):
                raise ModelFileError(root.shown, "remote-limit", f"is a directory of {excess}")
            child = folder / name
            if child.leads_out(root):
                raise ModelFileError(child.shown, "unsafe-path", "is outside the model's directory")
            is_directory = opening.is_directory(child)
            if is_directory:
                pending.append(child)
            yield child.relative_name(root), child, is_directory
