"""Reading the report of an earlier check, for ``check --compare-to``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from policytool.numerics.verdicts.regressions import earlier_check
from policytool.support import limits
from policytool.support.errors import ModelFileError
from policytool.support.files import opening

if TYPE_CHECKING:
    from pathlib import Path

    from policytool.numerics.verdicts.regressions import EarlierCheck


def read_earlier_check(path: Path) -> EarlierCheck:
    """
    Return the check in a file that ``check --format json`` wrote.

    :raises ModelFileError: if it cannot be read, or is anything else.
    """
    try:
        text = opening.read_user_file(path, limits.JSON_BYTES)
    except FileNotFoundError as error:
        raise ModelFileError(
            str(path), "not-found", "does not exist; check the path in --compare-to"
        ) from error
    except OSError as error:
        raise ModelFileError(
            str(path), "unreadable", f"cannot be read for --compare-to: {error.strerror or error}"
        ) from error
    return earlier_check(str(path), text)
