"""
Which float dtypes flow along the edges of a model's graph once its layers have new policies, and
what has to change for them to meet.

Keras 2 wraps TensorFlow ops as layers that cast nothing: one that gets a float16 and a float32
tensor fails (``AddV2 ... does not match``). There the float32 island is widened to the layers that
feed it, or the plan refused.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from policytool.migration.plan import Refusal
from policytool.migration.planning import operation_edits, operations
from policytool.migration.planning.decisions import FLOAT32, Decision, Decisions
from policytool.migration.planning.keep.outputs import makers
from policytool.model import custom_classes
from policytool.model.model_cache import once_per_model
from policytool.releases import dtype_support, dtypes
from policytool.releases.layer_classes import layer_facts
from policytool.releases.policy import Policy
from policytool.support import steps

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from policytool.formats.edits import Edit
    from policytool.model.layer_graph import Graph, GraphNode
    from policytool.model.loaded_model import LoadedModel

_CONSTANT: Final = "float32"
"""What Keras 2 makes of a constant that is an op's first argument, and the dtype of an island."""

_Conflict = tuple["GraphNode", frozenset[str], list[str]]

Flow = dict[str, frozenset[str]]
"""Node name to the float dtypes of the tensors it makes; none for what makes no floats."""


@dataclass(frozen=True)
class _Dtypes:
    """What the layers of a model compute in under some decisions."""

    loaded: LoadedModel
    decisions: Decisions

    def flow(self, graph: Graph, within: frozenset[int] = frozenset()) -> Flow:
        """
        Return the dtypes that every node of a graph makes, following it from its inputs; ``within``
        are the models that it was come to through.

        Only what is decided, and what that reaches, differs from the file as it is.
        """
        before = _flow_before(self.loaded, graph.model, within) if self.decisions.by_site else {}
        found: Flow = {}
        steps.spend(sum(1 + len(node.parents) for node in graph.nodes_in_order), walk="dtypes")
        for node in graph.nodes_in_order:
            known = before.get(node.name)
            if (
                known is None
                or node.site in self.decisions.by_site
                or node.site in self.loaded.graphs
                or any(found.get(parent) != before[parent] for parent in node.parents)
            ):
                known = self.output_dtypes(node, found, within | {graph.model})
            found[node.name] = known
        return found

    def output_dtypes(self, node: GraphNode, found: Flow, within: frozenset[int]) -> frozenset[str]:
        """Return the dtypes that a node makes of those that its parents make."""
        taken = frozenset[str]().union(*(found.get(parent, frozenset()) for parent in node.parents))
        if node.site is None or layer_facts(self.loaded.sites[node.site].class_name).is_op_layer:
            cast_to = operations.cast_target(node)
            if cast_to is not None:
                return frozenset({cast_to}) & frozenset(dtypes.FLOATS)
            return (
                frozenset({_widest(taken)}) if node.site is None and len(taken) > 1 else taken
            )  # Keras 3 promotes
        if (
            node.site in self.loaded.graphs and node.site not in within
        ):  # a file may say of a model that it is a layer of its own
            inner = self.loaded.graphs[node.site]
            flow = self.flow(inner, within)
            return frozenset[str]().union(*(flow.get(name, frozenset()) for name in inner.outputs))
        compute = self._output(node.site) or self.decisions.compute_dtype(self.loaded, node.site)
        return (
            frozenset({compute})
            if compute is not None and dtypes.is_float(compute)
            else frozenset()
        )

    def _output(self, site: int) -> str | None:
        """
        Return what a layer gives that does not give its compute dtype: UpSampling2D of Keras 2
        interpolates in float32.
        """
        decision = self.decisions.by_site.get(site)
        name = decision.policy.name if decision else self.loaded.layers[site].policy
        argument = self.loaded.config(site).get("interpolation")
        class_name = self.loaded.sites[site].class_name
        return dtype_support.output_dtype(
            self.loaded.loader,
            class_name,
            argument if isinstance(argument, str) else None,
            name or "",
        )


@once_per_model
def _flow_before(loaded: LoadedModel, model: int, within: frozenset[int]) -> Flow:
    """Return what every node of a model's graph makes in the file as it is."""
    return _Dtypes(loaded, Decisions()).flow(loaded.graphs[model], within)


