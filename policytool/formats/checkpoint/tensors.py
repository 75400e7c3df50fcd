"""Tensors of a checkpoint as values: what SavedModels and checkpoints alone have in common."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import numpy as np

from policytool.formats.casting import arrays_of_chunks, numpy_dtype
from policytool.formats.checkpoint.bundle import BundleError
from policytool.formats.stored_values import ValuesError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.formats.checkpoint.bundle import Bundle, Entry
    from policytool.formats.document import Tensor
    from policytool.formats.stored_values import Array

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
