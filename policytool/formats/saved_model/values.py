"""The values of SavedModels, which lie in the checkpoint below ``variables/``."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from policytool.formats.checkpoint import values as _checkpoint
from policytool.formats.checkpoint.bundle import keys_of, open_bundle
from policytool.formats.document import Layout
from policytool.formats.saved_model import CHECKPOINT
from policytool.formats.saved_model import read as savedmodel

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import ExitStack

    from policytool.formats.base import Probe
    from policytool.formats.checkpoint.bundle import Bundle
    from policytool.formats.document import Document, Tensor
    from policytool.formats.stored_values import Array, Values


def open_values(probe: Probe, document: Document, stack: ExitStack) -> Values:
    """Return the values of a model; its files are opened when one of them is read."""
    del stack
    return SavedModelValues(probe, document)


class SavedModelValues:
    """
    The values of one SavedModel; its checkpoint is opened when the first of them is asked for.
    """

    def __init__(self, probe: Probe, document: Document) -> None:
        self._probe, self._document = probe, document

    def blocks(self, tensor: Tensor) -> Iterator[Array]:
        """Yield a tensor's values; see :class:`policytool.formats.stored_values.Values`."""
        with _checkpoint.reasons():
            yield from _checkpoint.blocks(self._bundle, self._key(tensor), tensor)

    def in_order(self, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """
        Return the tensors as they are: the object graph lists them in the order in which the layer
        made them.
        """
        return tensors

    @cached_property
    def _bundle(self) -> Bundle:
        return open_bundle(self._probe.path.joinpath(*CHECKPOINT))

    @cached_property
    def _keys(self) -> Mapping[int, str]:
        """The keys by node of the object graph; none where there is none, as in TF 1."""
        nodes = self._document.nodes
        edges = (
            {number: node.children for number, node in nodes.items()}
            if nodes
            else savedmodel.edges(self._probe)
        )
        return keys_of(self._bundle, edges) if edges else {}

    @cached_property
    def _full_names(self) -> Mapping[str, str]:
        """
        The keys by the names that variables had in the graph, which TF 1's exports of Keras models
        know them by.
        """
        graph = self._bundle.objects()
        return {
            attribute.full_name: attribute.key
            for node in (graph.nodes if graph else ())
            for attribute in node.attributes
            if attribute.full_name
        }

    def _key(self, tensor: Tensor) -> str | None:
        if tensor.node is not None and tensor.node in self._keys:
            return self._keys[tensor.node]
        name = "/".join(tensor.path)
        if self._document.layout is not Layout.SCOPES:
            return None
        return name if name in self._bundle.entries else self._full_names.get(name)
