"""The values of SavedModels, which lie in the checkpoint below ``variables/``."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from policytool import casting
from policytool.checkpoints import BundleError, keys_of, open_bundle
from policytool.document import Layout
from policytool.formats import savedmodel
from policytool.values._base import ValuesError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from policytool.checkpoints import Bundle, Entry
    from policytool.document import Document, Tensor
    from policytool.formats import Probe
    from policytool.values._base import Array, DType

PREFIX: Final = ("variables", "variables")
_STRING: Final = "string"
_EIGHT_BITS: Final = frozenset({"float8_e4m3fn", "float8_e5m2"})


def opened(probe: Probe, document: Document) -> SavedModelValues:
    """Return the values of a SavedModel; its checkpoint is opened when the first of them is asked for."""
    return SavedModelValues(probe, document)


class SavedModelValues:
    """The values of one SavedModel."""

    def __init__(self, probe: Probe, document: Document) -> None:
        self._probe, self._document = probe, document

    def blocks(self, tensor: Tensor) -> Iterator[Array]:
        """Yield a tensor's values; see :class:`policytool.values.Values`."""
        try:
            bundle, entry = self._bundle, self._entry(tensor)
            if entry.dtype == _STRING:
                yield np.array(bundle.strings(entry), dtype=object)
            else:
                yield from whole(bundle.chunks(entry), numpy_dtype(entry.dtype))
        except BundleError as error:
            raise ValuesError(error.message) from error
        except OSError as error:
            raise ValuesError(f"its checkpoint cannot be read: {error.strerror or error}") from error

    def ordered(self, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return the tensors as they are: the object graph lists them in the order in which the layer made them."""
        return tensors

    @cached_property
    def _bundle(self) -> Bundle:
        return open_bundle(self._probe.path.joinpath(*PREFIX))

    @cached_property
    def _keys(self) -> Mapping[int, str]:
        nodes = self._document.nodes
        return keys_of(self._bundle, {number: node.children for number, node in nodes.items()} if nodes else savedmodel.edges(self._probe))

    @cached_property
    def _full_names(self) -> Mapping[str, str]:
        """The keys by the names that variables had in the graph, which TF 1's exports of Keras models know them by."""
        graph = self._bundle.objects()
        return {attribute.full_name: attribute.key for node in (graph.nodes if graph else ()) for attribute in node.attributes if attribute.full_name}

    def _key(self, tensor: Tensor) -> str | None:
        if tensor.node is not None and tensor.node in self._keys:
            return self._keys[tensor.node]
        name = "/".join(tensor.path)
        if self._document.layout is not Layout.SCOPES:
            return None
        return name if name in self._bundle.entries else self._full_names.get(name)

    def _entry(self, tensor: Tensor) -> Entry:
        """
        Return where a tensor's values are.

        :raises ValuesError: where the checkpoint has none for it, or of another shape.
        """
        entry = self._bundle.entries.get(self._key(tensor) or "")
        if entry is None:
            raise ValuesError("the checkpoint has no values for it")
        if tensor.shape is not None and -1 not in tensor.shape and entry.shape != tensor.shape:
            raise ValuesError(f"the checkpoint has values of shape {list(entry.shape)} for it")
        if entry.dtype != tensor.dtype:
            raise ValuesError(f"the checkpoint has values of dtype {entry.dtype} for it, and the graph says {tensor.dtype}")
        return entry


def numpy_dtype(name: str) -> DType:
    """
    Return NumPy's dtype of a Keras name.

    :raises ValuesError: for one that NumPy and ml_dtypes lack.
    """
    if name in casting.DTYPES:
        return casting.DTYPES[name]
    try:
        return np.dtype("u1" if name in _EIGHT_BITS else name)
    except TypeError as error:
        raise ValuesError(f"values of dtype {name} are not read") from error


def whole(chunks: Iterator[bytes], dtype: DType) -> Iterator[Array]:
    """Yield bytes as values, those of an element that a chunk cuts in two with the next."""
    rest = b""
    for chunk in chunks:
        data = rest + chunk if rest else chunk
        count = len(data) // dtype.itemsize
        if count:
            yield np.frombuffer(data, dtype=dtype, count=count)
        rest = data[count * dtype.itemsize :]
