"""
Files that are an HDF5 model and an archive at once, and healthy files that look like one.

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
from tests.helpers.polyglots import (
    OFFSETS,
    archive_around,
    hdf5_at,
    healthy_archive,
    with_comment,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from random import Random

    from tests.fuzz.hostile_names import Paths
    from tests.fuzz.sound_configs import Config

SUFFIXES: Final = (".keras", ".h5", ".hdf5", ".bin", "")
_NEAR: Final = OFFSETS[:6]
"""As far as small files reach."""

_COMMENT_BYTES: Final = 2**16 - 1
"""The longest comment of an archive."""


def hdf5_model(config: Config) -> bytes:
    """Return a whole model in HDF5."""
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        file.attrs["model_config"] = json.dumps(config)
        file.attrs["keras_version"] = "3.15.1" if "registered_name" in config else "2.15.0"
        file.attrs["backend"] = "tensorflow"
        file.create_group("model_weights")
    return buffer.getvalue()


def archive(config: Config) -> bytes:
    """Return a ``.keras`` archive."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as written:
        for name, data in small_models.keras_members(config).items():
            written.writestr(name, data)
    return buffer.getvalue()


def appended_archive(rng: Random, h5_config: Config, zip_config: Config) -> bytes:
    """Return an HDF5 model with an archive behind it."""
    gap = bytes(rng.choice((0, 1, 8, 512)))
    return hdf5_at(rng.choice((0, *_NEAR)), hdf5_model(h5_config)) + gap + archive(zip_config)


def archive_in_user_block(rng: Random, h5_config: Config, zip_config: Config) -> bytes:
    """Return an archive at byte 0 whose directory stands at the end, behind an HDF5 model."""
    packed = archive(zip_config)
    end = packed.rindex(b"PK\x05\x06")
    directory = int.from_bytes(packed[end + 16 : end + 20], "little")
    offset = next(offset for offset in OFFSETS if offset >= directory)
    model = hdf5_at(offset, hdf5_model(h5_config))
    body = packed[:directory].ljust(offset, bytes([rng.randrange(256)])) + model[offset:]
    ending = bytearray(packed[end:])
    ending[16:20] = len(body).to_bytes(4, "little")
    return body + packed[directory:end] + bytes(ending)


def hidden_in_archive(rng: Random, h5_config: Config, zip_config: Config) -> bytes:
    """Return an archive with an HDF5 model between members, which its directory does not list."""
    return archive_around(hdf5_at(rng.choice(_NEAR), hdf5_model(h5_config)), archive(zip_config))


def model_in_comment(rng: Random, h5_config: Config, zip_config: Config) -> bytes:
    """Return an archive with an HDF5 model in its comment, or behind it if that is too long."""
    packed = archive(zip_config)
    offset = next(offset for offset in OFFSETS if offset >= len(packed))
    comment = bytes(offset - len(packed)) + hdf5_model(h5_config)
    if len(comment) > _COMMENT_BYTES:
        return appended_archive(rng, h5_config, zip_config)
    return with_comment(packed, comment)


AMBIGUOUS: Final[tuple[Callable[[Random, Config, Config], bytes], ...]] = (
    appended_archive,
    archive_in_user_block,
    hidden_in_archive,
    model_in_comment,
)
"""Each writes one file that is two models."""


def user_block(rng: Random) -> bytes:
    """Return a healthy HDF5 model after a user block of text."""
    config = sound_configs.model(rng, rng.choice((2, 3)))
    text = b"# written by a script\n"
    return text + hdf5_at(rng.choice(_NEAR), hdf5_model(config))[len(text) :]


HEALTHY: Final[tuple[Callable[[Random], bytes], ...]] = (healthy_archive, user_block)


def write(rng: Random, paths: Paths, directory: Path, *, hostile: bool) -> tuple[Path, str]:
    """
    Write a file that is two models, or a healthy file of an unusual layout; return its path, and
    what makes it hostile.
    """
    path = directory / f"model{rng.choice(SUFFIXES)}"
    if not hostile:
        path.write_bytes(rng.choice(HEALTHY)(rng))
        return path, ""
    ambiguous = rng.choice(AMBIGUOUS)
    configs = [sound_configs.model(rng, 3), hostile_configs.draw(rng, paths, hostile=True).config]
    rng.shuffle(configs)
    path.write_bytes(ambiguous(rng, *configs))
    return path, ambiguous.__name__
