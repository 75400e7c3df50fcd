"""The values of weights in shards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from policytool.formats.hdf5.values import open_files
from policytool.formats.sharded_weights.read import shards

if TYPE_CHECKING:
    from contextlib import ExitStack

    from policytool.formats.base import Probe
    from policytool.formats.document import Document
    from policytool.formats.stored_values import Values


def open_values(probe: Probe, document: Document, stack: ExitStack) -> Values:
    """
    Open the values of all shards together.

    :raises ModelFileError: where a shard is missing, lies elsewhere, or is damaged where it begins.
    """
    return open_files(probe, list(shards(probe, [])), document, stack)
