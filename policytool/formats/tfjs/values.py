"""
The values of TensorFlow.js layers models, which lie one behind another in the shards beside
``model.json``.
"""

from __future__ import annotations

import math
import os
from functools import cached_property
from typing import TYPE_CHECKING, Final

from policytool.formats.casting import arrays_of_chunks, numpy_dtype
from policytool.formats.stored_values import BLOCK, ValuesError, by_number
from policytool.formats.tfjs import read as tfjs
from policytool.support.errors import ModelFileError
from policytool.support.files import opening

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import ExitStack

    from policytool.formats.base import Probe
    from policytool.formats.document import Document, Tensor
    from policytool.formats.stored_values import Array, Values
    from policytool.support.files.remote_path import AnyPath

_STRING: Final = "string"
_VARS: Final = "vars"


def open_values(probe: Probe, document: Document, stack: ExitStack) -> Values:
    """Return the values of a model; its files are opened when one of them is read."""
    del document, stack
    return TfjsValues(probe)


class TfjsValues:
    """The values of one model; a shard is opened when one of its tensors is read."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe

    def blocks(self, tensor: Tensor) -> Iterator[Array]:
        """Yield a tensor's values; see :class:`policytool.formats.stored_values.Values`."""
        place = self._places.get(tensor)
        if place is None:
            raise ValuesError("the file contains no values for this variable")
        if place.quantised:
            raise ValuesError("its values are stored quantized")
        if tensor.dtype == _STRING or place.offset is None:
            raise ValuesError("text values, and the values stored after them, cannot be read")
        dtype = numpy_dtype(tensor.dtype)
        try:
            yield from arrays_of_chunks(
                self._bytes(
                    place.paths, place.offset, dtype.itemsize * math.prod(tensor.shape or ())
                ),
                dtype,
            )
        except OSError as error:
            raise ValuesError(f"its shards cannot be read: {error.strerror or error}") from error

    def in_order(self, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """
        Return the tensors as the manifest lists them: in the layer's own order; by number, where
        they have numbers for names.
        """
        return (
            by_number(tensors)
            if all(tensor.path[-2:-1] == (_VARS,) for tensor in tensors)
            else tensors
        )

    @cached_property
    def _places(self) -> Mapping[Tensor, tfjs.TensorLocation]:
        try:
            return {place.tensor: place for place in tfjs.places(self._probe)}
        except ModelFileError as error:  # it was read a moment ago
            raise ValuesError(error.message) from error

    def _bytes(self, paths: tuple[str, ...], start: int, count: int) -> Iterator[bytes]:
        """
        Yield so many bytes of shards that follow one another, a block at a time.

        :raises ValuesError: where a shard lies elsewhere, or all together have fewer.
        """
        for path in paths:
            if not count:
                return
            with opening.regular_stream(self._shard(path)) as stream:
                size = stream.seek(0, os.SEEK_END)
                stream.seek(min(start, size))
                start -= min(start, size)
                while count and (data := stream.read(min(BLOCK, count))):
                    count -= len(data)
                    yield data
        if count:
            raise ValuesError("its shards are shorter than the manifest declares")

    def _shard(self, name: str) -> AnyPath:
        """Return the path of a shard: a file of the model's own directory."""
        path = self._probe.path.parent / name
        if tfjs.escapes(name) or self._probe.leads_out(path):
            raise ValuesError("its shard is outside the model's directory and was not read")
        if not opening.is_file(path):
            raise ValuesError("its shard is missing")
        return path
