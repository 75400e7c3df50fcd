"""The values of checkpoints, alone and in SavedModels."""

from __future__ import annotations

from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from policytool.formats.casting import arrays_of_chunks, numpy_dtype
from policytool.formats.checkpoint import read as checkpoint
from policytool.formats.checkpoint.bundle import BundleError, open_bundle
from policytool.formats.stored_values import ValuesError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import ExitStack

    from policytool.formats.base import Probe
    from policytool.formats.checkpoint.bundle import Bundle, Entry
    from policytool.formats.document import Document, Tensor
    from policytool.formats.stored_values import Array, Values


_STRING: Final = "string"


def blocks(bundle: Bundle, key: str | None, tensor: Tensor) -> Iterator[Array]:
    """
    Yield the values that a checkpoint has by this key.

    :raises ValuesError: where it has none, or of another shape or dtype than the tensor's.
    :raises BundleError: where they are damaged.
    """
    entry = _entry(bundle, key, tensor)
    if entry.dtype == _STRING:
        yield np.array(bundle.strings(entry), dtype=object)
    else:
        yield from arrays_of_chunks(bundle.chunks(entry), numpy_dtype(entry.dtype))


@contextmanager
def reasons() -> Iterator[None]:
    """
    Let what is wrong with a checkpoint be a reason.

    :raises ValuesError: with the words of the error within.
    """
    try:
        yield
    except BundleError as error:
        raise ValuesError(error.message) from error
    except OSError as error:
        raise ValuesError(f"the checkpoint cannot be read: {error.strerror or error}") from error


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


def open_values(probe: Probe, document: Document, stack: ExitStack) -> Values:
    """Return the values of a model; its files are opened when one of them is read."""
    del document, stack
    return CheckpointValues(probe)


class CheckpointValues:
    """The values of one checkpoint; it is opened when the first of them is asked for."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe

    def blocks(self, tensor: Tensor) -> Iterator[Array]:
        """Yield a tensor's values; see :class:`policytool.formats.stored_values.Values`."""
        with reasons():
            yield from blocks(self._bundle, tensor.key, tensor)

    def in_order(self, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return the tensors as they are: in the order of the object graph, where there is one."""
        return tensors

    @cached_property
    def _bundle(self) -> Bundle:
        return open_bundle(checkpoint.prefix(self._probe))
