"""
The float dtypes of tensors in a model's graph after its layers get new policies, and the changes
that keep these dtypes consistent.

Keras 2 wraps TensorFlow ops as layers that do not cast: an op with a float16 and a float32 input
fails (``AddV2 ... does not match``). In this case, the layers before the float32 layers are kept in
float32 too, or the plan is refused.

Dtypes that operations store change with the layers around them: an op layer of TF 1.15 to 2.3
stores its dtype in ``node_def``; the casts that Keras 3.5 to 3.9 record store it in their config.
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
The attributes of a ``node_def`` with the dtype of its inputs; ``DstT`` of a Cast is its result's.
"""


def node_def_edits(
    loaded: LoadedModel,
    node: GraphNode,
    old: frozenset[str],
    new: frozenset[str],
    decisions: Decisions,
) -> Iterator[Edit]:
    """Yield the edits that set the new dtype of its inputs in an op of TF 1.15 to 2.3."""
    config = node.config
    if len(old) != 1 or len(new) != 1 or old == new:
        return
    (old_dtype,), (new_dtype,) = old, new
    for name in _INPUT_TYPES:
        if node_def_type(config, name) == ENUMS.get(old_dtype):
            if config.get("constants") and not _are_integers(config["constants"]):
                path = loaded.layers[node.site].path if node.site is not None else node.name
                decisions.refusals.append(
                    Refusal(
                        code="op-constants",
                        message=(
                            f"{path} has constants of dtype {old_dtype}, but its inputs would "
                            f"become {new_dtype}; keep the preceding layers in {old_dtype} with "
                            "--set"
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
                    before=ENUMS[old_dtype],
                    after=ENUMS[new_dtype],
                    reason=f"the op was stored with {old_dtype} inputs, but its inputs are now "
                    f"{new_dtype}",
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


def _are_integers(constants: Json) -> bool:
    """
    Return whether all constants are integers: axes and indices, whose dtype does not change with
    the op's.
    """
    return not any(isinstance(value, float) for value in jsontext.leaves(constants))


def cast_edits(
    loaded: LoadedModel, graph: Graph, node: GraphNode, decisions: Decisions
) -> Iterator[Edit]:
    """
    Yield the edit of a recorded cast to the new dtype of the layers after it. A cast to another
    dtype than theirs was written by the user and is kept.
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
    new_dtype = max(sorted(computed), key=dtypes.itemsize) if computed else written
    if isinstance(written, str) and new_dtype is not None and new_dtype != written:
        yield Edit(
            kind=EditKind.NUMERICS,
            address=Address(
                part=loaded.document.config_part or "", pointer=f"{node.pointer}/config/dtype"
            ),
            path=None,
            before=written,
            after=new_dtype,
            reason=f"the cast {node.name} uses the dtype of the layers that follow it",
        )


_CONSTANT: Final = "float32"
"""
The dtype of layers that are kept, and of the tensor that Keras 2 creates for a constant that is an
op's first argument.
"""

_Conflict = tuple["GraphNode", frozenset[str], list[str]]

_FLOATS: Final = frozenset(dtypes.FLOATS)

Flow = dict[str, frozenset[str]]
"""The known dtypes of each node's output tensors, by the name of the node."""


@dataclass(frozen=True)
class _Dtypes:
    """The dtypes of the tensors of a model under some decisions."""

    loaded: LoadedModel
    decisions: Decisions
    flows: dict[int, Flow | None] = field(default_factory=dict)
    """The dtypes in the graph of each model, by its site; None while the graph is followed."""

    def flow(self, model: int) -> Flow:
        """Return the output dtypes of each node in a model's graph; computed once per model."""
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
            input_dtypes_of_node = frozenset[str]().union(*map(made_by, node.parents)) & _FLOATS
            return (
                frozenset({_widest(input_dtypes_of_node)})
                if node.site is None and len(input_dtypes_of_node) > 1
                else input_dtypes_of_node
            )  # Keras 3 promotes
        # in a damaged file, a model may contain itself
        if node.site in self.loaded.graphs and self.flows.get(node.site, {}) is not None:
            inner = self.flow(node.site)
            outputs = self.loaded.graphs[node.site].outputs
            return frozenset[str]().union(*(inner.get(name, frozenset()) for name in outputs))
        first = Call(args=tuple(Reference(layer=name) for name in node.parents[:1]))
        possible_dtypes = result_dtypes(self._called_class(node.site), first, dtype_of)
        return frozenset(dtype for dtype in possible_dtypes if dtype is not None)

    def _called_class(self, site: int) -> CalledClass:
        """Return a layer with its new policy."""
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
    """Return the output dtypes of each node in the unchanged file, by the site of its model."""
    dtypes_of = _Dtypes(loaded, Decisions())
    return {model: dtypes_of.flow(model) for model in loaded.graphs}


def settle_conflicts(loaded: LoadedModel, decisions: Decisions) -> tuple[Edit, ...]:
    """
    Keep more layers in float32 until no op layer newly gets two float dtypes; return the edits that
    ops and casts need.

    Each remaining conflict becomes a refusal that names the op and the layers.
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
    Return the nodes that must have the same dtype because a node does not cast its inputs, and
    whether a float32 constant is also an input.

    A wrapped op combines its inputs, and float32 if a constant is its first argument (``2.0 - x``).
    A custom class that was built with autocast=False, and a recurrent layer that gets its states as
    inputs, combine them with variables of their variable dtype. Keras 3 layers cast all inputs, and
    almost all of its operations promote them.
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
    """Return the float dtypes that a layer combines without casting; empty if it casts."""
    names, constant = _joined_parents(loaded, node)
    return frozenset({_CONSTANT} if constant else ()).union(
        *(flow.get(name, frozenset()) & _FLOATS for name in names)
    )


def _is_strict(loaded: LoadedModel, node: GraphNode) -> bool:
    """
    Return whether a layer multiplies its inputs by variables of its policy's dtype without casting.
    Keras classes without autocast do cast in their code.
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
    """Yield the conflict at a node, as :func:`_conflicts` does."""
    met_dtypes = _meeting_dtypes(loaded, node, new)
    if (
        len(met_dtypes) > 1
        and met_dtypes != _meeting_dtypes(loaded, node, old)
        and not has_kernels_for(node, met_dtypes)
    ):
        narrow_dtypes = [
            name
            for name in _joined_parents(loaded, node)[0]
            if new.get(name, frozenset()) & met_dtypes - {_widest(met_dtypes)}
        ]
        names = [name for parent in narrow_dtypes for name in makers(loaded, graph, (parent,))]
        yield node, met_dtypes, names


def _widen_conflicts(after: _Dtypes, graph: Graph) -> bool:
    """
    Keep the layers before conflicts in float32. Return whether any decision changed, so that the
    dtypes must be computed again.

    If a layer that is now kept does not cast, the layers before it are kept in the same round;
    otherwise a chain of such layers would need a round for each.
    """
    loaded, decisions = after.loaded, after.decisions
    old, new = _flows_before(loaded)[graph.model], dict(after.flow(graph.model))
    before = dict(decisions.by_site)
    pending = deque(_conflicts(loaded, graph, old, new))
    while pending:
        node, met_dtypes, producers = pending.popleft()
        if _widest(met_dtypes) != _CONSTANT:
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


def _widest(met_dtypes: frozenset[str]) -> str:
    """Return the widest of some dtypes, at least float32."""
    largest = max(met_dtypes, key=dtypes.itemsize)
    return "float32" if dtypes.itemsize(largest) < dtypes.itemsize("float32") else largest


def _widen(loaded: LoadedModel, producer: GraphNode, op: GraphNode, decisions: Decisions) -> None:
    """Keep the layers that produce a tensor in float32 if the plan would change them."""
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
    loaded: LoadedModel, graph: Graph, node: GraphNode, met_dtypes: frozenset[str], names: list[str]
) -> Refusal:
    path = loaded.layers[node.site].path if node.site is not None else node.name
    paths = [
        loaded.layers[site].path
        for name in dict.fromkeys(names)
        if (site := graph.nodes[name].site) is not None
    ]
    is_own_layer = (
        node.site is not None and not layer_facts(loaded.sites[node.site].class_name).is_op_layer
    )
    suggested = path if is_own_layer else next(iter(paths), path)
    return Refusal(
        code="mixed-inputs",
        message=(
            f"{path} does not cast its inputs, which would be {' and '.join(sorted(met_dtypes))}; "
            "set the policies of the preceding layers, for example with --set "
            f"'{suggested}=float32'"
        ),
        path=path,
    )
