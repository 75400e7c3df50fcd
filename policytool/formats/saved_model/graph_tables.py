"""
The words of a SavedModel's lookup layers: those that the initializer of a layer's table fills it
with, two constants of the graph, or a file among the assets.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from policytool.formats.base import ASSETS
from policytool.formats.saved_model import graph_assets
from policytool.formats.saved_model.graph_bodies import parse_message, text
from policytool.support import limits
from policytool.support.text.paths import leads_out

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from policytool.formats.base import Probe

_INNER: Final = "_lookup_layer"
"""What a TextVectorization holds its lookup by."""

_TABLE: Final = "lookup_table"
_INT64: Final = 9
"""``DT_INT64`` (types.proto)."""

_NEWLINE: Final = "\n"


@dataclass(frozen=True)
class TableReader:
    """The tables of one graph."""

    probe: Probe
    graph: Any
    definition: Any
    inverting: frozenset[int]
    """The nodes of layers that give words for numbers."""

    def vocabularies(self) -> dict[tuple[str, ...], str]:
        """
        Return the words of tables, one on a line, by the numbers of the nodes of the layers that
        have them; words that a line cannot hold, and tables filled otherwise, are left out.
        """
        found: dict[tuple[str, ...], str] = {}
        for index in range(len(self.graph.object_graph.nodes)):
            edges = self._edges(index)
            table = edges.get(_TABLE, self._edges(edges.get(_INNER, -1)).get(_TABLE))
            inverts = index in self.inverting
            words = self._words(table, inverts=inverts) if table is not None else None
            if words and not any(_NEWLINE in word for word in words):
                found[str(index),] = _NEWLINE.join(words)
        return found

    def _edges(self, index: int) -> Mapping[str, int]:
        nodes = self.graph.object_graph.nodes
        return (
            {text(edge.local_name): edge.node_id for edge in nodes[index].children}
            if 0 <= index < len(nodes)
            else {}
        )

    @cached_property
    def _bound(self) -> Mapping[str, Sequence[int]]:
        return {
            text(entry.key): tuple(entry.value.bound_inputs)
            for entry in self.graph.object_graph.concrete_functions
        }

    @cached_property
    def _constants(self) -> Mapping[bytes, Any]:
        return {node.name: node for node in self.definition.nodes if node.op == b"Const"}

    def _words(self, table: int, *, inverts: bool) -> Sequence[str] | None:
        """Return what a table is filled with, in the order of the numbers beside it."""
        nodes = self.graph.object_graph.nodes
        initialize = self._edges(table).get("_initialize", -1)
        functions = (
            nodes[initialize].function.concrete_functions if 0 <= initialize < len(nodes) else ()
        )
        bound = [
            nodes[number]
            for name in functions
            for number in self._bound.get(text(name), ())
            if 0 <= number < len(nodes)
        ]
        files = [node.asset.index for node in bound if node.HasField("asset")]
        if len(files) == 1:
            return self._lines(files[0])
        sides = [
            self._values(node.constant.operation) for node in bound if node.HasField("constant")
        ]
        return in_order(*sides, inverts=inverts) if len(sides) == 2 else None  # noqa: PLR2004  # keys and values

    def _lines(self, number: int) -> Sequence[str] | None:
        assets = graph_assets.assets(self.graph)
        name = text(assets[number].filename) if 0 <= number < len(assets) else ""
        if not name or leads_out(name) or self.probe.leads_out(self.probe.path / ASSETS / name):
            return None
        data = self.probe.content(
            limits.JSON_BYTES, "json-limit", f"has {ASSETS}/{name} of", f"{ASSETS}/{name}"
        )
        return text(data).splitlines()

    def _values(self, operation: bytes) -> Sequence[str | int]:
        node = self._constants.get(operation)
        tensor = next(
            (
                entry.value.tensor
                for entry in (node.attributes if node else ())
                if entry.key == b"value"
            ),
            (),
        )
        held = parse_message("TableTensor", b"".join(tensor))
        if held is None:
            return ()
        if held.dtype == _INT64:
            count = len(held.content) // 8
            return held.numbers or struct.unpack(f"<{count}q", held.content[: count * 8])
        return [text(word) for word in held.texts]


def in_order(
    keys: Sequence[str | int], values: Sequence[str | int], *, inverts: bool
) -> Sequence[str] | None:
    """Return the words of a table by their numbers; the keys are the numbers where it inverts."""
    words, numbers = (values, keys) if inverts else (keys, values)
    if len(keys) != len(values) or not all(isinstance(number, int) for number in numbers):
        return None
    pairs = sorted(zip(numbers, words, strict=True), key=lambda pair: int(pair[0]))
    return [str(word) for _, word in pairs]
