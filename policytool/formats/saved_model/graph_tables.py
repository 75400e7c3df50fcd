"""
The words of a SavedModel's lookup layers: those that the initializer of a layer's table fills it
with, two constants of the graph, or a file among the assets.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from policytool.formats.base import ASSETS
from policytool.formats.saved_model import graph_assets
from policytool.formats.saved_model.graph_bodies import parse_message, text
from policytool.support import limits, steps
from policytool.support.text.paths import leads_out

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from policytool.formats.base import Probe

_INNER: Final = "_lookup_layer"
"""What a TextVectorization holds its lookup by."""

_TABLE: Final = "lookup_table"
_INITIALIZE: Final = "_initialize"
_NAMES: Final = frozenset(name.encode() for name in (_INNER, _TABLE, _INITIALIZE))
_ONE_FILE: Final = 1
_SIDES: Final = 2
"""Constants that fill a table: its keys and its values."""

_INT64: Final = 9
"""``DT_INT64`` (types.proto)."""

_NEWLINE: Final = "\n"


@dataclass(frozen=True, slots=True)
class _Source:
    """What the initializer of a table fills it from."""

    files: tuple[int, ...]
    """Numbers of assets."""

    constants: tuple[bytes, ...]
    """Names of nodes of the graph."""


@dataclass(frozen=True)
class TableReader:
    """The tables of one graph."""

    probe: Probe
    graph: Any
    definition: Any
    inverting: frozenset[int]
    """The nodes of layers that give words for numbers."""

    _sources: dict[str, _Source] = field(default_factory=dict, init=False, repr=False)
    """By function; filled while reading."""

    _sources_of_nodes: dict[int, _Source] = field(default_factory=dict, init=False, repr=False)
    """By the number of the initializer; filled while reading."""

    _texts: dict[tuple[_Source, bool], str | None] = field(
        default_factory=dict, init=False, repr=False
    )
    """By source, and by whether a layer inverts the table; filled while reading."""

    def vocabularies(self) -> dict[tuple[str, ...], str]:
        """
        Return the vocabularies of lookup layers, one word per line, by the number of the layer's
        node. Words with line breaks, and tables that are filled in other ways, are skipped.
        """
        vocabulary_texts: dict[tuple[str, ...], str] = {}
        for index, edges in self._edges.items():
            table = edges.get(_TABLE, self._edges.get(edges.get(_INNER, -1), {}).get(_TABLE))
            if table is None:
                continue
            if lines := self._lines_of(self._source(table), inverts=index in self.inverting):
                vocabulary_texts[str(index),] = lines
        return vocabulary_texts

    @cached_property
    def _edges(self) -> Mapping[int, Mapping[str, int]]:
        """By the number of a node, the edges that lead to tables and to what fills them."""
        nodes = self.graph.object_graph.nodes
        steps.spend(sum(len(node.children) for node in nodes), walk="edges of objects")
        return {
            index: {
                text(edge.local_name): edge.node_id
                for edge in node.children
                if edge.local_name in _NAMES
            }
            for index, node in enumerate(nodes)
        }

    @cached_property
    def _bound(self) -> Mapping[str, Sequence[int]]:
        return {
            text(entry.key): tuple(entry.value.bound_inputs)
            for entry in self.graph.object_graph.concrete_functions
        }

    @cached_property
    def _constants(self) -> Mapping[bytes, Any]:
        return {node.name: node for node in self.definition.nodes if node.op == b"Const"}

    def _source(self, table: int) -> _Source:
        """Return what a table is filled from."""
        nodes = self.graph.object_graph.nodes
        initialize = self._edges.get(table, {}).get(_INITIALIZE, -1)
        if initialize not in self._sources_of_nodes:
            functions = (
                nodes[initialize].function.concrete_functions
                if 0 <= initialize < len(nodes)
                else ()
            )
            sources = [self._source_of_function(text(name)) for name in functions]
            self._sources_of_nodes[initialize] = _Source(
                files=tuple(number for source in sources for number in source.files),
                constants=tuple(name for source in sources for name in source.constants),
            )
        return self._sources_of_nodes[initialize]

    def _source_of_function(self, name: str) -> _Source:
        """Return what a function has of it, and no more than tells that it is too much."""
        if name not in self._sources:
            objects = self.graph.object_graph.nodes
            numbers = self._bound.get(name, ())
            bound = [objects[number] for number in numbers if 0 <= number < len(objects)]
            files = [node.asset.index for node in bound if node.HasField("asset")]
            constants = [node.constant.operation for node in bound if node.HasField("constant")]
            self._sources[name] = _Source(
                files=tuple(files[: _ONE_FILE + 1]), constants=tuple(constants[: _SIDES + 1])
            )
        return self._sources[name]

    def _lines_of(self, source: _Source, *, inverts: bool) -> str | None:
        """
        Return the words that a table is filled with, one on a line, in the order of the numbers
        beside them; tables that are filled from one source share the text.
        """
        if (source, inverts) not in self._texts:
            words: Sequence[str] | None = None
            if len(source.files) == _ONE_FILE:
                words = self._lines(source.files[0])
            elif len(source.constants) == _SIDES:
                words = in_order(*map(self._values, source.constants), inverts=inverts)
            has_lines = words and not any(_NEWLINE in word for word in words)
            self._texts[source, inverts] = _NEWLINE.join(words) if words and has_lines else None
        return self._texts[source, inverts]

    def _lines(self, number: int) -> Sequence[str] | None:
        assets = graph_assets.assets_of(self.graph)
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
        table_tensor = parse_message("TableTensor", b"".join(tensor))
        if table_tensor is None:
            return ()
        if table_tensor.dtype == _INT64:
            count = len(table_tensor.content) // 8
            return table_tensor.numbers or struct.unpack(
                f"<{count}q", table_tensor.content[: count * 8]
            )
        return [text(word) for word in table_tensor.texts]


def in_order(
    keys: Sequence[str | int], values: Sequence[str | int], *, inverts: bool
) -> Sequence[str] | None:
    """Return the words of a table by their numbers; the keys are the numbers where it inverts."""
    words, numbers = (values, keys) if inverts else (keys, values)
    if len(keys) != len(values) or not all(isinstance(number, int) for number in numbers):
        return None
    pairs = sorted(zip(numbers, words, strict=True), key=lambda pair: int(pair[0]))
    return [str(word) for _, word in pairs]