def settle(loaded: LoadedModel, decisions: Decisions) -> tuple[Edit, ...]:
    """
    Widen float32 islands until no op layer meets two float dtypes that it did not meet before;
    return the edits that ops and casts need.

    What cannot be settled becomes a refusal that names the op and the two layers.
    """
    after = _Dtypes(loaded, decisions)
    for graph in loaded.graphs.values():
        old = _flow_before(loaded, graph.model, frozenset())
        while _widen_conflicts(after, graph, old, after.flow(graph)):
            pass
    edits: list[Edit] = []
    for graph in loaded.graphs.values():
        old, new = _flow_before(loaded, graph.model, frozenset()), after.flow(graph)
        decisions.refusals += [
            _refusal(loaded, graph, *conflict) for conflict in _conflicts(loaded, graph, old, new)
        ]
        for node in graph.nodes.values():
            if layer_facts(node.class_name).wrapped_op == "node_def":
                edits += operation_edits.node_def_edits(
                    loaded, node, _input_dtypes(node, old), _input_dtypes(node, new), decisions
                )
            elif loaded.is_keras3 and node.site is None and node.class_name == "Cast":
                edits += operation_edits.cast_edits(loaded, graph, node, decisions)
    return tuple(edits)


def inputs(loaded: LoadedModel, decisions: Decisions) -> Mapping[int, frozenset[str]]:
    """
    Return, for each layer in a graph, the float dtypes of the tensors that it gets under some
    decisions.
    """
    found: dict[int, frozenset[str]] = {}
    dtypes_of = _Dtypes(loaded, decisions)
    for graph in loaded.graphs.values():
        flow = dtypes_of.flow(graph)
        found |= {
            node.site: _input_dtypes(node, flow)
            for node in graph.nodes.values()
            if node.site is not None
        }
    return found


def _input_dtypes(node: GraphNode, flow: Mapping[str, frozenset[str]]) -> frozenset[str]:
    return frozenset[str]().union(*(flow.get(parent, frozenset()) for parent in node.parents))


def _joined_parents(loaded: LoadedModel, node: GraphNode) -> tuple[tuple[str, ...], bool]:
    """
    Return the nodes whose dtypes have to be one where something casts nothing, and whether a
    float32 constant is among them.

    A wrapped op joins its inputs, with float32 where a constant is its first argument (``2.0 -
    x``). A class of someone else's that was built with autocast=False, and a recurrent layer that
    is given its states, join them with variables of their own dtype. Keras 3's layers cast all they
    take, and its operations promote, but for a few.
    """
    if loaded.is_keras3 or node.site is None:
        return operations.parents_of_one_dtype(
            node, is_operation=loaded.is_keras3 and node.site is None
        )
    if layer_facts(loaded.sites[node.site].class_name).is_op_layer:
        return node.parents, operations.begins_with_constant(node)
    if _is_strict(loaded, node):
        return (*node.parents, node.name), False
    if layer_facts(loaded.sites[node.site].class_name).takes_states and len(node.parents) > 1:
        return (*node.parents[1:], node.name), False
    return (), False


def _meeting_dtypes(
    loaded: LoadedModel, node: GraphNode, flow: Mapping[str, frozenset[str]]
) -> frozenset[str]:
    """Return the float dtypes that meet in a layer that casts nothing."""
    names, constant = _joined_parents(loaded, node)
    return frozenset({_CONSTANT} if constant else ()).union(
        *(flow.get(name, frozenset()) for name in names)
    )


def _is_strict(loaded: LoadedModel, node: GraphNode) -> bool:
    """
    Return whether a layer multiplies its inputs with variables of its own dtype and does not cast
    them; Keras' own such layers cast by themselves.
    """
    return (
        node.site is not None
        and loaded.config(node.site).get("autocast") is False
        and custom_classes.is_opaque(loaded.sites[node.site])
    )


def _conflicts(loaded: LoadedModel, graph: Graph, old: Flow, new: Flow) -> Iterator[_Conflict]:
    """
    Yield each node that meets two dtypes it did not meet before, those dtypes, and the layers that
    make the narrower ones.
    """
    changed = {name for name, made in new.items() if made != old[name]}
    for node in graph.nodes.values():
        if not changed.isdisjoint((node.name, *node.parents)):
            yield from _conflicts_at(loaded, graph, node, old, new)


