"""The values of ``.keras`` archives, with one file of weights or several shards."""

from __future__ import annotations

import zipfile
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from policytool.formats.hdf5 import library
from policytool.formats.hdf5.values import KerasValues, bounded_values
from policytool.formats.keras_archive import read as keras_zip
from policytool.support.files import opening
from policytool.support.processes import crash_guard

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from policytool.formats.base import Probe
    from policytool.formats.document import Document
    from policytool.formats.stored_values.base import Values


def open_values(probe: Probe, document: Document) -> AbstractContextManager[Values]:
    """
    Open the values of an archive.

    :raises ModelFileError: where its weights are truncated or damaged where they begin.
    """
    return bounded_values((probe.path,), document, _open_archive(probe))


@contextmanager
def _open_archive(probe: Probe) -> Iterator[KerasValues]:
    with ExitStack() as stack, crash_guard.lean():
        stream = opening.regular_stream(probe.path)
        stack.callback(library.close, stream)
        files = []
        with keras_zip.zip_failures(probe):
            archive = stack.enter_context(zipfile.ZipFile(stream))
            for info in keras_zip.weights_members(archive):
                source = stack.enter_context(keras_zip.weights_source(probe, archive, info, stream))
                files.append(library.open_file(probe, source, info.filename))
                stack.callback(library.close, files[-1])
        yield KerasValues(files)
