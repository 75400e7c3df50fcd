"""
Where the paths come from that a SavedModel's graph reads and writes.

TensorFlow's own savers and tables are ops that open files. In the graphs that it writes, a saver's path comes from the placeholder that ``saver_def`` names,
and a table's path from the tensor of an asset; the loader fills in both. An op of either kind whose path comes from anywhere else opens the file that the
model names. Paths are followed through calls, by the arguments of functions.

Sources: tensorflow/core/protobuf/{meta_graph,saver,saved_object_graph}.proto; tensorflow/python/training/saver.py,
tensorflow/python/checkpoint/functional_saver.py and tensorflow/python/saved_model/{load,loader_impl}.py of TensorFlow 2.21.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from policytool import hazards, protobuf_messages
from policytool.document import Observation
from policytool.formats import _graph

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

OP_PATH: Final = "op-path"
"""The code of the observation that an op opens another file than the saver's or an asset."""

_TABLES: Final = frozenset({"InitializeTableFromTextFile", "InitializeTableFromTextFileV2"})
_WRITING: Final = frozenset({"Save", "SaveV2", "SaveSlices", "MergeV2Checkpoints"})
_TEXT: Final = re.compile(rb"(model|\.part|_temp/part|_temp_[0-9a-f]{32}/part)?", re.ASCII)
"""Texts in the paths of savers: what stands for the path until the loader fills it in, and what is joined to it."""

_FIRST: Final = frozenset({"Identity", "PlaceholderWithDefault", "ExpandDims", "Reshape", "ShardedFilename", "ShardedFilespec"})
"""Ops whose result is a path if their first input is one."""

_ALL: Final = frozenset({"StringJoin", "Pack"})
"""Ops whose result is a path if all of their inputs are paths, or texts that savers join to one."""

_CHOICES: Final = frozenset({"Select", "SelectV2"})
"""Ops whose result is one of their inputs, all but the first."""

_ASSETS: Final = b"saved_model_assets"
_ASSET_TYPE: Final = b"/tensorflow.AssetFileDef"
_VARIABLE: Final = b"VarHandleOp"
_USES: Final = frozenset({"ReadVariableOp", "AssignVariableOp", "VarIsInitializedOp", "DisableCopyOnRead"})
"""Ops that take a variable without giving it to others."""

_DECODING: Final = frozenset({b"Const", b"HostConst", b"ParseTensor"})
_RESOURCE: Final = 20
"""The number of the type of handles (``DT_RESOURCE``)."""

_CALLS: Final = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
_REPLACING: Final = b"api_implements"
"""The attribute of functions that TensorFlow may call in the place of others."""

_OP: Final = attrgetter("op")
_MAIN: Final = ""
"""The graph itself, among the functions by their names."""

_Need = tuple[str, str, bool]
"""A function, the name of a value in it, and whether it has to be an asset (or else a saver's path)."""


def observed(graph: Any, definition: Any) -> Iterator[Observation]:
    """
    Yield each kind of op once that opens a file of the model's choice.

    :param graph: a ``MetaGraph`` of :mod:`policytool.protobuf_messages`, and ``definition`` its ``GraphDef``
    """
    paths = _Paths(graph, definition)
    for name in dict.fromkeys(paths.misplaced()):
        where = "a path of the model's own, not the saver's or an asset's" if hazards.path_inputs(name) else "an attribute that can name a file"
        yield Observation(code=OP_PATH, message=f"its graph has the op {name} with {where}", where="saved_model.pb")


def assets(graph: Any) -> tuple[Any, ...]:
    """Return the assets of a ``MetaGraph``, each an ``AssetFile``; TensorFlow 1 has them in a collection, which loaders read if they stand nowhere else."""
    if graph.assets:
        return tuple(graph.assets)
    held = next((entry.value for entry in reversed(graph.collections) if entry.key == _ASSETS), None)
    if held is None or any(held.HasField(kind) for kind in ("nodes", "bytes", "ints", "floats")):  # of several kinds loaders take the last
        return ()
    found = (_parsed("AssetFile", one.value) for one in held.any.values if one.type_url.endswith(_ASSET_TYPE))
    return tuple(asset for asset in found if asset is not None)


@dataclass(frozen=True)
class _Body:
    """The nodes of the graph itself, or of a function."""

    arguments: tuple[str, ...]
    messages: Sequence[Any]
    replaces: bool = False
    """Whether TensorFlow may call the function in the place of another."""

    @cached_property
    def nodes(self) -> Mapping[str, Any]:
        """The nodes by their names."""
        return {_text(node.name): node for node in self.messages}


