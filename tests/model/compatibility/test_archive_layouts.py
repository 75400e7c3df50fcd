"""
The archive layout of TF 2.12 to 2.14, in which layers are in a group that later releases do not
read.
"""

from __future__ import annotations

import io
import json
import zipfile
from typing import TYPE_CHECKING

import h5py
import pytest

import policytool
from policytool.model.tree.storage import DEPENDENCIES
from tests.helpers.paths import FIXTURES

if TYPE_CHECKING:
    from pathlib import Path

ONCE = ("dense", "dense_1")
TWICE = ("dense", "dense_2")


def relaid(target: Path, names: tuple[str, str], version: str) -> Path:
    """Return a Sequential archive with two Dense layers in the layout of TF 2.13 or 2.14."""
    with zipfile.ZipFile(FIXTURES / "tf2.15/sequential.keras") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    weights = io.BytesIO(members["model.weights.h5"])
    with h5py.File(weights, "r+") as file:
        for before, after in zip(("dense", "dense_1"), names, strict=True):
            file.move(f"layers/{before}", f"{DEPENDENCIES}/{after}")
        del file["layers"]
    members["model.weights.h5"] = weights.getvalue()
    members["metadata.json"] = json.dumps({"keras_version": version}).encode()
    with zipfile.ZipFile(target, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return target


@pytest.mark.parametrize(
    ("names", "version", "loading"),
    [
        (ONCE, "2.14.1", {"tf2.12": False, "tf2.15": False, "tf_keras2.21": False}),
        (TWICE, "2.13.1", {"tf2.12": True, "tf2.15": False, "tf_keras2.21": False}),
    ],
)
def test_verdicts_agree_with_measured_loads(
    names: tuple[str, str], version: str, loading: dict[str, bool], tmp_path: Path
) -> None:
    """
    The verdicts on Sequential models with several layers of one class agree with measured loads of
    files that TF 2.13.1 and 2.14.1 wrote.
    """
    releases = policytool.inspect(relaid(tmp_path / "m.keras", names, version)).releases
    assert {name: releases[name].reason is None for name in loading} == loading
    assert DEPENDENCIES in str(releases["tf2.15"].reason)
    keras3 = [cause.reason for cause in releases["keras3.15"].causes]
    assert any("counts each layer twice" in reason for reason in keras3) is (names == TWICE)


@pytest.mark.parametrize(("names", "version"), [(ONCE, "2.14.1"), (TWICE, "2.13.1")])
@pytest.mark.parametrize("target", ["tf2.15", "tf_keras"])
def test_conversion_moves_variables_to_the_group_that_later_releases_read(
    names: tuple[str, str], version: str, target: str, tmp_path: Path
) -> None:
    source = relaid(tmp_path / "m.keras", names, version)
    output = tmp_path / "converted.keras"
    policytool.migrate(source, target=target, output=output, verify=False)
    stored = []
    for path in (source, output):
        with (
            zipfile.ZipFile(path) as archive,
            h5py.File(io.BytesIO(archive.read("model.weights.h5"))) as file,
        ):
            group = file["layers" if path == output else DEPENDENCIES]
            keys = ONCE if path == output else names
            stored.append(
                [group[key]["vars"][place][()].tolist() for key in keys for place in "01"]
            )
    assert stored[0] == stored[1]
    assert (
        policytool.inspect(output)
        .releases["tf2.15" if target == "tf2.15" else "tf_keras2.21"]
        .reason
        is None
    )
