"""The values of HDF5 files: whole models, and weights alone."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from policytool.formats.hdf5 import datasets as _hdf5
from policytool.formats.hdf5 import library as opening
from policytool.formats.hdf5.read import WEIGHTS
from policytool.support.processes import crash_guard

if TYPE_CHECKING:
    from collections.abc import Iterator

    import h5py

    from policytool.formats import Probe
    from policytool.formats.document import Document, Tensor
    from policytool.formats.stored_values.base import Array


@contextmanager
def opened(probe: Probe, document: Document) -> Iterator[Hdf5Values]:
    """
    Open the values of a file.

    :raises ModelFileError: where it is truncated or damaged where it begins.
    """
    with crash_guard.lean():
        file = opening.open_file(probe, str(probe.path))
        try:
            yield Hdf5Values(file, document)
        finally:
            opening.close(file)


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
        return _hdf5.blocks(self._root, path, tensor)

    def ordered(self, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
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
            names = _hdf5.names(self._root, (*self._prefix, *path), "weight_names")
            self._orders[path] = {name: place for place, name in reversed(list(enumerate(names)))}
        return self._orders[path]
