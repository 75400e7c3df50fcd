"""
What of a saved graph is looked at: of each scope the tensor that leaves it, and what the rewrite changed.

A scope is the name of an op without its last part, as if every function were written out where it is called: the names of the calls themselves are left out.
Within loops and branches (of TF 1, which grappler also makes of those of TF 2) tensors exist more than once or not at all; they are seen through what leaves.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .rewriting import SUFFIX

if TYPE_CHECKING:
    from typing import Any, Iterable, Mapping, Sequence

FLOAT = 1
"""Of ``types.proto``."""

NARROW = {14: "bfloat16", 19: "float16"}

MOVES = frozenset(("Cast", "Const", "Identity", "IdentityN", "NoOp", "Placeholder", "PlaceholderWithDefault", "PreventGradient", "ReadVariableOp", "StopGradient"))
"""Ops that pass on what others made."""

_CALL = re.compile(r"^(Stateful|Remote)?PartitionedCall(_\d+)?$")
_INLINED = "Func"
"""The scope that grappler gives to what it puts around a function that it wrote out."""


def path(name: str) -> str:
    """Return the scope of an op by its name; nothing for the ops of an entry point itself, and for what grappler put around functions."""
    parts = name.split("/")
    if parts[0] == _INLINED:
        return ""
    return "/".join(part for part in parts[:-1] if not _CALL.match(part))


class Changes:
    """What a rewrite did to a graph."""

    def __init__(self, before: Any, after: Any, *, emulated: bool) -> None:
        old = {node.name: node for node in before.node}
        made = [node for node in after.node if node.name not in old]
        casts = [node for node in made if node.op == "Cast" and node.name.endswith(SUFFIX) and node.attr["DstT"].type in NARROW]
        self.total = sum(1 for node in before.node if node.op not in MOVES and _has(node, (FLOAT,)))
        self.narrow_before = sum(1 for node in before.node if node.op not in MOVES and _has(node, NARROW))
        self.casts = len(made)
        self.rounded = {_source(node): node.name for node in casts} if emulated else {}
        """Emulated alone: tensor (``name:0``) to the cast that rounds it."""

        if emulated:
            names = {tensor.partition(":")[0] for tensor in self.rounded}
        else:
            names = {node.name for node in after.node if node.name in old and _types(node) != _types(old[node.name])}
        self.names = frozenset(name for name in names if name in old and old[name].op not in MOVES)
        self.by_type: dict[str, int] = {}
        for name in sorted(self.names):
            self.by_type[old[name].op] = self.by_type.get(old[name].op, 0) + 1

    def told(self) -> dict[str, Any]:
        """Return them as JSON."""
        return {
            "ops": len(self.names),
            "total": self.total,
            "casts": self.casts,
            "by_type": dict(sorted(self.by_type.items())),
            "narrow_before": self.narrow_before,
        }


def watched(ops: Sequence[Any], given: Iterable[Any], changed: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """
    Return, for each scope in the order of the graph, the op whose first output stands for it.

    It is the last op in the scope with a float output that depends on what the signature is given, and that another scope uses or the rewrite changed.

    :param ops: those of the plain graph, each after its inputs.
    :param given: the tensors that the signature takes.
    :param changed: full names of ops that the rewrite changed.
    """
    known = {id(op) for op in ops}
    fed = _downstream(ops, given)
    inner = _within(ops)
    found: dict[str, Any] = {}
    for op in ops:
        scope = path(_own(op.name))
        if not scope or op.type in MOVES or op.name not in fed or inner.get(op.name) or not op.outputs or not op.outputs[0].dtype.is_floating:
            continue
        users = [user for user in op.outputs[0].consumers() if id(user) in known]
        if op.name in changed or any(path(_own(user.name)) != scope for user in users):
            found.pop(scope, None)
            found[scope] = op
    return list(found.items())


def _own(name: str) -> str:
    """Return an op's name in the graph that was imported."""
    return name.partition("/")[2]


def _source(cast: Any) -> str:
    """Return the tensor that a cast takes, with its number."""
    name, _, number = cast.input[0].partition(":")
    return "{}:{}".format(name, number or 0)


def _types(node: Any) -> list[tuple[str, int]]:
    """Return the dtypes that a node's attributes name; those that begin with an underscore are notes of grappler's."""
    return sorted((key, number) for key, value in node.attr.items() if not key.startswith("_") for number in (value.type, *value.list.type) if number)


def _has(node: Any, wanted: Iterable[int]) -> bool:
    return any(number in wanted for _, number in _types(node))


def _downstream(ops: Sequence[Any], given: Iterable[Any]) -> set[str]:
    """Return the names of the ops that depend on tensors."""
    sources = {id(tensor.op) for tensor in given}
    found = set()
    reached = set(sources)
    for op in ops:
        if any(id(tensor.op) in reached for tensor in op.inputs):
            reached.add(id(op))
            found.add(op.name)
    return found


def _within(ops: Sequence[Any]) -> dict[str, bool]:
    """Return which ops run within a loop or a branch of TF 1."""
    loops: dict[str, int] = {}
    branches: dict[str, int] = {}
    for op in ops:
        sources = [source.name for source in [*(tensor.op for tensor in op.inputs), *op.control_inputs]]
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
