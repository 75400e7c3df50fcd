"""
The values of ``.keras`` models: a zip archive or a directory, with one file of weights or several
shards.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from policytool.formats.hdf5 import datasets as _hdf5
from policytool.formats.hdf5 import library as storage
from policytool.formats.keras_archive import parts as _keras
from policytool.formats.keras_archive import read as keras_zip
from policytool.formats.sharded_weights import read as sharded_weights
from policytool.formats.stored_values.base import ValuesError, by_number
from policytool.support.files import opening
from policytool.support.processes import crash_guard

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import h5py

    from policytool.formats import Probe
    from policytool.formats.document import Tensor
    from policytool.formats.stored_values.base import Array


@contextmanager
def opened(probe: Probe) -> Iterator[KerasValues]:
    """
    Open the values of a model.

    :raises ModelFileError: where its weights are truncated or damaged where they begin.
    """
    with ExitStack() as stack, crash_guard.lean():
        yield KerasValues(
            _in_directory(probe, stack) if probe.is_directory else _in_archive(probe, stack)
        )


@contextmanager
def opened_shards(probe: Probe) -> Iterator[KerasValues]:
    """
    Open the values of weights in shards.

    :raises ModelFileError: where a shard is missing, lies elsewhere, or is damaged where it begins.
    """
    with ExitStack() as stack, crash_guard.lean():
        yield KerasValues(
            [
                _closed_with(stack, storage.open_file(probe, str(path), path.name))
                for path in sharded_weights.shards(probe, [])
            ]
        )


def _in_directory(probe: Probe, stack: ExitStack) -> list[h5py.File]:
    names = sorted(name for name in probe.names if name.endswith(_keras.WEIGHTS_SUFFIX))
    return [
        _closed_with(stack, storage.open_file(probe, str(probe.path / name), name))
        for name in names
    ]


def _in_archive(probe: Probe, stack: ExitStack) -> list[h5py.File]:
    import zipfile  # 6 ms at start, for this format alone

    stream = opening.regular_stream(probe.path)
    stack.callback(storage.close, stream)
    files = []
    with keras_zip.told(probe):
        archive = stack.enter_context(zipfile.ZipFile(stream))
        for info in keras_zip.weights_members(archive):
            source = stack.enter_context(keras_zip.weights_source(probe, archive, info, stream))
            files.append(_closed_with(stack, storage.open_file(probe, source, info.filename)))
    return files


def _closed_with(stack: ExitStack, file: h5py.File) -> h5py.File:
    stack.callback(storage.close, file)
    return file


class KerasValues:
    """The values of the files that hold a model's weights."""

    def __init__(self, files: Sequence[h5py.File]) -> None:
        self._roots = [file.id for file in files]

    def blocks(self, tensor: Tensor) -> Iterator[Array]:
        """Yield a tensor's values; see :class:`policytool.formats.stored_values.Values`."""
        root = next((root for root in self._roots if _hdf5.holds(root, tensor.path)), None)
        if root is None:
            raise ValuesError("the file has no values for it")
        yield from _hdf5.blocks(root, tensor.path, tensor)

    def ordered(self, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return the tensors by their paths, whose numbers are the layer's own order."""
        return by_number(tensors)
