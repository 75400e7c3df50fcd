"""
Files that are an HDF5 model and an archive at once, and healthy archives that look like one.

Keras chooses the reader by the suffix of a file, and each reader finds its own part: HDF5 looks for
its signature at byte 0, 512, 1024, 2048 and so on, and zip looks for its directory at the end. A
healthy ``.keras`` archive may store its weights, an HDF5 file, at such an offset.
"""

from __future__ import annotations

import io
import json
import zipfile
from typing import TYPE_CHECKING, Final

import h5py

from tests.fuzz import hostile_configs, sound_configs
from tests.helpers import small_models

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from random import Random

    from tests.fuzz.hostile_names import Paths
    from tests.fuzz.sound_configs import Config

SUFFIXES: Final = (".keras", ".h5", ".hdf5", ".bin", "")
_OFFSETS: Final = tuple(512 * 2**power for power in range(6))
"""Where HDF5 looks for its signature after byte 0, as far as small files reach."""

_HEADER_BYTES: Final = 30
"""Of a zip member before its name."""

_COMMENT_BYTES: Final = 2**16 - 1
"""The longest comment of an archive."""


def hdf5_model(config: Config, user_block: int = 0) -> bytes:
    """Return a whole model in HDF5 after a user block of so many bytes."""
    buffer = io.BytesIO()
    with h5py.File(buffer, "w", userblock_size=user_block) as file:
        file.attrs["model_config"] = json.dumps(config)
        file.attrs["keras_version"] = "3.15.1" if "registered_name" in config else "2.15.0"
        file.attrs["backend"] = "tensorflow"
        file.create_group("model_weights")
    return buffer.getvalue()


def archive(config: Config, first: tuple[str, bytes] | None = None, comment: bytes = b"") -> bytes:
    """Return a ``.keras`` archive, with an additional first member."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as written:
        if first is not None:
            written.writestr(*first)
        for name, data in small_models.keras_members(config).items():
            written.writestr(name, data)
        written.comment = comment
    return buffer.getvalue()


def appended_archive(rng: Random, h5_config: Config, zip_config: Config) -> bytes:
    """Return an HDF5 model with an archive behind it."""
    gap = bytes(rng.choice((0, 1, 8, 512)))
    return hdf5_model(h5_config, rng.choice((0, *_OFFSETS))) + gap + archive(zip_config)


def archive_in_user_block(rng: Random, h5_config: Config, zip_config: Config) -> bytes:
    """Return an archive at byte 0 whose directory stands at the end, behind an HDF5 model."""
    packed = archive(zip_config)
    end = packed.rindex(b"PK\x05\x06")
    directory = int.from_bytes(packed[end + 16 : end + 20], "little")
    offset = next(offset for offset in _OFFSETS if offset >= directory)
    model = hdf5_model(h5_config, offset)
    body = packed[:directory].ljust(offset, bytes([rng.randrange(256)])) + model[offset:]
    ending = bytearray(packed[end:])
    ending[16:20] = len(body).to_bytes(4, "little")
    return body + packed[directory:end] + bytes(ending)


def hidden_in_archive(_rng: Random, h5_config: Config, zip_config: Config) -> bytes:
    """Return an archive with an HDF5 model between members, which its directory does not list."""
    model = hdf5_model(h5_config)
    packed = archive(zip_config, ("padding", b""))
    start = _HEADER_BYTES + len("padding")
    offset = next(offset for offset in _OFFSETS if offset >= start)
    hidden = bytes(offset - start) + model
    return _moved(packed, start, hidden)


def _moved(packed: bytes, start: int, inserted: bytes) -> bytes:
    """Insert bytes into an archive, and correct the offsets of the members behind them."""
    end = packed.rindex(b"PK\x05\x06")
    directory = int.from_bytes(packed[end + 16 : end + 20], "little")
    entries = bytearray(packed[directory:end])
    place = 0
    while place < len(entries):
        offset = int.from_bytes(entries[place + 42 : place + 46], "little")
        if offset >= start:
            entries[place + 42 : place + 46] = (offset + len(inserted)).to_bytes(4, "little")
        lengths = (
            int.from_bytes(entries[place + at : place + at + 2], "little") for at in (28, 30, 32)
        )
        place += 46 + sum(lengths)
    ending = bytearray(packed[end:])
    ending[16:20] = (directory + len(inserted)).to_bytes(4, "little")
    return packed[:start] + inserted + packed[start:directory] + bytes(entries) + bytes(ending)


def model_in_comment(_rng: Random, h5_config: Config, zip_config: Config) -> bytes:
    """Return an archive with an HDF5 model in its comment."""
    model = hdf5_model(h5_config)
    packed = archive(zip_config)
    offset = next(offset for offset in _OFFSETS if offset >= len(packed))
    comment = bytes(offset - len(packed)) + model
    return archive(zip_config, comment=comment) if len(comment) <= _COMMENT_BYTES else b""


AMBIGUOUS: Final[tuple[Callable[[Random, Config, Config], bytes], ...]] = (
    appended_archive,
    archive_in_user_block,
    hidden_in_archive,
    model_in_comment,
)
"""Each writes one file that is two models."""


def listed_at_offset(rng: Random, config: Config) -> bytes:
    """Return a healthy archive whose weights, an HDF5 file, begin where HDF5 looks for one."""
    members = small_models.keras_members(config)
    first = rng.choice(("model.weights.h5", "assets/table.h5"))
    data = members.pop(first, None) or small_models.weights_bytes()
    offset = rng.choice(_OFFSETS)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as written:
        names = len("padding") + len(first)
        written.writestr("padding", bytes(max(0, offset - 2 * _HEADER_BYTES - names)))
        written.writestr(first, data)
        for name, content in members.items():
            written.writestr(name, content)
    return buffer.getvalue()


def user_block(rng: Random, config: Config) -> bytes:
    """Return a healthy HDF5 model after a user block of text."""
    size = rng.choice(_OFFSETS)
    model = bytearray(hdf5_model(config, size))
    text = b"# written by a script\n"
    model[: len(text)] = text
    return bytes(model)


HEALTHY: Final[tuple[Callable[[Random, Config], bytes], ...]] = (listed_at_offset, user_block)


def write(rng: Random, paths: Paths, directory: Path, *, hostile: bool) -> tuple[Path, str]:
    """
    Write a file that is two models, or a healthy file of an unusual layout; return its path, and
    what makes it hostile.
    """
    path = directory / f"model{rng.choice(SUFFIXES)}"
    if not hostile:
        function = rng.choice(HEALTHY)
        generation = 3 if function is listed_at_offset else rng.choice((2, 3))
        path.write_bytes(function(rng, sound_configs.model(rng, generation)))
        return path, ""
    ambiguous = rng.choice(AMBIGUOUS)
    configs = [sound_configs.model(rng, 3), hostile_configs.draw(rng, paths, hostile=True).config]
    rng.shuffle(configs)
    data = ambiguous(rng, *configs) or appended_archive(rng, *configs)
    path.write_bytes(data)
    return path, ambiguous.__name__


def is_hdf5(data: bytes) -> bool:
    """Return whether the HDF5 library opens these bytes, wherever the signature is."""
    with io.BytesIO(data) as buffer:
        try:
            with h5py.File(buffer, "r"):
                return True
        except OSError:
            return False
