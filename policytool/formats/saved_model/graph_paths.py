"""
Where the paths come from that a SavedModel's graph reads and writes.

TensorFlow's own savers and tables are ops that open files. In the graphs that it writes, a saver's
path comes from the placeholder that ``saver_def`` names, and a table's path from the tensor of an
asset; the loader fills in both. An op of either kind whose path comes from anywhere else opens the
file that the model names. Paths are followed through calls, by the arguments of functions.

Sources: tensorflow/core/protobuf/{meta_graph,saver,saved_object_graph}.proto;
tensorflow/python/training/saver.py, tensorflow/python/checkpoint/functional_saver.py and
tensorflow/python/saved_model/{load,loader_impl}.py of TensorFlow 2.21.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from policytool.formats.document import Observation
from policytool.formats.saved_model import graph as _graph
from policytool.formats.saved_model import graph_assets
from policytool.formats.saved_model.graph_bodies import (
    MAIN,
    attribute,
    bodies_of,
    functions_of,
    inputs_of,
    text,
    text_of,
)
from policytool.releases.symbols import ops
from policytool.support.errors import short

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from policytool.formats.saved_model.graph_bodies import Body

OP_PATH: Final = "op-path"
"""The code of the observation that an op opens another file than the saver's or an asset."""

_TABLES: Final = frozenset({"InitializeTableFromTextFile", "InitializeTableFromTextFileV2"})
_WRITING: Final = frozenset({"Save", "SaveV2", "SaveSlices", "MergeV2Checkpoints"})
_TEXT: Final = re.compile(rb"(model|\.part|_temp/part|_temp_[0-9a-f]{32}/part)?", re.ASCII)
"""
Texts in the paths of savers: what stands for the path until the loader fills it in, and what is
joined to it.
"""

_FIRST: Final = frozenset(
    {
        "Identity",
        "PlaceholderWithDefault",
        "ExpandDims",
        "Reshape",
        "ShardedFilename",
        "ShardedFilespec",
    }
)
"""Ops whose result is a path if their first input is one."""

_ALL: Final = frozenset({"StringJoin", "Pack"})
"""Ops whose result is a path if all of their inputs are paths, or texts that savers join to one."""

_CHOICES: Final = frozenset({"Select", "SelectV2"})
"""Ops whose result is one of their inputs, all but the first."""

_RUN: Final = frozenset({b"saved_model_main_op", b"legacy_init_op", b"saved_model_train_op"})
"""
The collections of ops that loaders run, or offer to run, where no signature names one
(tensorflow/cc/saved_model/loader_util.cc).
"""

_VARIABLE: Final = b"VarHandleOp"
_USES: Final = frozenset(
    {"ReadVariableOp", "AssignVariableOp", "VarIsInitializedOp", "DisableCopyOnRead"}
)
"""Ops that take a variable without giving it to others."""

_DECODING: Final = frozenset({b"Const", b"HostConst", b"ParseTensor"})
_RESOURCE: Final = 20
"""The number of the type of handles (``DT_RESOURCE``)."""

_CALLS: Final = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
_OP: Final = attrgetter("op")
_Need = tuple[str, str, bool]
"""
A function, the name of a value in it, and whether it has to be an asset (or else a saver's path).
"""


def observe_ops(graph: Any, definition: Any) -> Iterator[Observation]:
    """
    Yield each kind of op once that opens a file of the model's choice.

    :param graph: a ``MetaGraph`` of :mod:`policytool.support.text.protobuf_messages`, and
        ``definition`` its ``GraphDef``
    """
    bodies, doubled = bodies_of(definition)
    for name in doubled:
        yield Observation(
            code="duplicate-function",
            message=(
                f"the graph defines the function {short(name)} twice; TensorFlow uses the first "
                "definition"
            ),
            where="saved_model.pb",
        )
    paths = _Paths(graph, bodies)
    for name in dict.fromkeys(paths.misplaced_ops()):
        where = (
            "a file path that comes from neither the saver nor an asset"
            if ops.path_inputs(name)
            else "an attribute that can contain a file name"
        )
        yield Observation(
            code=OP_PATH,
            message=f"the graph contains the op {name} with {where}",
            where="saved_model.pb",
        )


