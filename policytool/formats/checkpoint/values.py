"""The values of checkpoints, alone and in SavedModels."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from policytool.formats.casting import arrays_of_chunks, numpy_dtype
from policytool.formats.checkpoint.bundle import open_bundle
from policytool.formats.checkpoint.read import prefix
from policytool.formats.stored_values import Values, ValuesError
from policytool.support.errors import BundleError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import ExitStack

    from policytool.formats.base import Probe
    from policytool.formats.checkpoint.bundle import Bundle, Entry
    from policytool.formats.document import Document, Tensor
    from policytool.formats.stored_values import Array
    from policytool.support.files.remote_path import AnyPath


_STRING: Final = "string"


def open_values(probe: Probe, _document: Document, _stack: ExitStack) -> Values:
    """Return the values of a model; its files are opened when one of them is read."""
    return CheckpointValues(prefix(probe))


class CheckpointValues(Values):
    """
    The values of one checkpoint; it is opened when the first of them is asked for.

    Its tensors are in the order of the object graph, where there is one.
    """

    def __init__(self, path: AnyPath) -> None:
        self._path = path

    def blocks(self, tensor: Tensor) -> Iterator[Array]:
        """Yield a tensor's values; see :class:`policytool.formats.stored_values.Values`."""
        try:
            entry = _entry(self._bundle, self._key(tensor), tensor)
            if entry.dtype == _STRING:
                yield np.array(self._bundle.strings(entry), dtype=object)
            else:
                yield from arrays_of_chunks(self._bundle.chunks(entry), numpy_dtype(entry.dtype))
        except BundleError as error:
            raise ValuesError(error.message) from error
        except OSError as error:
            raise ValuesError(
                f"the checkpoint cannot be read: {error.strerror or error}"
            ) from error

    def _key(self, tensor: Tensor) -> str | None:
        """Return the key of a tensor in the checkpoint."""
        return tensor.key

    @cached_property
    def _bundle(self) -> Bundle:
        return open_bundle(self._path)


def _entry(bundle: Bundle, key: str | None, tensor: Tensor) -> Entry:
    entry = bundle.entries.get(key) if key is not None else None
    if entry is None:
        raise ValuesError("the checkpoint contains no values for this variable")
    if tensor.shape is not None and -1 not in tensor.shape and entry.shape != tensor.shape:
        raise ValuesError(f"the checkpoint stores this variable with shape {list(entry.shape)}")
    if entry.dtype != tensor.dtype:
        raise ValuesError(
            f"the checkpoint stores this variable as {entry.dtype}, but the graph declares "
            f"{tensor.dtype}"
        )
    return entry
