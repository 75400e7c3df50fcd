"""The values of unpacked ``.keras`` models, with one file of weights or several shards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from policytool.formats.hdf5.values import open_files
from policytool.formats.keras_archive.file_names import WEIGHTS_SUFFIX

if TYPE_CHECKING:
    from contextlib import ExitStack

    from policytool.formats.base import Probe
    from policytool.formats.document import Document
    from policytool.formats.stored_values import Values


def open_values(probe: Probe, document: Document, stack: ExitStack) -> Values:
    """
    Open the values of a directory.

    :raises ModelFileError: where its weights are truncated or damaged where they begin.
    """
    names = sorted(name for name in probe.names if name.endswith(WEIGHTS_SUFFIX))
    return open_files(probe, [probe.path / name for name in names], document, stack)