@dataclass
class _Paths:
    """One graph."""

    graph: Any
    bodies: Mapping[str, Body]

    def misplaced_ops(self) -> Iterator[str]:
        """Yield the ops whose paths, or whose attributes that name files, are the model's own."""
        watched = ops.placed_ops()
        for within, body in self.bodies.items():
            for node in (
                node
                for node, raw in zip(body.messages, map(_OP, body.messages), strict=True)
                if raw in watched
            ):
                op = text(node.op)
                positions, allowed = ops.path_inputs(op), ops.attribute_values(op)
                if positions:
                    inputs = inputs_of(node)
                    needs = [
                        (within, inputs[position], op in _TABLES)
                        for position in positions
                        if position < len(inputs)
                    ]
                    if (
                        len(needs) < len(positions)
                        or not self._hold(needs)
                        or self._untimely(within, node, op)
                    ):
                        yield op
                elif allowed and not all(
                    attribute(node, key) in (None, *values) for key, values in allowed.items()
                ):
                    yield op

    def _untimely(self, within: str, node: Any, op: str) -> bool:
        """
        Return whether a saver's op may run when no loader fills in its path, or writes where a
        loader reads: in a signature, while the model is initialised, while it restores, or in a
        function that a loader or the user calls.
        """
        if op in _TABLES:
            return False
        pending = [(within, text(node.name))]
        tops: set[str] = set()
        met: set[str] = set()
        while pending:
            inside, name = pending.pop()
            if inside == MAIN:
                tops.add(name)
            elif inside in self._entries or self.bodies[inside].has_unseen_calls:
                return True
            elif inside not in met:
                met.add(inside)
                pending += [
                    (outer, text(caller.name)) for outer, caller in self._calls.get(inside, ())
                ]
        return not tops.isdisjoint(
            self._serving_nodes
            | self._initializing_nodes
            | (self._restoring_nodes if op in _WRITING else frozenset())
        )

    def _hold(self, needs: list[_Need]) -> bool:
        """
        Return whether all of these values are paths that a loader fills in, or texts that savers
        join to them.
        """
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

    def _behind(
        self,
        within: str,
        name: str,
        asset: bool,  # noqa: FBT001
    ) -> Sequence[_Need] | None:  # a need's own items
        """Return what has to be a path for this value to be one; None if it is none."""
        body = self.bodies[within]
        node = body.nodes.get(name)
        if node is None:
            return (
                self._argument_values(within, body.arguments.index(name), asset=asset)
                if name in body.arguments
                else None
            )
        op, inputs = text(node.op), inputs_of(node)
        if within == MAIN and name in self._assets and not asset:
            return None  # a loader gives it the asset's path, whatever else it is
        if (
            within == MAIN
            and name in (self._assets if asset else self._savers)
            and (op == "Placeholder" or (op == "Const" and asset))
        ):
            return (
                ()
                if name
                not in (
                    self._serving_nodes | self._restoring_nodes if asset else self._serving_nodes
                )
                else None
            )
        if op == "Const" and not asset:
            return () if _TEXT.fullmatch(text_of(node)) else None
        if op == "ReadVariableOp" and within == MAIN and asset:
            return self._stored_values(inputs)
        if attribute(node, "separator") not in {None, ""}:
            return None
        taken = (
            inputs[:1]
            if op in _FIRST
            else inputs
            if op in _ALL
            else inputs[1:]
            if op in _CHOICES
            else []
        )
        return [(within, source, asset) for source in taken] or None

    def _stored_values(self, inputs: Sequence[str]) -> Sequence[_Need] | None:
        """
        Return the values that a variable of the graph is given: TensorFlow 2 keeps an asset's path
        in one until a table's initializer reads it.

        None unless one node alone stands for the variable, and only nodes that read it and give it
        values take that node.
        """
        main = self.bodies[MAIN].messages
        handle = inputs[0] if inputs else ""
        takers = [node for node in main if handle in inputs_of(node)]
        variable = self.bodies[MAIN].nodes.get(handle)
        called = _variable_names(variable) if variable is not None else frozenset[str]()
        if (
            sum(not called.isdisjoint(others) for others in self._variables) != 1
            or self._makes_handles
            or not {text(node.op) for node in takers} <= _USES
        ):
            return None
        given = (inputs_of(node) for node in takers if node.op == b"AssignVariableOp")
        return [
            (MAIN, values[1], True) for values in given if len(values) > 1 and values[0] == handle
        ] or None

    @cached_property
    def _variables(self) -> list[frozenset[str]]:
        """
        What the process may call the resource variable of each such node in the file; a NUL for a
        name that a call fills in, which may be any.
        """
        return [
            _variable_names(node)
            for body in self.bodies.values()
            for node in body.messages
            if node.op == _VARIABLE
        ]

    @cached_property
    def _makes_handles(self) -> bool:
        """
        Whether a variable may be reached by other means than such a node: by a name that a call
        fills in, or by a handle made of bytes.
        """
        nodes = (
            node for body in self.bodies.values() for node in body.messages if node.op in _DECODING
        )
        return any("\0" in names for names in self._variables) or any(
            entry.value.type == _RESOURCE for node in nodes for entry in node.attributes
        )

    def _argument_values(
        self, function: str, position: int, *, asset: bool
    ) -> Sequence[_Need] | None:
        """
        Return what an argument of a function is wherever it is called; None where it may be
        anything.
        """
        if self.bodies[function].has_unseen_calls:
            return None
        entry = self._entries.get(function)
        if entry is not None:
            arguments = len(self.bodies[function].arguments)
            bound = position - (arguments - len(entry))
            if not asset or bound < 0 or len(entry) > arguments or not self._is_asset(entry[bound]):
                return None
        found: list[_Need] = []
        for within, node in self._calls.get(function, ()):
            inputs = inputs_of(node)
            if (text(node.op) not in _CALLS and text(node.op) != function) or position >= len(
                inputs
            ):
                return None
            found.append((within, inputs[position], asset))
        return found or (None if entry is None else ())

    @cached_property
    def _savers(self) -> frozenset[str]:
        return frozenset({text(self.graph.saver.filename_tensor).partition(":")[0]}) - self._assets

    @cached_property
    def _assets(self) -> frozenset[str]:
        return frozenset(
            text(asset.tensor.name).partition(":")[0] for asset in graph_assets.assets(self.graph)
        )

    @cached_property
    def _entries(self) -> Mapping[str, Sequence[int]]:
        """
        The functions that a loader calls by itself, or whoever has the model, with the objects that
        stand for their last arguments.
        """
        objects = self.graph.object_graph
        named = (
            name
            for node in objects.nodes
            for name in (*node.function.concrete_functions, node.bare_function.concrete_function)
        )
        unbound: dict[str, Sequence[int]] = {
            text(name): () for name in named
        }  # TensorFlow takes a function that is not listed for one without
        return unbound | {
            text(entry.key): tuple(entry.value.bound_inputs) for entry in objects.concrete_functions
        }

    def _is_asset(self, number: int) -> bool:
        """
        Return whether an object is an asset, and, as far as the file says, nothing else at once: of
        several kinds loaders take the last.
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
    def _calls(self) -> Mapping[str, list[tuple[str, Any]]]:
        """By function, the nodes that name it, and where they stand."""
        found: dict[str, list[tuple[str, Any]]] = {}
        calling = ops.calling_ops() | {name.encode() for name in self.bodies}
        for within, body in self.bodies.items():
            for node in (
                node
                for node, raw in zip(body.messages, map(_OP, body.messages), strict=True)
                if raw in calling
            ):
                for called in {*functions_of(node), text(node.op)} & self.bodies.keys():
                    found.setdefault(called, []).append((within, node))
        return found

    @cached_property
    def _serving_nodes(self) -> frozenset[str]:
        """
        The nodes of the graph that a signature is computed from, or has to wait for: when it is
        called, nobody fills in paths.
        """
        own = (
            entry.value.outputs
            for entry in self.graph.signatures
            if not _graph.is_internal(entry.key)
        )
        return self._ancestors(
            name for outputs in own for tensor in outputs for name in _names(tensor.value)
        )

    @cached_property
    def _initializing_nodes(self) -> frozenset[str]:
        """
        The same of the ops that loaders run once the variables are restored, and of those for
        training: assets are filled in for these, and the saver's path is not.
        """
        return self._ancestors(
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
    def _restoring_nodes(self) -> frozenset[str]:
        """
        The same of the op that restores the variables, for which loaders fill in the saver's path
        alone.
        """
        return self._ancestors([text(self.graph.saver.restore_op)])

    def _ancestors(self, roots: Iterable[str]) -> frozenset[str]:
        nodes = self.bodies[MAIN].nodes
        pending = list(roots)
        seen: set[str] = set()
        while pending:
            name = pending.pop().removeprefix("^").partition(":")[0]
            if name in nodes and name not in seen:
                seen.add(name)
                pending += map(text, nodes[name].inputs)
        return frozenset(seen)


def _variable_names(node: Any) -> frozenset[str]:
    """
    Return what the process may call a node's resource variable: without a name of its own, all such
    nodes share the variable with the empty name (resource_variable_ops.cc), and in other releases
    a node may give it the node's name. A node of another kind has no variable.
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
