"""The values of ``.keras`` archives, with one file of weights or several shards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from policytool.formats.keras_archive import read as keras_zip
from policytool.support.files import opening
from policytool.support.processes import crash_guard

if TYPE_CHECKING:
    from contextlib import ExitStack

    from policytool.formats.base import Probe
    from policytool.formats.document import Document
    from policytool.formats.stored_values import Values


def open_values(probe: Probe, document: Document, stack: ExitStack) -> Values:
    """
    Open the values of an archive.

    :raises ModelFileError: where its weights are truncated or damaged where they begin.
    """
    import zipfile

    from policytool.formats.hdf5 import library
    from policytool.formats.hdf5.datasets import KerasValues, UnreadValues, reason_not_to_read

    if reason := reason_not_to_read((probe.path,), document):
        return UnreadValues(reason)
    stack.enter_context(crash_guard.limited_memory())
    stream = opening.regular_stream(probe.path)
    stack.callback(library.close, stream)
    files = []
    with keras_zip.zip_failures(probe):
        archive = stack.enter_context(zipfile.ZipFile(stream))
        for info in keras_zip.weights_members(archive):
            source = stack.enter_context(keras_zip.weights_source(probe, archive, info, stream))
            files.append(library.open_file(probe, source, info.filename))
            stack.callback(library.close, files[-1])
    return KerasValues(files)
