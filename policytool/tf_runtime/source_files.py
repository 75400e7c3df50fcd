"""
Whether the files that are about to be loaded are still those that the parent read and checked.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from .library import Refused

if TYPE_CHECKING:
    from typing import Any, Mapping


def check_unchanged(job: Mapping[str, Any]) -> None:
    """
    Compare the files of a job with their paths, devices, inodes, sizes and times of modification,
    as the parent found them.

    :raises Refused: where one was replaced or changed.
    """
    for path, *identity in job["files"]:
        try:
            found = os.stat(path)
        except OSError as error:
            raise Refused(
                "source-changed",
                "{} was removed after it was checked ({}); run the command again".format(
                    path, error.strerror
                ),
            ) from error
        now = [found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns]
        first = (
            2 if os.name == "nt" else 0
        )  # Pythons differ in how they number devices and files of Windows
        if now[first:] != identity[first:]:
            raise Refused(
                "source-changed",
                "{} was replaced or changed after it was checked; run the command again".format(
                    path
                ),
            )
