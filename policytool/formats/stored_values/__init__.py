"""
The values of stored variables, read block by block.

A document knows the names, shapes and dtypes of a file's variables; here are the numbers. No link
and no external storage is followed, and no more than a block of a tensor is held at once. Each
format's own part is found through :data:`policytool.formats.FORMATS`.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from policytool.formats import format_detection
from policytool.formats.base import Probe
from policytool.formats.stored_values.base import BLOCK, Values, ValuesError
from policytool.support.files import opening

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.formats.document import Document
    from policytool.support.files.remote_path import AnyPath


@contextmanager
def open_values(path: AnyPath, document: Document) -> Iterator[Values | None]:
    """
    Open the values of the document's variables; None where its format stores none.

    :raises ModelFileError: where a file with values is truncated or damaged where it begins.
    """
    probe = Probe(path, document.path)
    # the document's own format is "weights" for what is stored in several ways
    found = format_detection.format_of(probe)
    open_found = found.open_values if found is not None else None
    with opening.without_collection(path), ExitStack() as stack:
        yield open_found(probe, document, stack) if open_found is not None else None


__all__ = ["BLOCK", "Values", "ValuesError", "open_values"]