def _conflicts_at(
    loaded: LoadedModel, graph: Graph, node: GraphNode, old: Flow, new: Flow
) -> Iterator[_Conflict]:
    """Yield the same of one node."""
    met = _meeting_dtypes(loaded, node, new)
    if (
        len(met) > 1
        and met != _meeting_dtypes(loaded, node, old)
        and not operations.takes(node, met)
    ):
        narrow = [
            name
            for name in _joined_parents(loaded, node)[0]
            if new.get(name, frozenset()) - {_widest(met)}
        ]
        names = [name for parent in narrow for name in makers(loaded, graph, (parent,))]
        yield node, met, names


def _widen_conflicts(after: _Dtypes, graph: Graph, old: Flow, new: Flow) -> bool:
    """
    Widen what feeds float32 islands; return whether something changed, so that the flow is to be
    followed again.

    A layer that is widened and casts nothing is an island itself: what feeds it is widened in the
    same round, since a chain of such layers would need a round for each.
    """
    loaded, decisions = after.loaded, after.decisions
    before = dict(decisions.by_site)
    pending = deque(_conflicts(loaded, graph, old, new))
    while pending:
        node, met, producers = pending.popleft()
        if _widest(met) != _CONSTANT:
            continue
        for name in producers:
            producer = graph.nodes[name]
            known = decisions.by_site.get(producer.site) if producer.site is not None else None
            _widen(loaded, producer, node, decisions)
            if producer.site is not None and decisions.by_site.get(producer.site) is not known:
                new[name] = after.output_dtypes(producer, new, frozenset({graph.model}))
                steps.spend(1 + len(producer.parents), walk="dtypes")
                pending += _conflicts_at(loaded, graph, producer, old, new)
    return decisions.by_site != before


def _widest(met: frozenset[str]) -> str:
    largest = max(met, key=dtypes.itemsize)
    return "float32" if dtypes.itemsize(largest) < dtypes.itemsize("float32") else largest


def _widen(loaded: LoadedModel, producer: GraphNode, op: GraphNode, decisions: Decisions) -> None:
    """Keep the layers that make a tensor in float32, as far as the plan was to change them."""
    if producer.site is None:
        return
    if producer.site in loaded.graphs:
        inner = loaded.graphs[producer.site]
        for name in makers(loaded, inner, inner.outputs):
            _widen(loaded, inner.nodes[name], op, decisions)
        return
    decision = decisions.by_site.get(producer.site)
    quantised = (
        decision is not None
        and isinstance(decision.policy, Policy)
        and decision.policy.quantization is not None
    )  # cannot become plain float32
    if (
        decision is None
        or decision.by_user
        or decision.kept
        or quantised
        or loaded.is_input(producer.site)
    ):
        return
    reason = f"{op.name} does not cast its inputs and would combine its output with float32 tensors"
    if producer is op:
        reason = "it does not cast its inputs, which are float32"
    elif operations.is_wide(op):
        reason = f"its output goes to the operation {op.name}, which has no 16-bit kernel"
    for index in loaded.below(producer.site):
        if index in decisions.by_site:
            decisions.by_site[index] = Decision(policy=FLOAT32, reason=reason, kept=True)


def _refusal(
    loaded: LoadedModel, graph: Graph, node: GraphNode, met: frozenset[str], names: list[str]
) -> Refusal:
    path = loaded.layers[node.site].path if node.site is not None else node.name
    paths = [
        loaded.layers[site].path
        for name in dict.fromkeys(names)
        if (site := graph.nodes[name].site) is not None
    ]
    own = node.site is not None and not layer_facts(loaded.sites[node.site].class_name).is_op_layer
    suggested = path if own else next(iter(paths), path)
    message = (
        f"{path} does not cast its inputs, which would be {' and '.join(sorted(met))}; set the "
        f"policies of the preceding layers, for example with --set '{suggested}=float32'"
    )
    return Refusal(code="mixed-inputs", message=message, path=path)
