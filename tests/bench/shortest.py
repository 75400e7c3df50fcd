"""
The shortest script that reads what ``inspect`` reads, with the same libraries: the JSON config, and
name, shape and dtype of every variable. Of a directory, it reads all models; it only loads the
files of a SavedModel.
"""

from __future__ import annotations

import io
import json
import os
import sys
import zipfile
from typing import Any

import h5py


class Window(io.RawIOBase):
    """
    A stored zip member as a file of its own; over ``zipfile``'s file object each backward seek
    reads the member again from its start.
    """

    def __init__(self, archive: zipfile.ZipFile, name: str) -> None:
        member = archive.getinfo(name)
        self.file = open(str(archive.filename), "rb", buffering=0)  # noqa: PTH123,SIM115
        head = os.pread(self.file.fileno(), 30, member.header_offset)
        self.start = (
            member.header_offset
            + 30
            + int.from_bytes(head[26:28], "little")
            + int.from_bytes(head[28:30], "little")
        )
        self.size, self.position = member.file_size, 0

    def seek(self, offset: int, whence: int = 0) -> int:
        """Move."""
        self.position = offset + (0, self.position, self.size)[whence]
        return self.position

    def tell(self) -> int:
        """Return the position."""
        return self.position

    def readinto(self, buffer: Any) -> int:
        """Read on."""
        count = os.preadv(self.file.fileno(), [buffer], self.start + self.position)
        self.position += count
        return count


def show(name: str, item: h5py.Dataset | h5py.Group) -> None:
    """Write a variable down."""
    if isinstance(item, h5py.Dataset):
        sys.stdout.write(f"{name} {item.shape} {item.dtype}\n")


def show_config(config: Any) -> None:
    """Write down how many layers a model has."""
    sys.stdout.write(f"{len(config['config']['layers'])} layers\n")


def show_weights(path: str) -> None:
    """Write down what an HDF5 or `.keras` file contains."""
    if path.endswith(".keras"):
        with zipfile.ZipFile(path) as archive:
            config = json.loads(archive.read("config.json"))
            weights = h5py.File(Window(archive, "model.weights.h5"), "r")
    else:
        weights = h5py.File(path, "r")
        config = json.loads(weights.attrs["model_config"])
    show_config(config)
    weights.visititems(show)
    weights.close()


def show_model(path: str) -> None:
    """Write down what a model contains."""
    if os.path.isdir(path):  # noqa: PTH112  # pathlib takes longer to import than this script
        for name in ("saved_model.pb", "keras_metadata.pb"):
            with open(f"{path}/{name}", "rb") as file:  # noqa: PTH123
                sys.stdout.write(f"{name} {len(file.read())} bytes\n")
    elif path.endswith(".json"):
        with open(path, "rb") as file:  # noqa: PTH123
            show_config(json.load(file))
    else:
        show_weights(path)


given = sys.argv[1]
if os.path.isdir(given):  # noqa: PTH112
    for entry in sorted(os.listdir(given)):  # noqa: PTH208
        show_model(f"{given}/{entry}")
else:
    show_model(given)
