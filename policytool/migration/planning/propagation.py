"""
Which float dtypes flow along the edges of a model's graph once its layers have new policies, and
what has to change for them to meet.

Keras 2 wraps TensorFlow ops as layers that cast nothing: one that gets a float16 and a float32
tensor fails (``AddV2 ... does not match``). There the float32 island is widened to the layers that
feed it, or the plan refused.

Dtypes that stand in the operations themselves follow the layers around them: an op layer of TF 1.15
to 2.3 has its dtype in its ``node_def``; the casts that Keras 3.5 to 3.9 record have theirs in
their config.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from policytool.formats.document import Address
from policytool.formats.edits import Edit, EditKind
from policytool.migration.plan import Refusal
from policytool.migration.planning.decisions import FLOAT32, Decision, Decisions
from policytool.migration.planning.keep import makers
from policytool.migration.result_dtypes import (
    ENUMS,
    CalledClass,
    begins_with_constant,
    has_kernels_for,
    is_wide,
    node_def_type,
    parents_of_one_dtype,
    result_dtype,
    result_dtypes,
)
from policytool.model import custom_classes
from policytool.model.calls import Call, Constant, Reference
from policytool.model.flow import follow, merged_graph
from policytool.model.loaded_model import once_per_model
from policytool.releases import dtypes
from policytool.releases.layer_classes import layer_facts
from policytool.releases.policy import Policy
from policytool.support import steps
from policytool.support.text import jsontext

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from policytool.model.calls import Argument
    from policytool.model.flow import Node, TensorValues
    from policytool.model.layer_graph import Graph, GraphNode
    from policytool.model.loaded_model import LoadedModel
    from policytool.support.text.jsontext import Json


_INPUT_TYPES: Final = ("T", "SrcT")
"""
The attributes of a ``node_def`` that name the dtype of its inputs; ``DstT`` of a Cast is its own.
"""


def node_def_edits(
    loaded: LoadedModel,
    node: GraphNode,
    old: frozenset[str],
    new: frozenset[str],
    decisions: Decisions,
) -> Iterator[Edit]:
    """Yield the edits that give an op of TF 1.15 to 2.3 the dtype its inputs have now."""
    config = node.config
    if len(old) != 1 or len(new) != 1 or old == new:
        return
    (was,), (will,) = old, new
    for name in _INPUT_TYPES:
        if node_def_type(config, name) == ENUMS.get(was):
            if config.get("constants") and not _are_whole(config["constants"]):
                path = loaded.layers[node.site].path if node.site is not None else node.name
                decisions.refusals.append(
                    Refusal(
                        code="op-constants",
                        message=(
                            f"{path} has constants of dtype {was}, but its inputs would become "
                            f"{will}; keep the preceding layers in {was} with --set"
                        ),
                        path=path,
                    )
                )
                return
            for address in _configs(loaded, node):
                yield Edit(
                    kind=EditKind.NUMERICS,
                    address=Address(
                        part=address.part, pointer=f"{address.pointer}/node_def/attr/{name}/type"
                    ),
                    path=loaded.layers[node.site].path if node.site is not None else None,
                    before=ENUMS[was],
                    after=ENUMS[will],
                    reason=f"the op was stored with {was} inputs, but its inputs are now {will}",
                )


def _configs(loaded: LoadedModel, node: GraphNode) -> list[Address]:
    """Return every address of the config of an op layer."""
    if node.site is None:
        return [Address(part=loaded.document.config_part or "", pointer=f"{node.pointer}/config")]
    ending = "/config/dtype"
    places = [
        address for address in loaded.addresses[node.site] if address.pointer.endswith(ending)
    ]
    return [
        Address(part=address.part, pointer=address.pointer.removesuffix("/dtype"))
        for address in places
    ]


def _are_whole(constants: Json) -> bool:
    """
    Return whether constants are whole numbers alone: axes and indices, whose dtype does not follow
    the op's.
    """
    return not any(isinstance(value, float) for value in jsontext.leaves(constants))


def cast_edits(
    loaded: LoadedModel, graph: Graph, node: GraphNode, decisions: Decisions
) -> Iterator[Edit]:
    """
    Yield the edit that lets a recorded cast follow the layers it casts for; a cast that someone
    wrote feeds other dtypes and stays.
    """
    consumers = [graph.nodes[name].site for name in graph.children().get(node.name, ())]
    written = node.config.get("dtype")
    sites = [site for site in consumers if site is not None and site not in loaded.graphs]
    if (
        not sites
        or len(sites) != len(consumers)
        or any(loaded.layers[site].compute_dtype != written for site in sites)
    ):
        return
    computed = {
        dtype for site in sites if (dtype := decisions.compute_dtype(loaded, site)) is not None
    }
    will = max(sorted(computed), key=dtypes.itemsize) if computed else written
    if isinstance(written, str) and will is not None and will != written:
        yield Edit(
            kind=EditKind.NUMERICS,
            address=Address(
                part=loaded.document.config_part or "", pointer=f"{node.pointer}/config/dtype"
            ),
            path=None,
            before=written,
            after=will,
            reason=f"the cast {node.name} uses the dtype of the layers that follow it",
        )


_CONSTANT: Final = "float32"
"""What Keras 2 makes of a constant that is an op's first argument, and the dtype of an island."""

