"""
The sources of the paths that a SavedModel's graph reads and writes.

TensorFlow's own savers and tables are ops that open files. In the graphs that it writes, a saver's
path comes from the placeholder that ``saver_def`` names, and a table's path from the tensor of an
asset; the loader fills in both. An op of either kind with a path from another source opens a file
of the model's choice. Paths are traced through calls, by the arguments of functions.

Sources: tensorflow/core/protobuf/{meta_graph,saver,saved_object_graph}.proto;
tensorflow/python/training/saver.py, tensorflow/python/checkpoint/functional_saver.py and
tensorflow/python/saved_model/{load,loader_impl}.py of TensorFlow 2.21.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from policytool.formats.document import Observation
from policytool.formats.saved_model import graph as _graph
from policytool.formats.saved_model import graph_bodies
from policytool.formats.saved_model.graph_bodies import (
    MAIN,
    OP,
    attribute,
    bodies_of,
    functions_of,
    inputs_of,
    text,
    text_of,
)
from policytool.releases import symbols
from policytool.releases.graph_ops import path_inputs
from policytool.support import steps
from policytool.support.errors import short
from policytool.support.grouping import EachOnce, group_pairs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from policytool.formats.saved_model.graph_bodies import Body

OP_PATH: Final = "op-path"
"""The code of the observation that an op opens another file than the saver's or an asset."""

_TABLES: Final = frozenset({"InitializeTableFromTextFile", "InitializeTableFromTextFileV2"})
_WRITING: Final = frozenset({"Save", "SaveV2", "SaveSlices", "MergeV2Checkpoints"})
_TEXT: Final = re.compile(rb"(model|\.part|_temp/part|_temp_[0-9a-f]{32}/part)?", re.ASCII)
"""
Texts in the paths of savers: the placeholder until the loader fills in the path, and the texts that
are joined to the path.
"""

_RUN: Final = frozenset({b"saved_model_main_op", b"legacy_init_op", b"saved_model_train_op"})
"""
The collections of ops that loaders run, or offer to run, if no signature names such an op
(tensorflow/cc/saved_model/loader_util.cc).
"""

_VARIABLE: Final = b"VarHandleOp"
_ASSIGNMENT: Final = b"AssignVariableOp"
_USES: Final = frozenset(
    {"ReadVariableOp", "AssignVariableOp", "VarIsInitializedOp", "DisableCopyOnRead"}
)
"""Ops that use a variable without passing it to other ops."""

_DECODING: Final = frozenset({b"Const", b"HostConst", b"ParseTensor"})
_RESOURCE: Final = 20
"""The number of the type of handles (``DT_RESOURCE``)."""

_CALLS: Final = frozenset({"PartitionedCall", "StatefulPartitionedCall"})


class _Kind(Enum):
    """The required content of a value of the graph."""

    SAVER = auto()
    """The path of a saver, or a text that savers join to it."""

    ASSET = auto()
    """The path of an asset."""

    VARIABLE = auto()
    """A variable that only ever contains paths of assets."""


_Need = tuple[str, str, _Kind]
"""A function, the name of a value in it, and the required content of the value."""


def observe_ops(graph: Any, definition: Any) -> Iterator[Observation]:
    """
    Yield one observation for each kind of op that opens a file of the model's choice.

    :param graph: a ``MetaGraph`` of :mod:`policytool.support.text.protobuf_messages`, and
        ``definition`` its ``GraphDef``
    """
    bodies, duplicate_names = bodies_of(definition)
    for name in duplicate_names:
        yield Observation(
            code="duplicate-function",
            message=(
                f"the graph defines the function {short(name)} twice; TensorFlow uses the first "
                "definition"
            ),
            where="saved_model.pb",
        )
    for name in dict.fromkeys(_Paths(graph, bodies).misplaced_ops()):
        address = (
            "a file path that comes from neither the saver nor an asset"
            if symbols.path_inputs(name)
            else "an attribute that can contain a file name"
        )
        yield Observation(
            code=OP_PATH,
            message=f"the graph contains the op {name} with {address}",
            where="saved_model.pb",
        )


class _Call(Struct, frozen=True):
    """A node that names a function."""

    within: str
    """The function that contains the node."""

    name: str
    op: str
    inputs: Sequence[str]


