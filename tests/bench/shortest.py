"""
The shortest script that reads what ``inspect`` reads, with the same libraries: the JSON config, and
name, shape and dtype of every variable.
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


path = sys.argv[1]
if path.endswith(".keras"):
    with zipfile.ZipFile(path) as archive:
        config = json.loads(archive.read("config.json"))
        weights = h5py.File(Window(archive, "model.weights.h5"), "r")
else:
    weights = h5py.File(path, "r")
    config = json.loads(weights.attrs["model_config"])
sys.stdout.write(f"{len(config['config']['layers'])} layers\n")
weights.visititems(show)
weights.close()
