"""
Files that are two models, of which the harmless one is what a reader by content sees, and archives
that only look like such files.
"""

from __future__ import annotations

import io
import json
import struct
import zipfile
from typing import TYPE_CHECKING, Final

import h5py
import numpy as np

from tests.helpers.paths import FIXTURES

if TYPE_CHECKING:
    from random import Random

HARMLESS_H5: Final = (FIXTURES / "tf2.15/default_float32.h5").read_bytes()
HARMLESS_KERAS: Final = (FIXTURES / "keras3.15/default_float32.keras").read_bytes()
SIGNATURE: Final = b"\x89HDF\r\n\x1a\n"
OFFSETS: Final = tuple(2**power for power in range(9, 20))
"""Where the HDF5 library looks for a signature, beside the beginning."""


def hostile_archive(marker: str) -> bytes:
    """Return an archive that makes a file where tf_keras loads it."""
    with h5py.File(FIXTURES / "attacks/models/class_method_write.h5") as file:
        text = file.attrs["model_config"]
    config = {
        **json.loads(text.replace("policytool-marker", marker)),
        "module": "keras.src.engine.functional",
        "registered_name": "Functional",
    }
    weights = io.BytesIO()
    with h5py.File(weights, "w") as file:
        file.create_group("layers")
    result = io.BytesIO()
    with zipfile.ZipFile(result, "w") as archive:
        archive.writestr("metadata.json", json.dumps({"keras_version": "2.15.0"}))
        archive.writestr("config.json", json.dumps(config))
        archive.writestr("model.weights.h5", weights.getvalue())
    return result.getvalue()


def hdf5_at(offset: int, content: bytes = HARMLESS_H5) -> bytes:
    """Return an HDF5 file behind a user block."""
    result = io.BytesIO()
    with (
        h5py.File(result, "w", userblock_size=offset) as file,
        h5py.File(io.BytesIO(content)) as old,
    ):
        for name in old:
            old.copy(name, file)
        for name, value in old.attrs.items():
            file.attrs[name] = value
    return result.getvalue()


def archive_around(hdf5: bytes, content: bytes = HARMLESS_KERAS) -> bytes:
    """
    Return an archive whose first member lies in the user block of an HDF5 file, and its others
    behind that.
    """
    first = io.BytesIO()
    with zipfile.ZipFile(first, "w") as archive:
        archive.writestr("note.txt", "text")
        info, end = archive.infolist()[0], archive.start_dir
    start = first.getvalue()[:end]
    result = io.BytesIO(start + hdf5[len(start) :])
    with zipfile.ZipFile(result, "a") as archive, zipfile.ZipFile(io.BytesIO(content)) as old:
        archive.filelist.append(info)
        archive.NameToInfo[info.filename] = info
        for name in old.namelist():
            archive.writestr(name, old.read(name))
    return result.getvalue()


def with_comment(archive: bytes, comment: bytes) -> bytes:
    """Return an archive with a comment, which begins behind its last record."""
    return archive[:-2] + struct.pack("<H", len(comment)) + comment


def healthy_archive(rng: Random) -> bytes:
    """
    Return an archive as Keras, or a program that packs a model again, may write it: config and
    members of any length, in any order, compressed or not, HDF5 often exactly where the library
    looks for a signature.
    """
    with zipfile.ZipFile(io.BytesIO(HARMLESS_KERAS)) as old:
        files = {name: old.read(name) for name in old.namelist()}
    weights = files.pop("model.weights.h5")
    names = ["model.weights.h5"]
    if rng.random() < 0.3:
        names = [f"model_{number:05}.weights.h5" for number in range(rng.randint(1, 3))]
    files |= dict.fromkeys(names, weights)
    if rng.random() < 0.3:
        files["assets/layer/table.h5"] = HARMLESS_H5
    if rng.random() < 0.2:
        arrays = io.BytesIO()
        np.savez(arrays, a=np.zeros(3))
        files["assets/layer/arrays.npz"] = arrays.getvalue()
    files["config.json"] += b" " * rng.randrange(4000)
    order = list(files)
    rng.shuffle(order)
    result = io.BytesIO()
    with zipfile.ZipFile(result, "w") as archive:
        for name in order:
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_STORED if rng.random() < 0.8 else zipfile.ZIP_DEFLATED
            if name.endswith(".h5") and rng.random() < 0.8:
                info.extra = _padding(archive.start_dir, name, rng)
            archive.writestr(info, files[name])
    return result.getvalue()


def _padding(start: int, name: str, rng: Random) -> bytes:
    """
    Return an extra field, as alignment tools write it, with which a member's bytes begin where the
    library looks.
    """
    begin = start + 30 + len(name)
    places = [item for item in OFFSETS if begin + 4 <= item < begin + 2**16]
    if not places:
        return b""
    offset = rng.choice(places[:3])
    return struct.pack("<HH", 0xD935, offset - begin - 4) + bytes(offset - begin - 4)
