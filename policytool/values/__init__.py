"""
The values of stored variables, one module for each way of storing them, read block by block.

A document knows the names, shapes and dtypes of a file's variables; here are the numbers. No link and no external storage is followed, and no more
than a block of a tensor is held at once.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from policytool import recognition
from policytool.formats import Probe
from policytool.values._base import BLOCK, Values, ValuesError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from policytool.document import Document


@contextmanager
def open_values(path: Path, document: Document) -> Iterator[Values | None]:
    """
    Open the values of the document's variables; None where its format stores none.

    :raises ModelFileError: where a file with values is truncated or damaged where it begins.
    """
    probe = Probe(path, document.path)
    found = recognition.format_of(probe)  # the document's own format is "weights" for what is stored in four ways
    with ExitStack() as stack:
        match found.name if found is not None else None:
            case "h5":
                from policytool.values import hdf5  # h5py costs 80 ms at start

                yield stack.enter_context(hdf5.opened(probe, document))
            case "keras" | "keras-directory":
                from policytool.values import keras

                yield stack.enter_context(keras.opened(probe))
            case "sharded-weights":
                from policytool.values import keras

                yield stack.enter_context(keras.opened_shards(probe))
            case "savedmodel":
                from policytool.values import savedmodel

                yield savedmodel.SavedModelValues(probe, document)
            case "checkpoint":
                from policytool.values import checkpoint

                yield checkpoint.CheckpointValues(probe)
            case "tfjs":
                from policytool.values import tfjs

                yield tfjs.TfjsValues(probe)
            case _:
                yield None


__all__ = ["BLOCK", "Values", "ValuesError", "open_values"]