@dataclass
class _Paths:
    """One graph."""

    graph: Any
    definition: Any
    bodies: dict[str, _Body] = field(init=False)

    def __post_init__(self) -> None:
        self.bodies = {_MAIN: _Body((), self.definition.nodes)}
        for function in self.definition.library.functions:
            arguments = tuple(_text(argument.name) for argument in function.signature.arguments)
            replaces = any(entry.key == _REPLACING for entry in function.attributes)
            self.bodies[_text(function.signature.name)] = _Body(arguments, function.nodes, replaces)

    def misplaced(self) -> Iterator[str]:
        """Yield the ops whose paths, or whose attributes that name files, are the model's own."""
        watched = hazards.placed_ops()
        for within, body in self.bodies.items():
            for node in (node for node, raw in zip(body.messages, map(_OP, body.messages), strict=True) if raw in watched):
                op = _text(node.op)
                positions, allowed = hazards.path_inputs(op), hazards.attribute_values(op)
                if positions:
                    inputs = _inputs(node)
                    needs = [(within, inputs[position], op in _TABLES) for position in positions if position < len(inputs)]
                    if len(needs) < len(positions) or not self._hold(needs) or self._untimely(within, node, op):
                        yield op
                elif allowed and not all(_attribute(node, key) in (None, *values) for key, values in allowed.items()):
                    yield op

    def _untimely(self, within: str, node: Any, op: str) -> bool:
        """Return whether a saver's op runs when no loader fills in its path, or writes where a loader reads: as a signature does, or while it restores."""
        if op in _TABLES:
            return False
        pending = [(within, _text(node.name))]
        tops: set[str] = set()
        met: set[str] = set()
        while pending:
            inside, name = pending.pop()
            if inside == _MAIN:
                tops.add(name)
            elif inside not in met:
                met.add(inside)
                pending += [(outer, _text(caller.name)) for outer, caller in self._calls.get(inside, ())]
        return not tops.isdisjoint(self._called | (self._restored if op in _WRITING else frozenset()))

    def _hold(self, needs: list[_Need]) -> bool:
        """Return whether all of these values are paths that a loader fills in, or texts that savers join to them."""
        met: set[_Need] = set()
        while needs:
            need = needs.pop()
            if need not in met:
                met.add(need)
                further = self._behind(*need)
                if further is None:
                    return False
                needs += further
        return True

    def _behind(self, within: str, name: str, asset: bool) -> Sequence[_Need] | None:  # noqa: FBT001  # a need's own items
        """Return what has to be a path for this value to be one; None if it is none."""
        body = self.bodies[within]
        node = body.nodes.get(name)
        if node is None:
            return self._given(within, body.arguments.index(name), asset=asset) if name in body.arguments else None
        op, inputs = _text(node.op), _inputs(node)
        if within == _MAIN and name in (self._assets if asset else self._savers) and (op == "Placeholder" or (op == "Const" and asset)):
            return () if name not in (self._called | self._restored if asset else self._called) else None
        if op == "Const" and not asset:
            return () if _TEXT.fullmatch(_constant(node)) else None
        if op == "ReadVariableOp" and within == _MAIN and asset:
            return self._stored(inputs)
        if _attribute(node, "separator") not in {None, ""}:
            return None
        taken = inputs[:1] if op in _FIRST else inputs if op in _ALL else inputs[1:] if op in _CHOICES else []
        return [(within, source, asset) for source in taken] or None

    def _stored(self, inputs: Sequence[str]) -> Sequence[_Need] | None:
        """
        Return the values that a variable of the graph is given: TensorFlow 2 keeps an asset's path in one until a table's initializer reads it.

        None unless one node alone stands for the variable, and only nodes that read it and give it values take that node.
        """
        main = self.bodies[_MAIN].messages
        handle = inputs[0] if inputs else ""
        takers = [node for node in main if handle in _inputs(node)]
        if self._variables.count(self._variable(handle)) != 1 or self._makes_handles or not {_text(node.op) for node in takers} <= _USES:
            return None
        given = (_inputs(node) for node in takers if node.op == b"AssignVariableOp")
        return [(_MAIN, values[1], True) for values in given if len(values) > 1 and values[0] == handle] or None

    def _variable(self, handle: str) -> str | None:
        """Return what a resource variable is called by the process; None for a node that is none."""
        node = self.bodies[_MAIN].nodes.get(handle)
        return (_attribute(node, "shared_name") or handle) if node is not None and node.op == _VARIABLE else None

    @cached_property
    def _variables(self) -> list[str | None]:
        """What each node in the file that stands for a resource variable calls it; a NUL for a name that a call fills in, which may be any."""
        nodes = [node for body in self.bodies.values() for node in body.messages if node.op == _VARIABLE]
        return [_attribute(node, "shared_name") or _text(node.name) for node in nodes]

    @cached_property
    def _makes_handles(self) -> bool:
        """Whether a variable may be reached by other means than such a node: by a name that a call fills in, or by a handle made of bytes."""
        nodes = (node for body in self.bodies.values() for node in body.messages if node.op in _DECODING)
        return "\0" in self._variables or any(entry.value.type == _RESOURCE for node in nodes for entry in node.attributes)

    def _given(self, function: str, position: int, *, asset: bool) -> Sequence[_Need] | None:
        """Return what an argument of a function is wherever it is called; None where it may be anything."""
        if self.bodies[function].replaces:
            return None
        entry = self._entries.get(function)
        if entry is not None:
            bound = position - (len(self.bodies[function].arguments) - len(entry))
            if not asset or bound < 0 or not self._is_asset(entry[bound]):
                return None
        found: list[_Need] = []
        for within, node in self._calls.get(function, ()):
            inputs = _inputs(node)
            if (_text(node.op) not in _CALLS and _text(node.op) != function) or position >= len(inputs):
                return None
            found.append((within, inputs[position], asset))
        return found or (None if entry is None else ())

    @cached_property
    def _savers(self) -> frozenset[str]:
        return frozenset({_text(self.graph.saver.filename_tensor).partition(":")[0]}) - self._assets

    @cached_property
    def _assets(self) -> frozenset[str]:
        return frozenset(_text(asset.tensor.name).partition(":")[0] for asset in assets(self.graph))

    @cached_property
    def _entries(self) -> Mapping[str, Sequence[int]]:
        """The functions that a loader calls by itself, or whoever has the model, with the objects that stand for their last arguments."""
        return {_text(entry.key): tuple(entry.value.bound_inputs) for entry in self.graph.object_graph.concrete_functions}

    def _is_asset(self, number: int) -> bool:
        """Return whether an object is an asset, and, as far as the file says, nothing else at once: of several kinds loaders take the last."""
        objects = self.graph.object_graph.nodes
        if not 0 <= number < len(objects):
            return False
        others = ("user_object", "function", "variable", "bare_function", "constant", "resource", "captured")
        return objects[number].HasField("asset") and not any(objects[number].HasField(kind) for kind in others)

    @cached_property
    def _calls(self) -> Mapping[str, list[tuple[str, Any]]]:
        """By function, the nodes that name it, and where they stand."""
        found: dict[str, list[tuple[str, Any]]] = {}
        for within, body in self.bodies.items():
            for node in body.messages:
                for called in {*_functions(node), _text(node.op)} & self.bodies.keys():
                    found.setdefault(called, []).append((within, node))
        return found

    @cached_property
    def _called(self) -> frozenset[str]:
        """The nodes of the graph that a signature is computed from, or has to wait for: when it is called, nobody fills in paths."""
        own = (entry.value.outputs for entry in self.graph.signatures if not _graph.is_internal(entry.key))
        return self._needed(name for outputs in own for tensor in outputs for name in _names(tensor.value))

    @cached_property
    def _restored(self) -> frozenset[str]:
        """The same of the op that restores the variables, for which loaders fill in the saver's path alone."""
        return self._needed([_text(self.graph.saver.restore_op)])

    def _needed(self, roots: Iterable[str]) -> frozenset[str]:
        nodes = self.bodies[_MAIN].nodes
        pending = list(roots)
        seen: set[str] = set()
        while pending:
            name = pending.pop().removeprefix("^").partition(":")[0]
            if name in nodes and name not in seen:
                seen.add(name)
                pending += map(_text, nodes[name].inputs)
        return frozenset(seen)