_Conflict = tuple["GraphNode", frozenset[str], list[str]]

_FLOATS: Final = frozenset(dtypes.FLOATS)

Flow = dict[str, frozenset[str]]
"""Node name to the dtypes of the tensors it makes, as far as they are known."""


@dataclass(frozen=True)
class _Dtypes:
    """What the tensors of a model have under some decisions."""

    loaded: LoadedModel
    decisions: Decisions
    flows: dict[int, Flow | None] = field(default_factory=dict)
    """By a model's site, what its graph makes; None while it is followed."""

    def flow(self, model: int) -> Flow:
        """Return the output dtypes of every node in a model's graph, which is followed once."""
        model_flow = self.flows.get(model)
        if model_flow is None:
            self.flows[model] = None
            nodes = self.loaded.graphs[model].nodes

            def transfer(
                place: Node, _call: Call | None, values: TensorValues[frozenset[str]]
            ) -> Sequence[frozenset[str]]:
                output_dtypes = self.output_dtypes(
                    nodes[place[0]], lambda name: values.of(Reference(layer=name)) or frozenset()
                )
                return (output_dtypes,)

            calls = merged_graph({node.name: node.parents for node in nodes.values()})
            values = follow(calls, transfer, walk="dtypes")
            model_flow = {name: values.of(Reference(layer=name)) or frozenset() for name in nodes}
            self.flows[model] = model_flow
        return model_flow

    def output_dtypes(
        self, node: GraphNode, made_by: Callable[[str], frozenset[str]]
    ) -> frozenset[str]:
        """Return the output dtypes of a node, given those of the other nodes."""

        def dtype_of(argument: Argument) -> str | None:
            if isinstance(argument, Reference):
                layer_dtypes = made_by(argument.layer)
                return next(iter(layer_dtypes)) if len(layer_dtypes) == 1 else None
            return argument.dtype if isinstance(argument, Constant) else None

        if node.site is None or layer_facts(self.loaded.sites[node.site].class_name).is_op_layer:
            known = result_dtype(node, dtype_of)
            if known is not None:
                return known
            taken = frozenset[str]().union(*map(made_by, node.parents)) & _FLOATS
            return (
                frozenset({_widest(taken)}) if node.site is None and len(taken) > 1 else taken
            )  # Keras 3 promotes
        # a file may say of a model that it is a layer of its own
        if node.site in self.loaded.graphs and self.flows.get(node.site, {}) is not None:
            inner = self.flow(node.site)
            outputs = self.loaded.graphs[node.site].outputs
            return frozenset[str]().union(*(inner.get(name, frozenset()) for name in outputs))
        first = Call(args=tuple(Reference(layer=name) for name in node.parents[:1]))
        possible_dtypes = result_dtypes(self._called_class(node.site), first, dtype_of)
        return frozenset(dtype for dtype in possible_dtypes if dtype is not None)

    def _called_class(self, site: int) -> CalledClass:
        """Return a layer with the policy that it is to have."""
        decision = self.decisions.by_site.get(site)
        policy = decision.policy.name if decision else self.loaded.layers[site].policy
        return CalledClass(
            class_name=self.loaded.sites[site].class_name,
            config=self.loaded.config(site),
            custom=custom_classes.is_opaque(self.loaded.sites[site]),
            compute_dtype=self.decisions.compute_dtype(self.loaded, site),
            variable_dtype=self.decisions.variable_dtype(self.loaded, site),
            policy=policy,
            measured_in=self.loaded.loader,
        )


