"""
The values of stored variables, one module for each way of storing them, read block by block.

A document knows the names, shapes and dtypes of a file's variables; here are the numbers. No link
and no external storage is followed, and no more than a block of a tensor is held at once.
"""

from __future__ import annotations

import math
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

from policytool.formats import Probe, format_detection
from policytool.formats.sharded_weights.read import SHARD_SUFFIX, SUFFIX
from policytool.formats.stored_values.base import BLOCK, Values, ValuesError
from policytool.releases import dtypes
from policytool.support import limits

_HDF5: Final = frozenset({"h5", "keras", "keras-directory", "sharded-weights"})
_LARGE: Final = 64 * 2**20
"""Bytes of values that need not be stored, in all datasets together."""

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from policytool.formats.document import Document, Tensor
    from policytool.formats.stored_values.base import Array


@contextmanager
def open_values(path: Path, document: Document) -> Iterator[Values | None]:
    """
    Open the values of the document's variables; None where its format stores none.

    :raises ModelFileError: where a file with values is truncated or damaged where it begins.
    """
    probe = Probe(path, document.path)
    found = format_detection.format_of(
        probe
    )  # the document's own format is "weights" for what is stored in four ways
    if found is not None and found.name in _HDF5 and (beyond := _inflation(path, document)):
        yield Unread(f"all datasets together would become {beyond}")
        return
    with ExitStack() as stack:
        match found.name if found is not None else None:
            case "h5":
                from policytool.formats.hdf5 import values as hdf5  # h5py costs 80 ms at start

                yield stack.enter_context(hdf5.opened(probe, document))
            case "keras" | "keras-directory":
                from policytool.formats.keras_archive import values as keras

                yield stack.enter_context(keras.opened(probe))
            case "sharded-weights":
                from policytool.formats.keras_archive import values as keras

                yield stack.enter_context(keras.opened_shards(probe))
            case "savedmodel":
                from policytool.formats.saved_model import values as savedmodel

                yield savedmodel.SavedModelValues(probe, document)
            case "checkpoint":
                from policytool.formats.checkpoint import values as checkpoint

                yield checkpoint.CheckpointValues(probe)
            case "tfjs":
                from policytool.formats.tfjs import values as tfjs

                yield tfjs.TfjsValues(probe)
            case _:
                yield None


class Unread:
    """The values of a file that has more of them than is read."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def blocks(self, _tensor: Tensor) -> Iterator[Array]:
        """Raise the reason for every tensor."""
        raise ValuesError(self._reason)

    def ordered(self, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return the tensors as they are."""
        return tensors


def _inflation(path: Path, document: Document) -> str:
    """
    Return by how much too far the values of all datasets go beyond the bytes of the file; an empty
    text within the bound.

    Each alone may be within it: one that is stored once can stand at any number of places, and
    small ones need not be stored at all.
    """
    files = (
        path.iterdir()
        if path.is_dir()
        else path.parent.glob(f"*{SHARD_SUFFIX}")
        if path.name.endswith(SUFFIX)
        else (path,)
    )
    stored = max(sum(file.stat().st_size for file in files), 1)
    claims = (
        dtypes.itemsize(tensor.dtype) * math.prod(tensor.shape or ())
        for tensor in (*(document.tensors or ()), *document.state)
    )
    claimed = sum(
        claim for claim in claims if claim <= stored * limits.H5_RATIO.value
    )  # a larger one is not read for itself
    return limits.H5_RATIO.beyond(-(-claimed // stored)) if claimed > _LARGE else ""


__all__ = ["BLOCK", "Values", "ValuesError", "open_values"]
