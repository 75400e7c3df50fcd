"""TensorFlow checkpoints."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from policytool.formats.base import Format, Probe
from policytool.support.files import listings, opening
from policytool.support.files.remote_path import RemotePath

if TYPE_CHECKING:
    from collections.abc import Iterable

    from policytool.support.files.remote_path import AnyPath

INDEX: Final = ".index"

STATE: Final = "checkpoint"
"""The file next to checkpoints that names the newest checkpoint."""

MAGIC: Final = bytes.fromhex("57fb808b247547db")
"""The last bytes of an index, a table in LevelDB's format (tensorflow/core/lib/io/format.h)."""

_SHARD: Final = re.compile(r"(.+)\.data-\d{5}-of-\d{5}", re.DOTALL)

_NEWEST: Final = re.compile(rb'model_checkpoint_path: "([^"]+)"')


def recognise(probe: Probe) -> bool:
    """
    Return whether the file is an index, by its last bytes or by the shards next to it, or another
    file of a checkpoint, by its name.
    """
    if probe.is_directory:
        return False
    return (
        probe.tail == MAGIC
        or prefix_of(probe.path.name, probe.head) is not None
        or _has_shards(probe.path)
    )


def whole(path: AnyPath) -> AnyPath | None:
    """
    Return the index for a shard, for the file ``checkpoint``, or for a prefix, as TensorFlow names
    checkpoints; None for other paths.
    """
    try:
        stem = (
            prefix_of(path.name, Probe(path, path.name).head if path.name == STATE else b"")
            if opening.exists(path)
            else path.name
        )
        index = path.with_name(f"{stem}{INDEX}")
        return index if stem and opening.is_file(index) else None
    except (OSError, ValueError):  # reading the path itself reports the error
        return None


def prefix_of(name: str, head: bytes) -> str | None:
    """
    Return the prefix of the checkpoint that a shard is part of, or that the file ``checkpoint``
    names: only its last part, because the checkpoint is in the same directory.
    """
    if (prefix := shard_prefix(name)) is not None:
        return prefix
    if name == STATE and (match := _NEWEST.match(head)):
        return match[1].decode("utf-8", "replace").replace("\\", "/").rpartition("/")[2]
    return None


def shard_prefix(name: str) -> str | None:
    """Return the prefix of the checkpoint if the file has the name of a shard; otherwise None."""
    match = _SHARD.fullmatch(name)
    return match[1] if match is not None else None


def _has_shards(path: AnyPath) -> bool:
    """
    Return whether shards are next to a file with the name ``PREFIX.index``; the file is then an
    index, even if it is damaged.
    """
    if not path.name.endswith(INDEX):
        return False
    prefix = path.name.removesuffix(INDEX)
    names: Iterable[str] = (
        opening.names(path.parent)
        if isinstance(path, RemotePath)
        else listings.listing(path.parent).beginning(f"{prefix}.data-")
    )
    return any(shard_prefix(name) == prefix for name in names)


FORMAT: Final = Format(
    package=__name__,
    reader=f"{__name__}.read:read",
    values_opener=f"{__name__}.read:open_values",
    document_format="weights",
    title="a weights file",
    recognise=recognise,
    whole=whole,
)
