"""
Files of recorded runs (``check --record``): a text in JSON, and arrays by name, in HDF5.

Readers accept only what :func:`write` creates, because a recording may come from another person:
plain arrays, stored as one block of the file itself, that are not larger than the limit.
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import h5py
import numpy as np
from h5py import h5d, h5o

from policytool.formats import hdf5
from policytool.formats.base import Probe
from policytool.formats.hdf5 import library, storage
from policytool.formats.writing import WriteError
from policytool.support import limits
from policytool.support.errors import ModelFileError
from policytool.support.files import atomic

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

VERSION: Final = 1
"""The version of the schema in ``docs/reference/json-keys.md``."""

_KINDS: Final = "biufS"
"""NumPy's kinds of numbers, booleans and bytes."""


def write(path: Path, text: str, arrays: Mapping[str, NDArray[Any]]) -> None:
    """
    Write a recording, completely or not at all; a file at the path is replaced.

    :raises ModelFileError: if it cannot be written.
    """
    try:
        atomic.remove_stale(path.absolute().parent)
        with atomic.Draft.beside(path.absolute()) as draft:
            with storage.drafting(draft.path, "w") as opened:
                opened.file.attrs["format"] = library.RECORDING_MARK
                opened.file.attrs["version"] = VERSION
                opened.file[library.RECORDING] = np.frombuffer(text.encode(), "uint8")
                for name, array in arrays.items():
                    opened.file[name] = (
                        np.char.encode(array, "utf-8") if array.dtype.kind == "U" else array
                    )
            draft.publish(path.absolute(), overwrite=True)
    except (OSError, WriteError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ModelFileError(str(path), "unwritable", f"cannot be written: {reason}") from error


class Recording:
    """An open recording."""

    def __init__(self, probe: Probe, file: h5py.File) -> None:
        self._probe = probe
        self._file = file
        self._bytes = 0

    @property
    def text(self) -> str:
        """
        The JSON text.

        :raises ModelFileError: if the file lacks it, or if it is too large.
        """
        dataset = self._dataset(library.RECORDING)
        self._probe.check_limit(limits.JSON_BYTES, _size(dataset), "h5-limit", "has a text of")
        return bytes(self._values(dataset, library.RECORDING)).decode("utf-8", "replace")

    def array(self, name: str) -> NDArray[Any]:
        """
        Return an array.

        :raises ModelFileError: if the file lacks it, if it has another form than a recording, or if
            all arrays together are too large.
        """
        dataset = self._dataset(name)
        self._bytes += _size(dataset)
        self._probe.check_limit(limits.INPUT_BYTES, self._bytes, "h5-limit", "has arrays of")
        return self._values(dataset, name)

    def _values(self, dataset: h5d.DatasetID, name: str) -> NDArray[Any]:
        array = np.zeros(dataset.shape, dataset.dtype)
        if array.size:
            library.read(dataset, h5py.h5s.ALL, h5py.h5s.ALL, array, None)
        if array.dtype.kind == "f" and array.dtype.itemsize > np.dtype("float64").itemsize:
            raise self._damaged(f"{name} has the dtype {array.dtype}")
        return array.astype(np.dtype(array.dtype.newbyteorder("=").str))  # without h5py's metadata

    def _dataset(self, name: str) -> h5d.DatasetID:
        """Return a dataset that is stored as one block of this file."""
        *groups, last = name.split("/")
        parent = self._file
        for step in groups:
            group = library.group(parent, step)
            if group is None:
                raise self._damaged(f"it has no {name}")
            parent = h5py.Group(group)
        if not library.is_hard_link(parent, last):
            raise self._damaged(f"it has no {name}")
        dataset = h5o.open(parent.id, last.encode())
        if not isinstance(dataset, h5d.DatasetID):
            raise self._damaged(f"{name} is not a dataset")
        properties = dataset.get_create_plist()
        is_plain = (
            properties.get_layout() in {h5d.CONTIGUOUS, h5d.COMPACT}
            and not properties.get_external_count()
            and dataset.shape is not None
            and dataset.dtype.kind in _KINDS
        )
        if not is_plain or dataset.get_storage_size() < _size(dataset):
            raise self._damaged(f"{name} is not a plain array")
        return dataset

    def _damaged(self, reason: str) -> ModelFileError:
        return damaged(self._probe, reason)


def damaged(probe: Probe, reason: str) -> ModelFileError:
    """Return the error for a file that is not a valid recording."""
    return probe.failure(
        "damaged-recording", f"is a damaged recording ({reason}); record the run again"
    )


@contextmanager
def reading(path: Path) -> Iterator[tuple[Probe, Recording]]:
    """
    Open a recording.

    :raises ModelFileError: if the file cannot be read, or is not a recording of this version.
    """
    probe = Probe(path, str(path))
    try:
        if not hdf5.recognise(probe):
            raise _not_a_recording(probe)
        with library.open_checked(probe, path) as file:
            if not library.is_recording(probe, file):
                raise _not_a_recording(probe)
            version = file.attrs.get_id("version")
            number = file.attrs["version"] if version.shape == () else None
            if number != VERSION:
                raise probe.failure(
                    "recording-version",
                    f"is a recording of version {number}, but this release of policytool reads "
                    f"version {VERSION}; record the run again",
                )
            yield probe, Recording(probe, file)
    except FileNotFoundError as error:
        raise ModelFileError(str(path), "not-found", "does not exist") from error
    except OSError as error:
        raise ModelFileError(
            str(path), "unreadable", f"cannot be read: {error.strerror or error}"
        ) from error


def _not_a_recording(probe: Probe) -> ModelFileError:
    return probe.failure(
        "not-a-recording", "is not a recorded run; expected a file that check --record wrote"
    )


def _size(dataset: h5d.DatasetID) -> int:
    return math.prod(dataset.shape or ()) * int(dataset.get_type().get_size())
