"""
TensorFlow checkpoints: what ``save_weights`` writes with ``save_format="tf"``,
``tf.train.Checkpoint``, and TF 1's ``Saver``.

A checkpoint is several files; its index is the one that is read. Each of the others stands for it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from policytool.formats.base import Probe
from policytool.formats.document import Document, Layout, Observation, Tensor
from policytool.support.errors import BundleError

if TYPE_CHECKING:
    from pathlib import Path

    from policytool.formats.checkpoint.bundle import Bundle, ObjectGraph

INDEX: Final = ".index"
STATE: Final = "checkpoint"
"""The file beside checkpoints that says which is the newest."""

MAGIC: Final = bytes.fromhex("57fb808b247547db")
"""How every index ends: a table in LevelDB's format (tensorflow/core/lib/io/format.h)."""

_SHARD: Final = re.compile(r"(.+)\.data-\d{5}-of-\d{5}", re.DOTALL)
_NEWEST: Final = re.compile(rb'model_checkpoint_path: "([^"]+)"')


def recognise(probe: Probe) -> bool:
    """
    Return whether the file is an index, by its last bytes or by the values beside it, or another
    file of a checkpoint, by its name.
    """
    if probe.is_directory:
        return False
    return (
        probe.tail == MAGIC
        or _prefix(probe.path.name, probe.head) is not None
        or _has_shards(probe.path)
    )


def whole(path: Path) -> Path | None:
    """
    Return the index that a path stands for: of a shard, of the file ``checkpoint``, of a prefix, as
    TensorFlow names checkpoints; None for others.
    """
    try:
        stem = (
            _prefix(path.name, Probe(path, path.name).head if path.name == STATE else b"")
            if path.exists()
            else path.name
        )
        index = path.with_name(f"{stem}{INDEX}")
        return index if stem and index.is_file() else None
    except (OSError, ValueError):  # it stands for itself, and reading it says what is wrong
        return None


def read(probe: Probe) -> Document:
    """Return the document of a checkpoint."""
    from policytool.formats.checkpoint import bundle as checkpoints
    from policytool.formats.checkpoint import names as _checkpoint_names

    if not probe.path.name.endswith(INDEX):
        raise probe.failure(*_no_index(probe))
    try:
        bundle = checkpoints.open_bundle(prefix(probe))
        lacking = tuple(bundle.lacking())
        named = _checkpoint_names.name_entries(bundle.entries, _objects(bundle, lacking))
    except BundleError as error:
        raise probe.failure(error.code, error.message) from error
    return Document(
        path=probe.shown,
        format="weights",
        layout=Layout.SCOPES,
        tensors=tuple(_tensor(path, bundle, key) for key, path in named.weights.items()),
        state=tuple(_tensor(tuple(key.split("/")), bundle, key) for key in named.rest),
        observations=tuple(
            Observation(code=error.code, message=error.message) for error in lacking
        ),
    )


def prefix(probe: Probe) -> Path:
    """
    Return the prefix of the checkpoint whose index this is: what all its files' names begin with.
    """
    return probe.path.with_name(probe.path.name.removesuffix(INDEX))


def _tensor(path: tuple[str, ...], bundle: Bundle, key: str) -> Tensor:
    entry = bundle.entries[key]
    return Tensor(path=path, shape=entry.shape, dtype=entry.dtype, key=key)


def _objects(bundle: Bundle, lacking: tuple[BundleError, ...]) -> ObjectGraph | None:
    """
    Return the object graph; none where values are missing, its own perhaps, because the index alone
    says much.
    """
    try:
        return bundle.objects()
    except BundleError:
        if not lacking:
            raise
        return None


def _no_index(probe: Probe) -> tuple[str, str]:
    """
    Return code and sentence for a file of a checkpoint that is not its index, or not called so.
    """
    stem = _prefix(probe.path.name, probe.head)
    if stem is None:
        return (
            "checkpoint-v1",
            (
                "is a table like a checkpoint's index and has another name: expected PREFIX.index; "
                "a "
                "checkpoint in one file (V1) has to be saved again as V2"
            ),
        )
    index = probe.path.with_name(f"{stem}{INDEX}")
    advice = (
        f"name its index, {index.name}"
        if index.is_file()
        else f"its index, {index.name}, is not here: copy it to this directory too"
    )
    return "checkpoint-part", f"is a part of a checkpoint; {advice}"


def _prefix(name: str, head: bytes) -> str | None:
    """
    Return the prefix of the checkpoint that a shard is part of, or that the file ``checkpoint``
    names: the last part of it, for it lies beside it.
    """
    if match := _SHARD.fullmatch(name):
        return match[1]
    if name == STATE and (found := _NEWEST.match(head)):
        return found[1].decode("utf-8", "replace").replace("\\", "/").rpartition("/")[2]
    return None


def _has_shards(path: Path) -> bool:
    """
    Return whether values lie beside a file called ``PREFIX.index``: then it is an index, though it
    be damaged.
    """
    if not path.name.endswith(INDEX):
        return False
    shards = (match for entry in path.parent.iterdir() if (match := _SHARD.fullmatch(entry.name)))
    return any(shard[1] == path.name.removesuffix(INDEX) for shard in shards)
