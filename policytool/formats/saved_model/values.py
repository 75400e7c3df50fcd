"""The values of SavedModels, which are in the checkpoint below ``variables/``."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from policytool.formats.checkpoint.bundle import keys_of
from policytool.formats.checkpoint.read import CheckpointValues
from policytool.formats.document import Layout
from policytool.formats.saved_model import CHECKPOINT
from policytool.formats.saved_model import read as savedmodel

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import ExitStack

    from policytool.formats.base import Probe
    from policytool.formats.document import Document, Tensor, Values


def open_values(probe: Probe, document: Document, _stack: ExitStack) -> Values:
    """Return the values of a model; its files are opened at the first read."""
    return SavedModelValues(probe, document)


class SavedModelValues(CheckpointValues):
    """
    The values of one SavedModel, whose checkpoint is opened at the first read.

    The object graph lists a layer's variables in the order in which the layer created them.
    """

    def __init__(self, probe: Probe, document: Document) -> None:
        super().__init__(probe.path.joinpath(*CHECKPOINT))
        self._probe, self._document = probe, document

    @cached_property
    def _keys(self) -> Mapping[int, str]:
        """The keys by node of the object graph; empty if there is no object graph, as in TF 1."""
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
        The keys by the names of variables in the graph, which TF 1's exports of Keras models use.
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
