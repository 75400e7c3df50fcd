"""
The traced dtypes of layers and signatures: the layer of each op in a saved graph, and its dtype.

An op belongs to the layer whose name is in its scope. Scopes of a second call end in a number:
``dense_1/MatMul`` may be a call of ``dense``, and ``dense_1_2/MatMul`` a call of ``dense_1``. The
variables that are read in a scope determine the layer. In exports of Keras 3, all scopes have such
a number.

A layer may have several dtypes: under mixed_float16, a BatchNormalization correctly has casts to
float16 around float32 arithmetic. Therefore a layer has all float dtypes of its scope, and only its
matrix products, convolutions and RNN kernels are compared with its policy. Products of integers of
8 bits count too, because a layer that Keras 3 has quantized computes with them.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from msgspec.structs import replace

from policytool.formats.document import Observation, TracedOp
from policytool.model.model import LaterOps
from policytool.model.tree.site import with_sites_above
from policytool.releases import graph_ops, symbols
from policytool.releases.dtypes import is_float
from policytool.releases.releases import position
from policytool.support import steps
from policytool.support.grouping import group_pairs
from policytool.support.text.phrases import join_first

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from policytool.formats.document import Document, GraphOp, Signature, Trace
    from policytool.model.model import Layer
    from policytool.model.tree import Site
    from policytool.model.tree.storage import Placed

_CAST: Final = "Cast"
_NUMBER: Final = re.compile(r"_\d+$")

Scope: TypeAlias = tuple[str, ...]
Owner = TypeVar("Owner")


@dataclass
class Tally:
    """The dtypes and counts of ops; filled while counting."""

    dtypes: set[str] = field(default_factory=set)
    """The float dtypes of all ops, and those of products of integers."""

    computing: set[str] = field(default_factory=set)
    """The same of ops that compute."""

    listed: Counter[tuple[str, str]] = field(default_factory=Counter)
    """
    The number of ops of each type and dtype, without ops that only move values.
    """

    def add(self, op: GraphOp, count: int) -> None:
        """Count ops of the same type and dtypes."""
        self.dtypes.update(op.dtypes)
        if not graph_ops.moves_values(op.op):
            self.computing.update(op.dtypes)
            for dtype in op.dtypes:
                self.listed[op.op, dtype] += count

    def include(self, other: Tally) -> None:
        """Add the counts of another tally."""
        self.dtypes |= other.dtypes
        self.computing |= other.computing
        self.listed += other.listed

    def merge_entry_point(self, other: Tally) -> None:
        """Merge the counts of another entry point, whose layers are usually the same ones."""
        self.dtypes |= other.dtypes
        self.computing |= other.computing
        self.listed |= other.listed

    @property
    def ops(self) -> tuple[TracedOp, ...]:
        """
        The ops that are in a list of automatic mixed precision, grouped by list, and the products
        of integers.
        """
        traced_ops = [
            TracedOp(op=op, dtype=dtype, count=count, amp=_amp_list(op, dtype))
            for (op, dtype), count in self.listed.items()
        ]
        order = ("allow", "infer", "deny", "clear", None)
        return tuple(
            sorted(
                (op for op in traced_ops if op.amp or not is_float(op.dtype)),
                key=lambda op: (order.index(op.amp), op.op, op.dtype),
            )
        )

    @property
    def judged_dtypes(self) -> frozenset[str]:
        """The dtypes of matrix products, convolutions and RNN kernels."""
        return frozenset(
            dtype for op, dtype in self.listed if _amp_list(op, dtype) == graph_ops.ALLOW
        )


def _amp_list(op: str, dtype: str) -> str | None:
    """Return the list of automatic mixed precision that has an op; it has no list for integers."""
    return graph_ops.amp_list(op, dtype) if is_float(dtype) else None


def later_ops(document: Document) -> LaterOps | None:
    """
    Return the ops that the most releases lack. A release reads all functions of a SavedModel, so it
    also fails for an op that no signature calls (measured in TF 2.4, 2.5 and 2.9).
    """
    if document.format != "savedmodel":
        return None
    ops_by_release = group_pairs(
        (release, op)
        for op in sorted(document.ops)
        if (release := graph_ops.newest_without(op)) is not None
    )
    if not ops_by_release:
        return None
    newest = max(ops_by_release, key=position)
    return LaterOps(newest_without=newest, ops=tuple(ops_by_release[newest]))


def signatures(document: Document) -> tuple[Signature, ...]:
    """Return the signatures, each with its traced dtypes."""
    traces = {trace.entry: trace for trace in document.traces if trace.signature}
    traced_signatures = []
    for signature in document.signatures:
        ops = traces[signature.name].ops if signature.name in traces else ()
        tally = _tally(ops)
        used = {*signature.inputs.values(), *signature.outputs.values()}
        used.update(dtype for op, _ in ops if op.op != _CAST for dtype in op.dtypes)
        traced_signatures.append(
            replace(
                signature,
                compute_dtypes=tuple(sorted(tally.computing)),
                cast_dtypes=tuple(sorted(tally.dtypes - used)),
                calls_python=any(symbols.calls_python(op.op) for op, _ in ops),
                ops=tally.ops,
            )
        )
    return tuple(traced_signatures)


def matrix_ops(document: Document) -> Iterator[tuple[Trace, tuple[TracedOp, ...]]]:
    """
    Yield the matrix products, convolutions and RNN kernels of each entry point: of the signatures
    or, if there are none, of the functions of the root object.
    """
    for trace in document.traces:
        yield trace, tuple(op for op in _tally(trace.ops).ops if op.amp == graph_ops.ALLOW)


def layer_tallies(
    document: Document, placed: Placed
) -> tuple[Mapping[int, Tally], Mapping[int, Tally]]:
    """
    Return the tallies of layers by site index: first those of each layer including the layers below
    it, then those of each layer without the layers below it.
    """
    own_tallies: dict[int, Tally] = defaultdict(Tally)
    total: dict[int, Tally] = defaultdict(Tally)
    if not document.traces or not placed.sites:
        return total, own_tallies
    lines = {
        tensor.node: _ancestors(placed.sites, index)
        for index, tensors in placed.tensors.items()
        for tensor in tensors
        if tensor.node is not None
    }
    names = _Names(placed.sites)
    for trace in document.traces:
        known = _owners_of_scopes(trace, lines)
        index_by_scope: dict[Scope, int] = {}
        tallies: dict[int, Tally] = defaultdict(Tally)
        for op, count in trace.ops:
            if op.scope not in index_by_scope:
                index_by_scope[op.scope] = names.site(op.scope, known)
            tallies[index_by_scope[op.scope]].add(op, count)
        for index, tally in tallies.items():
            own_tallies[index].merge_entry_point(tally)
    for index, tally in own_tallies.items():
        for above in with_sites_above(placed.sites, index):
            total[above].include(tally)
    return total, own_tallies


def scope_tallies(
    document: Document, groups: Mapping[Scope, Sequence[int]], *, numbered: bool
) -> Mapping[Scope, Tally]:
    """
    Return the op tally of each scope in a graph without Keras metadata. The key of a scope is the
    group of variables that it reads, or otherwise its own name.

    :param groups: the variables of each group by the name of the group; the numbers are those of
        :attr:`policytool.formats.document.Tensor.node`.
    :param numbered: whether every scope contains the number of a call, which is then left out
        (Keras 3).
    """
    lines = {
        number: tuple(zip(group, _prefixes(group), strict=True))
        for group, numbers in groups.items()
        for number in numbers
    }
    tallies: dict[Scope, Tally] = {group: Tally() for group in groups}
    for trace in document.traces:
        known = {
            scope: group
            for scope, group in _owners_of_scopes(trace, lines).items()
            if group in groups
        }
        models = {scope[0] for scope in known if len(scope) > 1} if numbered else set()
        tallies_of_trace: dict[Scope, Tally] = defaultdict(Tally)
        for op, count in trace.ops:
            group = next(
                (
                    known[op.scope[:end]]
                    for end in range(len(op.scope), 0, -1)
                    if op.scope[:end] in known
                ),
                None,
            )
            if group is None:
                inner = op.scope[1:] if op.scope and op.scope[0] in models else op.scope
                group = tuple(_NUMBER.sub("", part) for part in inner) if numbered else inner
            tallies_of_trace[group].add(op, count)
        for group, tally in tallies_of_trace.items():
            if group in groups or tally.computing:  # a scope that only moves values is not a layer
                tallies.setdefault(group, Tally()).merge_entry_point(tally)
    return tallies


def disagreements(
    layers: Sequence[Layer], sites: Sequence[Site], own_tallies: Mapping[int, Tally]
) -> Iterator[Observation]:
    """Yield an observation for layers whose traced dtype differs from the declared dtype."""
    judged_layers = {
        index: tally.judged_dtypes
        for index, tally in own_tallies.items()
        if tally.judged_dtypes
        and not sites[index].is_model
        and layers[index].compute_dtype is not None
    }
    wrong = [
        index
        for index, dtypes in judged_layers.items()
        if layers[index].compute_dtype not in dtypes and layers[index].autocast is not False
    ]
    if not wrong:
        return
    by_declared = group_pairs(
        ((layers[index].policy or "", ", ".join(sorted(judged_layers[index]))), layers[index].path)
        for index in sorted(wrong)
    )
    for (policy, dtypes), paths in by_declared.items():
        sentence = (
            f"declares {policy} but computes"
            if len(paths) == 1
            else f"declare {policy} but compute"
        )
        message = (
            f"{len(paths)} of {len(judged_layers)} layers with matrix products {sentence} in "
            f"{dtypes} in the saved graph ({join_first(paths)}); signatures run this graph "
            "regardless of the metadata"
        )
        yield Observation(
            code="traced-dtype-differs",
            message=message,
            where=paths[0] if len(paths) == 1 else None,
        )


def _tally(ops: Iterable[tuple[GraphOp, int]]) -> Tally:
    tally = Tally()
    for op, count in ops:
        tally.add(op, count)
    return tally


def _prefixes(names: Scope) -> Iterator[Scope]:
    return (names[:end] for end in range(1, len(names) + 1))


def _ancestors(sites: Sequence[Site], index: int) -> tuple[tuple[str, int], ...]:
    """Return the names from the model down to a layer, each with the index of its site."""
    above = [*with_sites_above(sites, index)]
    return tuple((sites[site].name, site) for site in reversed(above))


def _owners_of_scopes(
    trace: Trace, lines: Mapping[int, Sequence[tuple[str, Owner]]]
) -> dict[Scope, Owner]:
    """
    Return the owner of each scope that reads variables: the layer that owns the variables, or a
    layer above it.
    """
    known: dict[Scope, Owner] = {}
    for scope, numbers in trace.reads.items():
        for number in numbers:
            start = 0
            for name, owner in lines.get(number, ()):
                parts = name.split("/")
                ends = range(start + len(parts), len(scope) + 1)
                end = next(
                    (end for end in ends if _is_call(scope[end - len(parts) : end], parts)), None
                )
                if end is not None:
                    known.setdefault(scope[:end], owner)
                    start = end
    return known


def _is_call(scope: Sequence[str], name: Sequence[str]) -> bool:
    """
    Return whether a scope belongs to a call of the layer: the name, or the name with a number.
    """
    without_number = (*scope[:-1], _NUMBER.sub("", scope[-1]))
    return tuple(name) in {tuple(scope), without_number}


class _Names:
    """Finds layers by the names in a scope."""

    def __init__(self, sites: Sequence[Site]) -> None:
        self._parents = [site.parent for site in sites]
        self._longest = 1 + max(site.name.count("/") for site in sites)
        children: dict[int | None, dict[str, int]] = defaultdict(dict)
        self._first = {
            index
            for index, site in enumerate(sites)
            if children[site.parent].setdefault(site.name, index) == index
        }
        depths: list[int] = []
        for site in sites:  # a parent comes before its children
            depths.append(0 if site.parent is None else depths[site.parent] + 1)
        steps.spend(sum(depths), walk="layers above layers")
        self._below: dict[tuple[int, str], int] = {}
        """
        By ancestor and name: the first layer of this name below the ancestor, nearest first, if
        each layer between them is also the first of its name below its parent.
        """
        for index in sorted(range(len(sites)), key=depths.__getitem__):
            name, above = sites[index].name, index
            while above in self._first and (parent := self._parents[above]) is not None:
                above = parent
                self._below.setdefault((above, name), index)

    def site(self, scope: Scope, known: Mapping[Scope, int]) -> int:
        """
        Return the deepest layer in a scope, starting at the longest known prefix of the scope; the
        root if the scope contains no layer name.
        """
        start = next((end for end in range(len(scope), 0, -1) if scope[:end] in known), 0)
        index = known[scope[:start]] if start else 0
        while start < len(scope):
            for end in range(min(len(scope), start + self._longest), start, -1):
                name = "/".join(scope[start:end])
                child = self._below.get((index, name))
                if child is None:
                    child = self._below.get((index, _NUMBER.sub("", name)))
                if child is not None:
                    index, start = child, end
                    break
            else:
                start += 1
        return index
