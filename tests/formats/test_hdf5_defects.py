"""The message about defects of the HDF5 library, and when it is printed."""

from __future__ import annotations

import json
import tomllib
from importlib import resources

import pytest

from policytool.formats import hdf5 as _hdf5_defects
from policytool.formats.hdf5 import library as _hdf5
from tests.conftest import MIXED_H5, MIXED_JSON, run
from tests.helpers.paths import ROOT


@pytest.mark.parametrize(
    ("version", "has", "lacks"),
    [
        ("1.14.2", {"CVE-2026-26200", "CVE-2025-44904", "CVE-2026-17572"}, set()),
        ("1.14.4-3", {"CVE-2025-44904"}, {"CVE-2026-26200"}),
        ("2.0.0", {"CVE-2026-26197", "CVE-2026-17573"}, {"CVE-2026-26200"}),
        ("2.1.1", {"CVE-2026-17572"}, {"CVE-2025-2308"}),
        ("2.2.0", set(), {"CVE-2026-17572", "CVE-2026-17573"}),
    ],
)
def test_defects_are_those_of_the_release(version: str, has: set[str], lacks: set[str]) -> None:
    actual = set(_hdf5_defects.published_defects(version))
    assert has <= actual
    assert not lacks & actual
    assert bool(_hdf5_defects.defects_warning(version)) is bool(actual)


def test_each_defect_has_a_source() -> None:
    """Each defect has a source and a description of what a file can do."""
    table = json.loads(
        resources.files("policytool.releases.data")
        .joinpath("hdf5_defects.json")
        .read_text(encoding="utf-8")
    )
    assert all(
        defect["source"].startswith("https://") and defect["what"] for defect in table["defects"]
    )


def test_message_names_the_lowest_required_h5py_version() -> None:
    """The lowest h5py version that the package requires is the one that the message names."""
    (required,) = (
        line
        for line in tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
            "dependencies"
        ]
        if line.startswith("h5py")
    )
    assert _hdf5_defects.defects_warning("1.14.2").endswith(
        f"install h5py {required.removeprefix('h5py>=')} or later"
    )
    assert not _hdf5_defects.is_below_floor("1.14.6")


@pytest.mark.parametrize("command", ["inspect", "audit"])
def test_defects_are_reported_with_verbose_or_for_an_old_library(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not with -q or for a current library."""
    monkeypatch.setattr(_hdf5, "library", lambda: "2.0.0")
    assert "HDF5" not in run(command, MIXED_H5).err
    assert (
        "warning: The HDF5 library 2.0.0 has published vulnerabilities"
        in run(command, "-v", MIXED_JSON).err
    )
    monkeypatch.setattr(_hdf5, "library", lambda: "1.12.2")
    assert "(CVE-2026-26200" in run(command, MIXED_H5).err
    assert "HDF5" not in run(command, "-q", MIXED_H5).err
