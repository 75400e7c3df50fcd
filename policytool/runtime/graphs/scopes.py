"""
What of a saved graph is looked at: of each scope the tensor that leaves it, and what the rewrite
changed.

A scope is the name of an op without its last part, as if every function were written out where it
is called: the names of the calls themselves are left out. An op of an entry point itself, which is
in no scope, is looked at where the rewrite changed it. Within loops and branches (of TF 1, which
grappler also makes of those of TF 2) tensors exist more than once or not at all; they are seen
through what leaves.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from typing import TYPE_CHECKING

from ..engine.layer_hooks import reduction_depth
from . import mixed_precision
from .mixed_precision import SUFFIX

if TYPE_CHECKING:
    from typing import AbstractSet, Any, Iterable, Mapping, Sequence

FLOAT = 1
"""The numbers of float dtypes in ``types.proto``."""

NARROW = {14: "bfloat16", 19: "float16"}

MOVES = frozenset(
    (
        "Cast",
        "Const",
        "Identity",
        "IdentityN",
        "NoOp",
        "Placeholder",
        "PlaceholderWithDefault",
        "PreventGradient",
        "ReadVariableOp",
        "StopGradient",
    )
)
"""Ops that return their inputs."""

LOOPS = frozenset(("Case", "If", "StatelessCase", "StatelessIf", "StatelessWhile", "While"))
"""Loops and branches of TF 2, each of which is one op."""

_SHAPES = frozenset(("Rank", "Shape", "ShapeN", "Size"))
"""Ops that do not depend on values."""

_EXIT = "exit"
"""The scope below a loop in which grappler puts the outputs of the loop."""

_CALL = re.compile(r"^(Stateful|Remote)?PartitionedCall(_\d+)?$")
_INLINED = "Func"
"""The scope in which grappler puts the ops around an inlined function."""


def path(name: str, *, loop: bool = False) -> str:
    """
    Return the scope of an op from its name; empty for ops of an entry point, and for ops that
    grappler adds around functions. A loop that is one op is a scope by itself.
    """
    parts = name.split("/")
    if parts[0] == _INLINED:
        return ""
    if parts[-2:-1] == [_EXIT]:
        del parts[-2]
    return "/".join(part for part in (parts if loop else parts[:-1]) if not _CALL.match(part))


class Changes:
    """The changes of a graph, and of the functions of its loops, by a rewrite."""

    def __init__(self, before: Any, after: Any, emulated: AbstractSet[str] | None = None) -> None:
        """
        ``emulated``: the ops in 16 bits where the rewrite leaves them float32 and rounds what they
        take and give.
        """
        old, new = _nodes(before), _nodes(after)
        added = {
            key: node
            for key, node in new.items()
            if key not in old and node.op == "Cast" and node.name.endswith(SUFFIX)
        }
        casts = {key: node for key, node in added.items() if node.attr["DstT"].type in NARROW}
        if emulated is not None:
            names = {
                (key[0], node.input[0].partition(":")[0]) for key, node in casts.items() if key[0]
            } | {("", name) for name in emulated}
        else:
            names = {
                key for key, node in new.items() if key in old and _types(node) != _types(old[key])
            }
        changed = sorted(key for key in names if key in old and old[key].op not in MOVES)
        self.total = sum(
            1 for node in old.values() if node.op not in MOVES and _has(node, (FLOAT,))
        )
        self.narrow_before = sum(
            1 for node in old.values() if node.op not in MOVES and _has(node, NARROW)
        )
        self.casts = len(added)
        self.ops = len(changed)
        self.by_type = Counter(old[key].op for key in changed)
        self.names = frozenset(name for function, name in changed if not function)
        """Ops of the graph, without those in functions."""

        self.rounded = {
            _source(node): node.name + ":0"
            for key, node in casts.items()
            if node.input[0].partition(":")[0] in (emulated or ())
        }
        """With emulation: tensors (``name:0``), each with the output of the cast that rounds it."""

    @property
    def unchanged(self) -> str | None:
        """The reason if the rewrite changed nothing."""
        if self.ops:
            return None
        if self.narrow_before:
            text = (
                "the rewrite changes nothing: {} ops of this graph already compute in 16 bits, "
                "and no matrix product or convolution is left in float32"
            )
            return text.format(self.narrow_before)
        return (
            "the rewrite changes nothing: this graph has no matrix products, "
            "convolutions or RNN kernels in float32"
        )

    def to_json(self) -> dict[str, Any]:
        """Return the changes as JSON."""
        return {
            "ops": self.ops,
            "total": self.total,
            "casts": self.casts,
            "narrow_before": self.narrow_before,
            "by_type": dict(sorted(self.by_type.items())),
            "unchanged": self.unchanged,
        }


def kept_scopes(
    graph_def: Any, placeholders: Iterable[str], changed: AbstractSet[str]
) -> list[dict[str, Any]]:
    """
    Return the scopes with ops that a rewrite left in float32, in the order of the graph. Each has
    these ops by type, and whether the rewrite changed no op of the scope.

    Only ops that depend on a signature's inputs count; ops in functions are left out.

    :param placeholders: the names of the placeholders of the signature's inputs
    :param changed: the names of the ops that the rewrite changed
    """
    nodes = type(graph_def)()
    nodes.CopyFrom(graph_def)
    mixed_precision.sort(nodes.node)
    dependent = set(placeholders)
    ops_by_scope: dict[str, Counter[str]] = {}
    partly = set()
    for node in nodes.node:
        sources = (source.partition(":")[0] for source in node.input)
        if node.op in _SHAPES or not any(source in dependent for source in sources):
            continue
        dependent.add(node.name)
        scope = path(node.name, loop=node.op in LOOPS) or path(node.name, loop=True)
        if node.name in changed:
            partly.add(scope)
        elif node.op not in MOVES and scope and _has(node, (FLOAT,)):
            ops_by_scope.setdefault(scope, Counter())[node.op] += 1
    return [
        {"scope": scope, "ops": dict(sorted(ops.items())), "is_whole": scope not in partly}
        for scope, ops in ops_by_scope.items()
    ]


def watched_tensors(
    ops: Sequence[Any],
    input_tensors: Iterable[Any],
    changed: AbstractSet[str],
    inner: Mapping[str, bool],
) -> list[tuple[str, Any]]:
    """
    Return, for each scope in the order of the graph, the tensor that represents it.

    It is the last float tensor of the scope that depends on the signature's inputs, and that
    another scope uses or whose op the rewrite changed.

    :param ops: the ops of the plain graph, each after its inputs.
    :param input_tensors: the input tensors of the signature.
    :param changed: full names of ops that the rewrite changed.
    :param inner: as :func:`within` returns it.
    """
    known = {op.name for op in ops}
    fed = _downstream(ops, input_tensors)
    tensors_by_scope: dict[str, Any] = {}
    for op in ops:
        scope = path(imported_name(op.name), loop=op.type in LOOPS) or (
            unscoped_name(op.name) if op.name in changed else ""
        )
        if not scope or op.type in MOVES or op.name not in fed or inner[op.name]:
            continue
        for tensor in op.outputs:
            users = (
                [user for user in tensor.consumers() if user.name in known]
                if tensor.dtype.is_floating
                else []
            )
            if users and (
                op.name in changed or any(path(imported_name(user.name)) != scope for user in users)
            ):
                tensors_by_scope.pop(scope, None)
                tensors_by_scope[scope] = tensor
                break
    return list(tensors_by_scope.items())


def depth_of(ops: Sequence[Any], scoped_tensors: Sequence[tuple[str, Any]]) -> list[int]:
    """
    Return the reduction depth of each watched tensor: the number of terms that are added, one
    reduction after the other.

    An op counts for the tensor whose scope has the longest common prefix with the op's scope; of
    several such tensors, for the next one in the graph. Ops in a loop count once.
    """
    ends = [tensor.op.name for _, tensor in scoped_tensors]
    groups: list[list[Any]] = [[] for _ in scoped_tensors]
    nearest: dict[str, list[int]] = {"": []}
    after = 0
    for op in ops:
        scope = path(imported_name(op.name)) or unscoped_name(op.name)
        if scope not in nearest:
            common = [_common(scope, watched_scope) for watched_scope, _ in scoped_tensors]
            most = max(common, default=0)
            nearest[scope] = [place for place, number in enumerate(common) if number == most > 0]
        places = nearest[scope]
        if places:
            groups[next((place for place in places if place >= after), places[-1])].append(op)
        if after < len(ends) and op.name == ends[after]:
            after += 1
    return [reduction_depth(group) for group in groups]


def within(ops: Sequence[Any]) -> dict[str, bool]:
    """Return the ops in loops and branches of TF 1."""
    loops: dict[str, int] = {}
    branches: dict[str, int] = {}
    for op in ops:
        sources = [
            source.name for source in [*(tensor.op for tensor in op.inputs), *op.control_inputs]
        ]
        loop = max([loops.get(name, 0) for name in sources], default=0)
        branch = max([branches.get(name, 0) for name in sources], default=0)
        if op.type in ("Enter", "RefEnter"):
            loop += 1
        elif op.type in ("Exit", "RefExit"):
            loop -= 1
        elif not loop and op.type in ("Switch", "RefSwitch", "_SwitchN"):
            branch += 1
        elif not loop and op.type in ("Merge", "RefMerge"):
            branch -= 1
        loops[op.name], branches[op.name] = loop, branch
    return {name: bool(loops[name] or branches[name]) for name in loops}


def imported_name(name: str) -> str:
    """Return an op's name in the imported graph."""
    return name.partition("/")[2]


