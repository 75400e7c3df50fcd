"""
The nodes of a SavedModel's graph and of its functions, with the text of their fields.

Also its assets: files next to the graph, such as vocabularies, whose names are relative to the
model's directory; and the words of its lookup layers, which a table's initializer reads from two
constants of the graph or from an asset.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from policytool.formats.base import ASSETS, escaping_asset
from policytool.releases import symbols
from policytool.support import limits, steps
from policytool.support.text.phrases import leads_out

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from policytool.formats.base import Probe
    from policytool.formats.document import Observation


MAIN: Final = ""
"""The key of the main graph among the functions."""

_REPLACING: Final = b"api_implements"
"""The attribute of functions that TensorFlow may call in place of others."""


OP: Final = attrgetter("op")
"""Three times as fast as a generator, which matters for a million nodes."""


@dataclass(frozen=True)
class Body:
    """The nodes of the main graph or of a function."""

    arguments: tuple[str, ...]
    messages: Sequence[Any]
    has_unseen_calls: bool = False
    """
    Whether TensorFlow may call the function with values that are not inputs of a node that names
    the function.
    """

    @cached_property
    def positions(self) -> Mapping[str, int]:
        """The position of each argument; the first position of a duplicate name."""
        return {name: place for place, name in reversed(tuple(enumerate(self.arguments)))}

    @cached_property
    def nodes(self) -> Mapping[str, Any]:
        """The nodes by their names."""
        return {text(node.name): node for node in self.messages}


def bodies_of(definition: Any) -> tuple[Mapping[str, Body], Sequence[str]]:
    """
    Return the main graph and its functions by name, and the names that several functions share; of
    these, TensorFlow uses the first function.
    """
    library = definition.library
    passed = {
        *(text(entry.gradient) for entry in (*library.gradients, *library.registered_gradients)),
        *_functions_in_attributes(definition),
    }
    bodies, duplicate_names = {MAIN: Body((), definition.nodes)}, []
    for function in library.functions:
        name, arguments = text(function.signature.name), function.signature.arguments
        body = Body(
            tuple(text(argument.name) for argument in arguments),
            function.nodes,
            name in passed
            or any(entry.key == _REPLACING for entry in function.attributes)
            # an argument of variable length, so that later inputs have no fixed position
            or any(
                argument.number_attribute or argument.type_list_attribute for argument in arguments
            ),
        )
        if bodies.setdefault(name, body) is not body:
            duplicate_names.append(name)
    return bodies, duplicate_names


def _functions_in_attributes(definition: Any) -> Iterator[str]:
    """
    Yield the functions that are passed as an attribute of a function, in a call or as its default.
    The op that then calls them does not name them, so their callers are not visible.
    """
    functions = definition.library.functions
    names = {function.signature.name for function in functions}
    pending = [
        attribute.default
        for function in functions
        for attribute in function.signature.attributes
        if attribute.HasField("default")
    ]
    yield from (text(name) for value in pending for name in _named_functions(value))
    calling = symbols.calling_ops() | names
    pending += [
        entry.value
        for nodes in (definition.nodes, *(function.nodes for function in functions))
        for node, op in zip(nodes, map(OP, nodes), strict=True)
        if op in calling
        for entry in node.attributes
    ]
    while pending:
        value = pending.pop()
        for function in (value.function, *value.list.functions):
            for entry in function.attributes:
                yield from (text(name) for name in _named_functions(entry.value))
                pending.append(entry.value)


def _named_functions(value: Any) -> Iterator[bytes]:
    """Yield the functions that the value of an attribute names."""
    if value.HasField("function"):
        yield value.function.name
    yield from (function.name for function in value.list.functions)


def inputs_of(node: Any) -> list[str]:
    """Return the sources of the node's data: names of nodes and arguments."""
    return [text(source).partition(":")[0] for source in node.inputs if not source.startswith(b"^")]


def functions_of(node: Any) -> Iterator[str]:
    """Yield the functions that a node names."""
    for entry in node.attributes:
        yield from map(text, _named_functions(entry.value))


def attribute(node: Any, key: str) -> str | None:
    """
    Return the text of an attribute; None if the node does not have the attribute.

    Return a NUL, which no text contains, if the value is not a text, for example because a call
    fills it in.
    """
    value = next(
        (entry.value for entry in reversed(node.attributes) if text(entry.key) == key), None
    )
    if value is None:
        return None
    return (
        text(value.text) if value.HasField("text") and not value.HasField("placeholder") else "\0"
    )


def text_of(node: Any) -> bytes:
    """
    Return the text of a constant that has exactly one.

    Return a NUL, which no path contains, for anything else, such as text stored as raw bytes, which
    TensorFlow prefers, or a value that a call fills in.
    """
    value = next(
        (entry.value for entry in reversed(node.attributes) if entry.key == b"value"), None
    )
    if value is None or value.HasField("placeholder"):
        return b"\0"
    text_tensor = parse_message("TextTensor", b"".join(value.tensor))
    return (
        text_tensor.texts[0]
        if text_tensor is not None and len(text_tensor.texts) == 1 and not text_tensor.content
        else b"\0"
    )


def parse_message(name: str, data: bytes) -> Any | None:
    """
    Return a message; None for bytes that are not a message or exceed a limit, because TensorFlow
    cannot read a file with such bytes.
    """
    from policytool.support.text import protobuf_messages  # protobuf is only for SavedModels

    try:
        return protobuf_messages.parse(name, data)
    except (ValueError, protobuf_messages.MessagesError):
        return None


