"""Failures of writing: their codes and sentences, which say whether anything was changed."""

from __future__ import annotations

import errno
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NoReturn

from policytool.support.errors import ModelFileError, PolicytoolError
from policytool.support.files import atomic

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_NO_SPACE: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NOT_WRITABLE: Final = {errno.EACCES, errno.EPERM, errno.EROFS}


class WriteError(PolicytoolError):
    """
    A file that cannot be written as asked, or that does not read back as it was written; ``code``
    is stable.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def differs(where: str) -> WriteError:
    """Return the error of a draft that does not read back as it should."""
    return WriteError(
        "write-differs",
        (f"the new file does not read back correctly: {where} differs; nothing was changed"),
    )


def already_exists(name: str) -> WriteError:
    """Return the error for an output whose name something has that is not to be replaced."""
    return WriteError(
        "target-exists",
        f"would be written to {name}, which already exists; use --overwrite to replace it, or -o "
        "for another name",
    )


@contextmanager
def report_failures(shown: str, place: Path) -> Iterator[None]:
    """
    Turn every failure into the one kind that is reported.

    :raises ModelFileError: in place of each.
    """
    try:
        yield
    except WriteError as error:
        raise ModelFileError(shown, error.code, str(error)) from error
    except FileExistsError as error:
        raise ModelFileError(
            shown,
            "target-exists",
            f"{place.name} was created by another process; nothing was changed",
        ) from error
    except OSError as error:
        _raise(error, shown, place)


def _raise(error: OSError, shown: str, place: Path) -> NoReturn:
    reason = error.strerror or str(error)
    if isinstance(error, atomic.NotTakenBackError):
        raise ModelFileError(shown, "write-failed", f"writing failed: {reason}") from error
    where = place.parent if str(place.parent) != "." else "the working directory"
    if error.errno in _NO_SPACE:
        raise ModelFileError(
            shown,
            "no-space",
            (f"not enough space for the new file in {where} ({reason}); nothing was changed"),
        ) from error
    if error.errno in _NOT_WRITABLE:
        raise ModelFileError(
            shown,
            "not-writable",
            f"cannot create a file in {where} ({reason}); nothing was changed",
        ) from error
    raise ModelFileError(
        shown, "write-failed", f"writing failed ({reason}); nothing was changed"
    ) from error