def _names(tensor: Any) -> Iterator[str]:
    """Yield the names of a tensor, or of those that it consists of."""
    sparse = tensor.sparse
    yield from map(_text, (tensor.name, sparse.values, sparse.indices, sparse.shape))
    yield from itertools.chain.from_iterable(map(_names, tensor.composite.components))


def _inputs(node: Any) -> list[str]:
    """Return where the node's data comes from: names of nodes and arguments."""
    return [_text(source).partition(":")[0] for source in node.inputs if not source.startswith(b"^")]


def _functions(node: Any) -> Iterator[str]:
    """Yield the functions that a node names."""
    for entry in node.attributes:
        if entry.value.HasField("function"):
            yield _text(entry.value.function.name)
        yield from (_text(function.name) for function in entry.value.list.functions)


def _attribute(node: Any, key: str) -> str | None:
    """Return the text of an attribute; None if the node has none, and a NUL, which no text has, for one that the call of a function fills in."""
    found = next((entry.value for entry in reversed(node.attributes) if _text(entry.key) == key), None)
    return None if found is None else "\0" if found.HasField("placeholder") else _text(found.text)


def _constant(node: Any) -> bytes:
    """Return the one text of a constant; a NUL, which no path has, for anything else, such as text as bytes, which TensorFlow takes instead."""
    tensor = next((entry.value.tensor for entry in reversed(node.attributes) if entry.key == b"value"), None)
    held = _parsed("TextTensor", b"".join(tensor or []))
    return held.texts[0] if held is not None and len(held.texts) == 1 and not held.content else b"\0"


def _parsed(name: str, data: bytes) -> Any | None:
    """Return a message; None for bytes that are none, or are beyond the bounds: TensorFlow reads a file with such bytes in no way."""
    try:
        return protobuf_messages.parse(name, data)
    except (ValueError, protobuf_messages.MessagesError):
        return None


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
