"""
The values of stored variables, one module for each way of storing them, read block by block.

A document knows the names, shapes and dtypes of a file's variables; here are the numbers. No link and no external storage is followed, and no more
than a block of a tensor is held at once.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

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
    match document.format:
        case "h5" | "weights":
            from policytool.values import hdf5  # h5py costs 80 ms at start

            with hdf5.opened(probe, document) as values:
                yield values
        case "keras":
            from policytool.values import keras

            with keras.opened(probe) as values:
                yield values
        case "savedmodel":
            from policytool.values import savedmodel

            yield savedmodel.opened(probe, document)
        case _:
            yield None


__all__ = ["BLOCK", "Values", "ValuesError", "open_values"]
