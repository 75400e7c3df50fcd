"""
What tells, from a server's listing, whether a remote model is the one that was read before.

Only versions of contents count, such as etags: a time that a server gives has a resolution of a
second. Nothing is opened.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from policytool.formats.input_identity import InputIdentity
from policytool.support.errors import ModelFileError
from policytool.support.files import opening
from policytool.support.files.remote_path import ZIP
from policytool.support.files.remote_tree import tree

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.support.files.remote_path import RemotePath

_INDEX: Final = ".index"
"""The suffix of the index of a checkpoint, whose values lie in files beside it."""

_FILES: Final = 10_000
"""Files and directories in a model; real ones have a few dozen."""

_Row = tuple[str, int | None, str]


class _UnclearError(Exception):
    """The listing does not tell what would be read."""


def remote_identity(path: RemotePath) -> InputIdentity | None:
    """
    Return the identity of the model at a URL; None if the server gives no exact version of a file,
    if it has too many files, or for a member of an archive.
    """
    if path.protocol == ZIP:
        return None
    try:
        rows = list(_rows(path))
    except (_UnclearError, ModelFileError, OSError):  # reading it shows what is wrong
        return None
    return InputIdentity(json.dumps([path.shown, rows]), 0)


def _rows(path: RemotePath) -> Iterator[_Row]:
    """
    Yield what identifies each file that decides a result: of a checkpoint, those beside its index.

    :raises OSError: if there is no such file.
    """
    if opening.is_directory(path):
        yield from _below(path)
    elif path.name.endswith(_INDEX):
        start = path.name.removesuffix(_INDEX)
        for name in sorted(opening.names(path.parent)):
            if name.startswith(f"{start}.") and opening.is_file(path.parent / name):
                yield _row(path.parent / name, name)
    else:
        yield _row(path, "")


def _below(root: RemotePath) -> Iterator[_Row]:
    """Yield what identifies each file and directory below a directory."""
    for number, (name, path, is_directory) in enumerate(tree(root)):
        if number >= _FILES:
            raise _UnclearError
        yield (name, None, "") if is_directory else _row(path, name)


def _row(path: RemotePath, name: str) -> _Row:
    found = opening.identity(path)
    if not isinstance(found, opening.RemoteIdentity) or not found.is_exact:
        raise _UnclearError
    return (name, found.size, found.version)
