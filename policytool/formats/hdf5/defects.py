"""
Which published defects the HDF5 library has that reads here, by its version
(data/hdf5_defects.json).
"""

from __future__ import annotations

import re
from typing import Final

from policytool.releases import data

SAFE_VERSION: Final = "1.14.4"
"""
The first release without a hole through which a file writes to memory (CVE-2026-26200); the wheels
of h5py 3.13 and later have 1.14.6 or a later one.
"""


def installed_version() -> str:
    """Return the version of the HDF5 library that h5py has."""
    from policytool.formats.hdf5 import library as _hdf5  # h5py costs 80 ms

    return _hdf5.library()


def published_defects(version: str) -> tuple[str, ...]:
    """Return the ids of the defects that a release has, by the first releases without them."""
    return tuple(
        defect["id"]
        for defect in data.read("hdf5_defects")["defects"]
        if _version_numbers(version) < _version_numbers(defect["fixed_in"])
    )


def defects_warning(version: str) -> str:
    """
    Return what is to be said of a version, as a sentence; empty for one without known defects.
    """
    defects = published_defects(version)
    if not defects:
        return ""
    advice = "; install h5py 3.13 or later" if is_below_floor(version) else ""
    return (
        f"the HDF5 library {version} has published vulnerabilities that a file can trigger "
        f"({', '.join(defects)}){advice}"
    )


def is_below_floor(version: str) -> bool:
    """Return whether a release has the hole that a newer h5py would close."""
    return _version_numbers(version) < _version_numbers(SAFE_VERSION)


def _version_numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])