@once_per_model
def _flows_before(loaded: LoadedModel) -> Mapping[int, Flow]:
    """Return what every node makes in the file as it is, by the site of its model."""
    dtypes_of = _Dtypes(loaded, Decisions())
    return {model: dtypes_of.flow(model) for model in loaded.graphs}


def settle_conflicts(loaded: LoadedModel, decisions: Decisions) -> tuple[Edit, ...]:
    """
    Widen float32 islands until no op layer meets two float dtypes that it did not meet before;
    return the edits that ops and casts need.

    What cannot be settled becomes a refusal that names the op and the two layers.
    """
    after = _Dtypes(loaded, decisions)
    for graph in loaded.graphs.values():
        while _widen_conflicts(after, graph):
            after = _Dtypes(loaded, decisions)
    edits: list[Edit] = []
    for graph in loaded.graphs.values():
        old, new = _flows_before(loaded)[graph.model], after.flow(graph.model)
        decisions.refusals += [
            _refusal(loaded, graph, *conflict) for conflict in _conflicts(loaded, graph, old, new)
        ]
        for node in graph.nodes.values():
            if layer_facts(node.class_name).wrapped_op == "node_def":
                edits += node_def_edits(
                    loaded, node, _input_dtypes(node, old), _input_dtypes(node, new), decisions
                )
            elif loaded.is_keras3 and node.site is None and node.class_name == "Cast":
                edits += cast_edits(loaded, graph, node, decisions)
    return tuple(edits)


def input_dtypes(loaded: LoadedModel, decisions: Decisions) -> Mapping[int, frozenset[str]]:
    """
    Return, for each layer in a graph, the float dtypes of its input tensors under the given
    decisions.
    """
    dtypes_of = _Dtypes(loaded, decisions)
    return {
        node.site: _input_dtypes(node, dtypes_of.flow(graph.model))
        for graph in loaded.graphs.values()
        for node in graph.nodes.values()
        if node.site is not None
    }


def _input_dtypes(node: GraphNode, flow: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """Return the float dtypes that a node gets."""
    return frozenset[str]().union(*(flow.get(name, frozenset()) for name in node.parents)) & _FLOATS


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
        return parents_of_one_dtype(node, is_operation=loaded.is_keras3 and node.site is None)
    if layer_facts(loaded.sites[node.site].class_name).is_op_layer:
        return node.parents, begins_with_constant(node)
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
        *(flow.get(name, frozenset()) & _FLOATS for name in names)
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
    Yield each node that newly receives two dtypes, with these dtypes and the layers that compute
    the narrower ones.
    """
    changed = {name for name, node_dtypes in new.items() if node_dtypes != old[name]}
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
        and not has_kernels_for(node, met)
    ):
        narrow = [
            name
            for name in _joined_parents(loaded, node)[0]
            if new.get(name, frozenset()) & met - {_widest(met)}
        ]
        names = [name for parent in narrow for name in makers(loaded, graph, (parent,))]
        yield node, met, names


def _widen_conflicts(after: _Dtypes, graph: Graph) -> bool:
    """
    Widen what feeds float32 islands; return whether something changed, so that the flow is to be
    followed again.

    A layer that is widened and casts nothing is an island itself: what feeds it is widened in the
    same round, since a chain of such layers would need a round for each.
    """
    loaded, decisions = after.loaded, after.decisions
    old, new = _flows_before(loaded)[graph.model], dict(after.flow(graph.model))
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
                new[name] = after.output_dtypes(
                    producer, lambda source: new.get(source, frozenset())
                )
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
    elif is_wide(op):
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
    return Refusal(
        code="mixed-inputs",
        message=(
            f"{path} does not cast its inputs, which would be {' and '.join(sorted(met))}; set the "
            f"policies of the preceding layers, for example with --set '{suggested}=float32'"
        ),
        path=path,
    )