def unscoped_name(name: str) -> str:
    """
    Return the scope that is used for an op outside all scopes: its name in the imported graph,
    without the names of function calls.
    """
    return path(imported_name(name), loop=True)


def _common(scope: str, other: str) -> int:
    """Return the number of leading names that two scopes have in common."""
    return sum(
        1
        for _ in itertools.takewhile(
            lambda pair: pair[0] == pair[1], zip(scope.split("/"), other.split("/"))
        )
    )


def _nodes(graph_def: Any) -> dict[tuple[str, str], Any]:
    """Return each node by its function (empty for the graph) and its name."""
    bodies = [("", graph_def.node)]
    bodies += [(body.signature.name, body.node_def) for body in graph_def.library.function]
    return {(name, node.name): node for name, nodes in bodies for node in nodes}


def _source(cast: Any) -> str:
    """Return the input tensor of a cast, as its name and number."""
    name, _, number = cast.input[0].partition(":")
    return "{}:{}".format(name, number or 0)


def _types(node: Any) -> list[tuple[str, int]]:
    """
    Return the dtypes in a node's attributes, except for the attributes of grappler, which begin
    with an underscore.
    """
    return sorted(
        (key, number)
        for key, value in node.attr.items()
        if not key.startswith("_")
        for number in (value.type, *value.list.type)
        if number
    )


def _has(node: Any, dtype_numbers: Iterable[int]) -> bool:
    return any(number in dtype_numbers for _, number in _types(node))


def _downstream(ops: Sequence[Any], tensors: Iterable[Any]) -> set[str]:
    """Return the names of the ops that depend on the values of tensors."""
    dependent = {tensor.op.name for tensor in tensors}
    names: set[str] = set()
    before = -1
    while before < len(names):  # repeat, because loops have cycles
        before = len(names)
        names.update(
            op.name
            for op in ops
            if op.type not in _SHAPES
            and any(tensor.op.name in dependent or tensor.op.name in names for tensor in op.inputs)
        )
    return names