class _Run(Struct, frozen=True):
    """The nodes and functions that run together."""

    nodes: frozenset[str]
    """Nodes of the main graph."""

    functions: frozenset[str]

    def run(self, function: str, name: str) -> bool:
        """Return whether a node runs."""
        return name in self.nodes if function == MAIN else function in self.functions


@dataclass
class _Paths:
    """The paths in one graph."""

    graph: Any
    bodies: Mapping[str, Body]
    holding: dict[_Need, bool] = field(default_factory=dict)
    """Whether each value that was checked meets its need."""

    def misplaced_ops(self) -> Iterator[str]:
        """Yield the ops with paths, or with attributes that name files, of the model's choice."""
        watched = symbols.placed_ops()
        for function, body in self.bodies.items():
            for node in (
                node
                for node, raw in zip(body.messages, map(OP, body.messages), strict=True)
                if raw in watched
            ):
                op = text(node.op)
                positions, allowed = (
                    symbols.path_inputs(op),
                    symbols.attribute_values(op),
                )
                if positions:
                    inputs = inputs_of(node)
                    kind = _Kind.ASSET if op in _TABLES else _Kind.SAVER
                    path_needs = [
                        (function, inputs[position], kind)
                        for position in positions
                        if position < len(inputs)
                    ]
                    if (
                        len(path_needs) < len(positions)
                        or not self._are_paths(path_needs)
                        or self._runs_at_wrong_time(function, node, op)
                    ):
                        yield op
                elif allowed and not all(
                    attribute(node, key) in (None, *values) for key, values in allowed.items()
                ):
                    yield op

    def _runs_at_wrong_time(self, function: str, node: Any, op: str) -> bool:
        """
        Return whether a saver's op may run when no loader fills in its path, or may write to the
        path that a loader reads: in a signature, while the model is initialised or restored, or in
        a function that a loader or the user calls.
        """
        if op in _TABLES:
            return False
        name = text(node.name)
        return (
            function in self._callable
            or self._serving.run(function, name)
            or self._initializing.run(function, name)
            or (op in _WRITING and self._restoring.run(function, name))
        )

    def _are_paths(self, needs: list[_Need]) -> bool:
        """
        Return whether all values are paths that a loader fills in, or texts that savers join to
        these paths.

        Each value of the graph is visited once, to collect its sources. Values that depend on an
        invalid source are then marked as invalid.
        """
        pending = [need for need in needs if need not in self.holding]
        users: dict[_Need, list[_Need]] = defaultdict(list)
        wrong: list[_Need] = []
        while pending:
            need = pending.pop()
            if need in self.holding:
                continue
            self.holding[need] = True
            behind = self._sources_of(*need)
            steps.spend(1 + len(behind or ()), walk="paths of a graph")
            if behind is None:
                wrong.append(need)
                continue
            for source in behind:
                if self.holding.get(source, True):
                    users[source].append(need)
                else:
                    wrong.append(need)
            pending += behind
        while wrong:
            need = wrong.pop()
            self.holding[need] = False
            wrong += users.pop(need, ())
        return all(self.holding[need] for need in needs)

    def _sources_of(
        self,
        within: str,
        name: str,
        kind: _Kind,
    ) -> Sequence[_Need] | None:  # a need's own items
        """
        Return the values that must be paths so that this value is a path of ``kind``.

        :return: empty if the value is such a path in any case; None if it is not one
        """
        if kind is _Kind.VARIABLE:
            return self._stored_values(name)
        is_asset_path = kind is _Kind.ASSET
        body = self.bodies[within]
        node = body.nodes.get(name)
        if node is None:
            position = body.positions.get(name)
            return self._argument_values(within, position, kind) if position is not None else None
        op, inputs = text(node.op), inputs_of(node)
        if within == MAIN and name in self._assets and not is_asset_path:
            return None  # the loader fills in the path of an asset, not of a saver
        if (
            within == MAIN
            and name in (self._assets if is_asset_path else self._savers)
            and (op == "Placeholder" or (op == "Const" and is_asset_path))
        ):
            is_read_unfilled = self._serving.run(MAIN, name) or (
                is_asset_path and self._restoring.run(MAIN, name)
            )
            return None if is_read_unfilled else ()
        if op == "Const" and not is_asset_path:
            return () if _TEXT.fullmatch(text_of(node)) else None
        if op == "ReadVariableOp" and within == MAIN and is_asset_path:
            return [(MAIN, inputs[0] if inputs else "", _Kind.VARIABLE)]
        if attribute(node, "separator") not in {None, ""}:
            return None
        return [(within, source, kind) for source in path_inputs(op, inputs)] or None

    def _stored_values(self, handle: str) -> Sequence[_Need] | None:
        """
        Return the values that are assigned to a variable: TensorFlow 2 keeps an asset's path in one
        until a table's initializer reads it.

        :return: None unless a single node creates the variable, and only ops of :data:`_USES` take
            that node
        """
        node = self.bodies[MAIN].nodes.get(handle)
        names = _variable_names(node) if node is not None else frozenset[str]()
        if (
            not names
            or any(self._variables[name] != 1 for name in names)
            or self._has_hidden_handles
            or handle in self._passed_handles
        ):
            return None
        return [
            (MAIN, value, _Kind.ASSET) for value in self._assigned_values.get(handle, ())
        ] or None

    @cached_property
    def _passed_handles(self) -> frozenset[str]:
        """The nodes of the main graph that are inputs of an op outside :data:`_USES`."""
        return frozenset(
            source
            for node in self.bodies[MAIN].messages
            if text(node.op) not in _USES
            for source in inputs_of(node)
        )

    @cached_property
    def _assigned_values(self) -> Mapping[str, list[str]]:
        """The values that nodes of the main graph assign to each variable, by its handle."""
        values_by_handle: dict[str, list[str]] = defaultdict(list)
        for node in self.bodies[MAIN].messages:
            if node.op == _ASSIGNMENT and len(inputs := inputs_of(node)) > 1:
                values_by_handle[inputs[0]].append(inputs[1])
        return values_by_handle

    @cached_property
    def _variables(self) -> Counter[str]:
        """
        How many nodes in the file may create the resource variable of each name. The name is a NUL
        if a call fills it in, so that it may be any.
        """
        return Counter(
            name
            for body in self.bodies.values()
            for node in body.messages
            for name in _variable_names(node)
        )

    @cached_property
    def _has_hidden_handles(self) -> bool:
        """
        Whether the graph may reach a variable without naming its node: by a name that a call fills
        in, or by a handle made of bytes.
        """
        return "\0" in self._variables or any(
            entry.value.type == _RESOURCE
            for node in (
                node
                for body in self.bodies.values()
                for node in body.messages
                if node.op in _DECODING
            )
            for entry in node.attributes
        )

    def _argument_values(self, function: str, position: int, kind: _Kind) -> Sequence[_Need] | None:
        """
        Return the values that the calls of a function pass for one of its arguments; None if these
        are not known.
        """
        if self.bodies[function].has_unseen_calls:
            return None
        entry = self._entries.get(function)
        if entry is not None:
            arguments = len(self.bodies[function].arguments)
            bound = position - (arguments - len(entry))
            if (
                kind is not _Kind.ASSET
                or bound < 0
                or len(entry) > arguments
                or not self._is_asset(entry[bound])
            ):
                return None
        needs: list[_Need] = []
        for call in self._calls.get(function, ()):
            if (call.op not in _CALLS and call.op != function) or position >= len(call.inputs):
                return None
            needs.append((call.within, call.inputs[position], kind))
        return needs or (None if entry is None else ())

    @cached_property
    def _savers(self) -> frozenset[str]:
        return frozenset({text(self.graph.saver.filename_tensor).partition(":")[0]}) - self._assets

    @cached_property
    def _assets(self) -> frozenset[str]:
        return frozenset(
            text(asset.tensor.name).partition(":")[0]
            for asset in graph_bodies.assets_of(self.graph)
        )

    @cached_property
    def _entries(self) -> Mapping[str, Sequence[int]]:
        """
        The functions that a loader or its user calls directly, each with the object numbers of its
        last arguments.
        """
        objects = self.graph.object_graph
        unbound: dict[str, Sequence[int]] = {
            text(name): ()
            for name in (
                name
                for node in objects.nodes
                for name in (
                    *node.function.concrete_functions,
                    node.bare_function.concrete_function,
                )
            )
        }  # TensorFlow takes a function that is not listed for one without
        return unbound | {
            text(entry.key): tuple(entry.value.bound_inputs) for entry in objects.concrete_functions
        }

    def _is_asset(self, number: int) -> bool:
        """
        Return whether an object is an asset and nothing else: loaders use the last kind that an
        object has.
        """
        objects = self.graph.object_graph.nodes
        if not 0 <= number < len(objects):
            return False
        others = (
            "user_object",
            "function",
            "variable",
            "bare_function",
            "constant",
            "resource",
            "captured",
        )
        return objects[number].HasField("asset") and not any(
            objects[number].HasField(kind) for kind in others
        )

    @cached_property
    def _calls(self) -> Mapping[str, list[_Call]]:
        """The calls of each function, by its name."""
        calling = symbols.calling_ops() | {name.encode() for name in self.bodies}
        return group_pairs(
            (called, _Call(function, text(node.name), text(node.op), inputs_of(node)))
            for function, body in self.bodies.items()
            for node, raw in zip(body.messages, map(OP, body.messages), strict=True)
            if raw in calling
            for called in {*functions_of(node), text(node.op)} & self.bodies.keys()
        )

    @cached_property
    def _serving(self) -> _Run:
        """
        The nodes and functions that run when a signature is called; no loader fills in paths then.
        """
        return self._run_for(
            name
            for outputs in (
                entry.value.outputs
                for entry in self.graph.signatures
                if not _graph.is_internal(entry.key)
            )
            for tensor in outputs
            for name in _names(tensor.value)
        )

    @cached_property
    def _initializing(self) -> _Run:
        """
        The nodes and functions that run for training, and when loaders have restored the variables;
        loaders fill in assets for them, but not the saver's path.
        """
        return self._run_for(
            (
                *(
                    name
                    for entry in self.graph.signatures
                    if _graph.is_internal(entry.key)
                    for tensor in entry.value.outputs
                    for name in _names(tensor.value)
                ),
                *(
                    text(name)
                    for entry in self.graph.collections
                    if entry.key in _RUN
                    for name in entry.value.nodes.names
                ),
            )
        )

    @cached_property
    def _callable(self) -> frozenset[str]:
        """
        The functions that run when a loader or the user calls a function of the model, or that may
        be called from places that the graph does not show.
        """
        return self._called_from(
            name
            for name, body in self.bodies.items()
            if name != MAIN and (name in self._entries or body.has_unseen_calls)
        )

    @cached_property
    def _restoring(self) -> _Run:
        """
        The nodes and functions that run to restore the variables; loaders fill in only the saver's
        path for them.
        """
        return self._run_for([text(self.graph.saver.restore_op)])

    def _run_for(self, roots: Iterable[str]) -> _Run:
        """Return the nodes and functions that run when nodes of the main graph are requested."""
        nodes = self._ancestors(roots)
        return _Run(
            nodes,
            self._called_from(
                called
                for called, calls in self._calls.items()
                if any(call.within == MAIN and call.name in nodes for call in calls)
            ),
        )

    @cached_property
    def _callees(self) -> Mapping[str, list[str]]:
        """The functions that each function calls, by its name."""
        return group_pairs(
            (call.within, called) for called, calls in self._calls.items() for call in calls
        )

    def _called_from(self, functions: Iterable[str]) -> frozenset[str]:
        """Return functions with all functions that they call, directly or indirectly."""
        walk = EachOnce(functions)
        for function in walk:
            walk.add(self._callees.get(function, ()))
        return frozenset(walk.visited - {MAIN})

    def _ancestors(self, roots: Iterable[str]) -> frozenset[str]:
        """Return the nodes of the main graph that some nodes depend on, including these nodes."""
        nodes = self.bodies[MAIN].nodes
        pending = list(roots)
        visited: set[str] = set()
        while pending:
            name = pending.pop().removeprefix("^").partition(":")[0]
            if name in nodes and name not in visited:
                visited.add(name)
                pending += map(text, nodes[name].inputs)
        return frozenset(visited)


def _variable_names(node: Any) -> frozenset[str]:
    """
    Return the possible names of a node's resource variable in the process. All nodes without the
    name of a variable share the variable with the empty name (resource_variable_ops.cc); in some
    releases, the variable may have the node's name. Other kinds of nodes have no variable.
    """
    if node.op != _VARIABLE:
        return frozenset()
    name = attribute(node, "shared_name")
    return frozenset({name} if name else {"", text(node.name)})


def _names(tensor: Any) -> Iterator[str]:
    """Yield the names of a tensor, or of those that it consists of."""
    sparse = tensor.sparse
    yield from map(text, (tensor.name, sparse.values, sparse.indices, sparse.shape))
    yield from itertools.chain.from_iterable(map(_names, tensor.composite.components))