def text(raw: bytes) -> str:
    """Return a name; ill-formed UTF-8 is replaced."""
    return raw.decode("utf-8", "replace")


_COLLECTION: Final = b"saved_model_assets"
_TYPE: Final = b"/tensorflow.AssetFileDef"


def assets_of(graph: Any) -> tuple[Any, ...]:
    """
    Return the assets of a ``MetaGraph``, each an ``AssetFile``. TensorFlow 1 stores them in a
    collection, which TensorFlow reads only if the field ``assets`` is empty.
    """
    if graph.assets:
        return tuple(graph.assets)
    collection = next(
        (entry.value for entry in reversed(graph.collections) if entry.key == _COLLECTION), None
    )
    if collection is None or any(
        collection.HasField(kind) for kind in ("nodes", "bytes", "ints", "floats")
    ):  # TensorFlow uses the last of several kinds
        return ()
    return tuple(
        asset
        for asset in (
            parse_message("AssetFile", packed_asset.value)
            for packed_asset in collection.any.values
            if packed_asset.type_url.endswith(_TYPE)
        )
        if asset is not None
    )


def escaping_assets(probe: Probe, graphs: Any) -> Iterator[Observation]:
    """Yield observations about assets outside a model's directory, by their names or by a link."""
    for name in sorted({text(asset.filename) for graph in graphs for asset in assets_of(graph)}):
        if leads_out(name):
            yield escaping_asset(name, f"is outside {ASSETS}")
        elif probe.leads_out(probe.path / ASSETS / name):
            yield escaping_asset(name, "is a link to a path outside the model")


_INNER: Final = "_lookup_layer"
"""The name of the edge from a TextVectorization layer to its lookup layer."""

_TABLE: Final = "lookup_table"
_INITIALIZE: Final = "_initialize"
_NAMES: Final = frozenset(name.encode() for name in (_INNER, _TABLE, _INITIALIZE))
_ONE_FILE: Final = 1
_SIDES: Final = 2
"""The number of constants that fill a table: its keys and its values."""

_INT64: Final = 9
"""``DT_INT64`` (types.proto)."""

_NEWLINE: Final = "\n"


class _Source(Struct, frozen=True):
    """The source from which a table's initializer fills the table."""

    files: tuple[int, ...]
    """The numbers of assets."""

    constants: tuple[bytes, ...]
    """The names of nodes of the graph."""


@dataclass(frozen=True)
class TableReader:
    """The tables of one graph."""

    probe: Probe
    graph: Any
    definition: Any
    inverting: frozenset[int]
    """The nodes of layers that map numbers to words."""

    _sources: dict[str, _Source] = field(default_factory=dict, init=False, repr=False)
    """The sources by function; filled while reading."""

    _sources_of_nodes: dict[int, _Source] = field(default_factory=dict, init=False, repr=False)
    """The sources by the number of the initializer; filled while reading."""

    _texts: dict[tuple[_Source, bool], str | None] = field(
        default_factory=dict, init=False, repr=False
    )
    """The words by source, and by whether a layer inverts the table; filled while reading."""

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
        """The edges to tables and to their initializers, by the number of the node."""
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
        """Return the source of a table."""
        nodes = self.graph.object_graph.nodes
        initialize = self._edges.get(table, {}).get(_INITIALIZE, -1)
        if initialize not in self._sources_of_nodes:
            sources = [
                self._source_of_function(text(name))
                for name in (
                    nodes[initialize].function.concrete_functions
                    if 0 <= initialize < len(nodes)
                    else ()
                )
            ]
            self._sources_of_nodes[initialize] = _Source(
                files=tuple(number for source in sources for number in source.files),
                constants=tuple(name for source in sources for name in source.constants),
            )
        return self._sources_of_nodes[initialize]

    def _source_of_function(self, name: str) -> _Source:
        """Return the source in a function, limited to one item more than a source can have."""
        if name not in self._sources:
            objects = self.graph.object_graph.nodes
            bound = [
                objects[number]
                for number in self._bound.get(name, ())
                if 0 <= number < len(objects)
            ]
            files = [node.asset.index for node in bound if node.HasField("asset")]
            constants = [node.constant.operation for node in bound if node.HasField("constant")]
            self._sources[name] = _Source(
                files=tuple(files[: _ONE_FILE + 1]), constants=tuple(constants[: _SIDES + 1])
            )
        return self._sources[name]

    def _lines_of(self, source: _Source, *, inverts: bool) -> str | None:
        """
        Return the words of a table, one per line, in the order of their numbers. Tables with the
        same source share the text.
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
        """
        Return the lines of an asset; None if the asset is missing or outside of the model's
        directory.
        """
        assets = assets_of(self.graph)
        name = text(assets[number].filename) if 0 <= number < len(assets) else ""
        if not name or leads_out(name) or self.probe.leads_out(self.probe.path / ASSETS / name):
            return None
        return text(
            self.probe.content(
                limits.JSON_BYTES, "json-limit", f"has {ASSETS}/{name} of", f"{ASSETS}/{name}"
            )
        ).splitlines()

    def _values(self, operation: bytes) -> Sequence[str | int]:
        """Return the elements of a constant, numbers or texts."""
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
    """Return the words of a table by number; the keys are the numbers if ``inverts`` is true."""
    words, numbers = (values, keys) if inverts else (keys, values)
    if len(keys) != len(values) or not all(isinstance(number, int) for number in numbers):
        return None
    return [
        str(word)
        for _, word in sorted(zip(numbers, words, strict=True), key=lambda pair: int(pair[0]))
    ]
