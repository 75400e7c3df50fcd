"""The values of HDF5 files: whole models, weights alone, and the files of Keras 3's layout."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from policytool.formats.hdf5 import datasets as _hdf5
from policytool.formats.hdf5 import library
from policytool.formats.hdf5.read import WEIGHTS
from policytool.formats.stored_values import ValuesError, by_number
from policytool.releases import dtypes
from policytool.support import limits
from policytool.support.files import opening
from policytool.support.processes import crash_guard

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from contextlib import ExitStack

    import h5py

    from policytool.formats.base import Probe
    from policytool.formats.document import Document, Tensor
    from policytool.formats.stored_values import Array, Values
    from policytool.support.files.remote_path import AnyPath

_LARGE: Final = 64 * 2**20
"""Bytes of values that need not be stored, in all datasets together."""


def open_values(probe: Probe, document: Document, stack: ExitStack) -> Values:
    """
    Open the values of a file.

    :raises ModelFileError: where it is truncated or damaged where it begins.
    """
    if reason := reason_not_to_read((probe.path,), document):
        return UnreadValues(reason)
    stack.enter_context(crash_guard.lean())
    file = library.open_file(probe, probe.path)
    stack.callback(library.close, file)
    return Hdf5Values(file, document)


def open_files(
    probe: Probe, paths: Sequence[AnyPath], document: Document, stack: ExitStack
) -> Values:
    """
    Open the values of one model in several files of Keras 3's layout.

    :raises ModelFileError: where one is truncated or damaged where it begins.
    """
    if reason := reason_not_to_read(paths, document):
        return UnreadValues(reason)
    stack.enter_context(crash_guard.lean())
    files = []
    for path in paths:
        files.append(library.open_file(probe, path, path.name))
        stack.callback(library.close, files[-1])
    return KerasValues(files)


def reason_not_to_read(files: Iterable[AnyPath], document: Document) -> str:
    """
    Return why no values are read: they would expand too far beyond the size of the files. An empty
    text if they are within the limit.

    Each dataset on its own may be within the limit: a dataset that is stored once can appear at any
    number of places, and the values of small datasets may not be stored at all.
    """
    stored = max(sum(map(opening.file_size, files)), 1)
    claims = (
        dtypes.itemsize(tensor.dtype) * math.prod(tensor.shape or ())
        for tensor in (*(document.tensors or ()), *document.state)
    )
    # a dataset with a larger claim is rejected on its own
    claimed = sum(claim for claim in claims if claim <= stored * limits.H5_RATIO.value)
    excess = limits.H5_RATIO.exceeded_message(-(-claimed // stored)) if claimed > _LARGE else ""
    return f"all datasets together would expand {excess}" if excess else ""


class UnreadValues:
    """The values of a file that has more of them than are read."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def blocks(self, _tensor: Tensor) -> Iterator[Array]:
        """Raise the reason for every tensor."""
        raise ValuesError(self._reason)

    def in_order(self, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return the tensors as they are."""
        return tensors


class Hdf5Values:
    """The values of one open file."""

    def __init__(self, file: h5py.File, document: Document) -> None:
        self._root = file.id
        self._prefix = (WEIGHTS,) if document.format == "h5" else ()
        self._state = frozenset(document.state)
        self._orders: dict[tuple[str, ...], dict[str, int]] = {}

    def blocks(self, tensor: Tensor) -> Iterator[Array]:
        """Yield a tensor's values; see :class:`policytool.formats.stored_values.Values`."""
        path = tensor.path if tensor in self._state else (*self._prefix, *tensor.path)
        return _hdf5.dataset_blocks(self._root, path, tensor)

    def in_order(self, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return one layer's tensors as its group's ``weight_names`` lists them."""
        return tuple(sorted(tensors, key=self._rank))

    def _rank(self, tensor: Tensor) -> int:
        for end in range(1, len(tensor.path)):
            rank = self._order(tensor.path[:end]).get("/".join(tensor.path[end:]))
            if rank is not None:
                return rank
        return 0

    def _order(self, path: tuple[str, ...]) -> dict[str, int]:
        """Return the place of each name; the first one of a name that occurs twice."""
        if path not in self._orders:
            names = _hdf5.names_at(self._root, (*self._prefix, *path), "weight_names")
            self._orders[path] = {name: place for place, name in reversed(list(enumerate(names)))}
        return self._orders[path]


class KerasValues:
    """The values of the files that hold a model's weights in Keras 3's layout."""

    def __init__(self, files: Sequence[h5py.File]) -> None:
        self._roots = [file.id for file in files]

    def blocks(self, tensor: Tensor) -> Iterator[Array]:
        """Yield a tensor's values; see :class:`policytool.formats.stored_values.Values`."""
        root = next((root for root in self._roots if _hdf5.has_dataset(root, tensor.path)), None)
        if root is None:
            raise ValuesError("the file contains no values for this variable")
        yield from _hdf5.dataset_blocks(root, tensor.path, tensor)

    def in_order(self, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return the tensors by their paths, whose numbers are the layer's own order."""
        return by_number(tensors)
