"""
Layers that stay in float32 when a model changes to a 16-bit policy.

To add a rule, write a function and add one line to :data:`KEEP_RULES`.

Outputs: TensorFlow's guide "Mixed precision" recommends float32 outputs and a float32 softmax at
the end; a softmax in the middle may be 16-bit. If the last layer is a Reshape or an activation, a
float32 last layer is not enough, because the layer before it has already rounded the values. Some
layers compute the values of a model's outputs, and the layers after them only shape these values: a
Dense before a Reshape determines the precision of the output. The graph is followed call by call,
because an activation that a model calls several times shapes the output only in its last call.

Classes: some compute incorrectly in a 16-bit dtype (``risks`` in their facts). Average pooling sums
windows that are too large for float16: float16 represents all integers only up to 2048, so a sum of
more than 2048 equal values stops growing, and over 112x112 values of 10 both libraries return 4
(measured, CPU). Encoders convert IDs and categories to floats. Their ops support only 32 or 64 bits
(``DenseBincount``, ``Bucketize``), and 16-bit floats cannot represent all IDs. All six 16-bit cases
fail, in tf_keras 2.21 when the layer is built and in Keras 3.15 when it is called.

Identifiers: some pass through float layers before a lookup. float16 represents all integers up to
2048, bfloat16 up to 256: a layer that casts its inputs would make different IDs equal.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from policytool.migration.planning.options import Outputs
from policytool.migration.result_dtypes import decides_dtype, joins_tensors
from policytool.model import custom_classes
from policytool.model.calls import call_tensors, tensors
from policytool.model.loaded_model import once_per_model
from policytool.model.tree import LAYERS, MODEL_CLASSES
from policytool.releases import keras_objects
from policytool.releases.dtypes import HALVES
from policytool.releases.layer_classes import layer_facts
from policytool.releases.releases import family_of
from policytool.support import steps
from policytool.support.grouping import EachOnce

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from policytool.model.calls import Reference
    from policytool.model.flow import Node
    from policytool.model.layer_graph import Graph, GraphNode
    from policytool.model.loaded_model import LoadedModel
    from policytool.model.tree import Site
    from policytool.releases.policy import Policy


_ANY_CALL: Final = -1
"""The call number that matches any call of a layer."""


class OutputOrigins(Struct, frozen=True, kw_only=True):
    """The sites of the layers that determine the values of a model's outputs."""

    computing: tuple[int, ...]
    """The layers that compute the values, and their inner layers."""

    shaping: tuple[int, ...]
    """The layers after them, which only shape the values."""


@once_per_model
def output_origins(loaded: LoadedModel) -> OutputOrigins:
    """
    Return the layers that compute and shape the outputs of the outermost model; no layers if its
    graph is unknown.
    """
    search = _OriginSearch(loaded)
    if 0 in loaded.graphs:
        search.follow(0)
    return OutputOrigins(computing=tuple(search.computing), shaping=tuple(search.shaping))


@dataclass
class _OriginSearch:
    """The search in a model and its nested models, each visited once."""

    loaded: LoadedModel
    computing: dict[int, None] = field(default_factory=dict)
    shaping: dict[int, None] = field(default_factory=dict)
    followed: dict[int, bool] = field(default_factory=dict)
    """The result of :meth:`follow`, by the site of the model."""

    def follow(self, model: int) -> bool:
        """
        Find the layers that determine the outputs of a model. Return whether an output consists of
        input values, so that the layers before the model determine it too.
        """
        if model in self.followed:
            return self.followed[model]
        self.followed[model] = False  # stop if a model contains itself
        graph = self.loaded.graphs[model]
        walk = EachOnce(reversed(self._ends(graph)))
        has_input = False
        for call in walk:
            node, sources = graph.nodes[call[0]], self._sources(graph, call)
            if node.site is not None and self.loaded.is_input(node.site):
                has_input = True
            elif not self._is_operation(node):
                if self._add(node, shapes=self._is_shaping(node)):
                    has_input |= not sources  # the first layer of a Sequential gets the input
                    walk.add(reversed(sources))
            elif len(sources) == 1 or joins_tensors(node):
                walk.add(reversed(sources))
            else:
                for name, _ in self._operands(graph, sources):
                    self._add(graph.nodes[name], shapes=False)
        self.followed[model] = has_input
        return has_input

    def _add(self, node: GraphNode, *, shapes: bool) -> bool:
        """
        Record whether a layer, and the layers inside it, only shape input values or compute new
        ones. Return True if they only shape; for a nested model, also in a TimeDistributed, follow
        the model.
        """
        if node.site is None or self.loaded.is_input(node.site):
            return False
        inner_sites: list[int] = []
        for index in self.loaded.below(node.site):
            site = self.loaded.sites[index]
            if site.class_name in MODEL_CLASSES:
                passes = index in self.loaded.graphs and self.follow(index)
                shapes = passes and (
                    index == node.site or not custom_classes.is_opaque(self.loaded.sites[node.site])
                )
                break
            inner_sites.append(index)
        (self.shaping if shapes else self.computing).update(dict.fromkeys(inner_sites))
        return shapes

    def _is_shaping(self, node: GraphNode) -> bool:
        """Return whether a layer, or the layer in a TimeDistributed, only shapes values."""
        sites, index = self.loaded.sites, node.site
        while index is not None and layer_facts(sites[index].class_name).wraps == "steps":
            index = _wrapped_layer(self.loaded, index)
        return (
            index is not None
            and layer_facts(sites[index].class_name).shapes_values
            and not custom_classes.is_opaque(sites[index])
        )

    def _is_operation(self, node: GraphNode) -> bool:
        """Return whether a node has no policy, so that its inputs determine its compute dtype."""
        return node.site is None or layer_facts(self.loaded.sites[node.site].class_name).is_op_layer

    def _operands(self, graph: Graph, sources: Sequence[Node]) -> list[Node]:
        """
        Return the layer calls whose results an operation combines. The list is empty if it combines
        the result of another such operation: in a residual model, every layer feeds the last sum.
        """
        walk = EachOnce(reversed(sources))
        operands: list[Node] = []
        for call in walk:
            before = self._sources(graph, call)
            steps.spend(1 + len(before), walk="operands")
            if not self._is_operation(graph.nodes[call[0]]):
                operands.append(call)
            elif len(before) > 1 and not joins_tensors(graph.nodes[call[0]]):
                return []
            else:
                walk.add(reversed(before))
        return operands

    def _ends(self, graph: Graph) -> list[Node]:
        """Return the calls that produce a model's outputs."""
        if graph.source is None:
            return self._calls(graph, ((name, 0) for name in graph.outputs))
        return self._calls(graph, _nodes(tensors(graph.source.outputs)))

    def _sources(self, graph: Graph, call: Node) -> list[Node]:
        """Return the calls that produce the input tensors of a call."""
        name, number = call
        node = graph.nodes[name]
        if not node.calls:  # in a Sequential
            return self._calls(graph, ((parent, 0) for parent in node.parents))
        calls = node.calls if number == _ANY_CALL else node.calls[number : number + 1]
        return self._calls(
            graph, (source for call in calls for source in _nodes(call_tensors(call)))
        )

    def _calls(self, graph: Graph, references: Iterable[Node]) -> list[Node]:
        """
        Return the calls that a config refers to, each once; skip layers that the config does not
        contain. Releases count the calls of a nested model from 0 or from 1, so any call matches.
        """
        calls: dict[Node, None] = {}
        for name, number in references:
            node = graph.nodes.get(name)
            if node is not None:
                exact = node.site not in self.loaded.graphs and 0 <= number < len(node.calls)
                calls[name, number if exact else _ANY_CALL] = None
        return list(calls)


def _wrapped_layer(loaded: LoadedModel, index: int) -> int | None:
    """Return the ``layer`` of a wrapper, if any."""
    children = loaded.children[index]
    return next((child for child in children if loaded.sites[child].attribute == "layer"), None)


def _nodes(references: Iterable[Reference]) -> Iterator[Node]:
    """Yield the calls that produce the referenced tensors."""
    return ((reference.layer, reference.call) for reference in references)


OUTPUT: Final = "it computes the output of the model, which is kept in float32"
SHAPED: Final = "it shapes or activates the output of the model, which is kept in float32"
SOFTMAX: Final = (
    "it is a softmax before the output, and its small probabilities would be lost in 16 bits"
)
BETWEEN: Final = "it is between a softmax and the output"


def output_reasons(loaded: LoadedModel, _policy: Policy) -> Iterator[tuple[int, str]]:
    """Yield the layers that compute, shape or activate the outermost model's outputs."""
    origins = output_origins(loaded)
    yield from ((index, OUTPUT) for index in origins.computing)
    yield from ((index, SHAPED) for index in origins.shaping)
    yield from final_layers(loaded)


def final_layers(loaded: LoadedModel) -> Iterator[tuple[int, str]]:
    """
    Yield the layers that produce the outermost model's outputs, softmax layers before them and the
    layers between; each with the reason to keep it.
    """
    if 0 in loaded.graphs:
        yield from _of_model(loaded, loaded.graphs[0])


def makers(loaded: LoadedModel, graph: Graph, names: tuple[str, ...]) -> Iterator[str]:
    """
    Yield the layers that produce the tensors of these nodes: the nodes themselves, or the layers
    before them if the nodes are operations that do not cast.
    """
    walk = EachOnce(name for name in reversed(names) if name in graph.nodes)
    for name in walk:
        node = graph.nodes[name]
        if node.site is None or layer_facts(loaded.sites[node.site].class_name).is_op_layer:
            sources = () if decides_dtype(node) else reversed(node.parents)
            walk.add(source for source in sources if source in graph.nodes)
        else:
            yield name


def _of_model(loaded: LoadedModel, graph: Graph) -> Iterator[tuple[int, str]]:
    for name in makers(loaded, graph, graph.outputs):
        yield from _layers_of_output(loaded, graph, name, OUTPUT)
    for name, reason in _softmaxes(loaded, graph):
        yield from _layers_of_output(loaded, graph, name, reason)


def _layers_of_output(
    loaded: LoadedModel, graph: Graph, name: str, reason: str
) -> Iterator[tuple[int, str]]:
    """Yield the output layers of a nested model; for another layer, itself and its sublayers."""
    index = graph.nodes[name].site
    if index is None or loaded.is_input(index):
        return
    if loaded.sites[index].class_name in MODEL_CLASSES:
        if index in loaded.graphs:
            yield from _of_model(loaded, loaded.graphs[index])
        return
    for inner_index in loaded.below(index):
        if (
            loaded.sites[inner_index].class_name in MODEL_CLASSES and inner_index in loaded.graphs
        ):  # a model in a TimeDistributed
            yield from _of_model(loaded, loaded.graphs[inner_index])
            return
        yield inner_index, reason


def _softmaxes(loaded: LoadedModel, graph: Graph) -> Iterator[tuple[str, str]]:
    """
    Yield each softmax between the last layers with weights and the outputs, and the layers after
    it.
    """
    pending: list[tuple[str, str | None]] = [(name, None) for name in graph.outputs]
    behind: dict[str, str | None] = {}
    reported_layers = set[str]()
    while pending:
        name, next_one = pending.pop()
        node = graph.nodes.get(name)
        if node is None or name in behind:
            continue
        behind[name] = next_one
        index = node.site
        if index is not None and is_softmax(loaded, index):
            yield name, SOFTMAX
            while (
                next_one is not None and next_one not in reported_layers
            ):  # each once: there may be as many softmaxes as layers
                reported_layers.add(next_one)
                yield next_one, BETWEEN
                next_one = behind[next_one]
        if index is None or not any(map(loaded.has_weights, loaded.below(index))):
            pending += [(parent, name) for parent in node.parents]


def is_softmax(loaded: LoadedModel, index: int) -> bool:
    """Return whether the layer is a softmax, or ends in one."""
    activation = layer_facts(loaded.sites[index].class_name).activation or keras_objects.name_of(
        loaded.config(index).get("activation")
    )
    return activation is not None and activation.lower() in {"softmax", "log_softmax"}


def risk_reason(library: str, site: Site, policy: str) -> str | None:
    """
    Return the known risk of a layer under a policy, in the library that loads it; None if no risk
    is known.
    """
    if custom_classes.is_opaque(site):
        return None
    config: Mapping[str, object] = site.config or {}
    family = family_of(library)
    risks = layer_facts(site.class_name).risks
    return next((risk.reason for risk in risks if risk.concerns(family, policy, config)), None)


_LARGEST_SUM: Final = 2048


def window_reason(site: Site) -> str | None:
    """
    Return the risk of a pooling layer in float16; None for other layers and for smaller windows.
    """
    axes = layer_facts(site.class_name).averages_over
    if axes is None or custom_classes.is_opaque(site):
        return None
    size = (site.config or {}).get("pool_size")
    sides = size if isinstance(size, list) else [size] * axes
    numbers = [side for side in sides if isinstance(side, int)]
    if not numbers or math.prod(numbers) <= _LARGEST_SUM:
        return None
    return (
        f"it averages {math.prod(numbers)} values in float16, and float16 sums of equal values "
        "stop growing after 2048 values"
    )


def class_reasons(loaded: LoadedModel, policy: Policy) -> Iterator[tuple[int, str]]:
    """
    Yield layers of classes with known risks, average pooling layers with wide windows in float16,
    and encoders; encoders whose dtype is not a float keep it anyway.
    """
    for index, site in enumerate(loaded.sites):
        reason = risk_reason(loaded.loader, site, policy.name)
        if reason is None and policy.compute_dtype == "float16":
            reason = window_reason(site)
        is_encoder = layer_facts(site.class_name).makes_ids and not custom_classes.is_opaque(site)
        if reason is None and is_encoder:
            reason = "it encodes IDs or categories with ops that have no 16-bit kernel"
        if reason is not None:
            yield index, reason


def float_inputs(loaded: LoadedModel, index: int) -> bool:
    """Return whether an input layer may get floats: its dtype is a float, or is not stored."""
    layer = loaded.layers[index]
    return layer.compute_dtype is None or "float" in layer.compute_dtype


def identifier_reasons(loaded: LoadedModel, _policy: Policy) -> Iterator[tuple[int, str]]:
    """
    Yield the weightless layers between a float input and a lookup, through nested models and the
    wrappers around them.
    """
    for index, lookup in identifier_layers(loaded):
        yield (
            index,
            (
                f"it passes IDs to {loaded.layers[lookup].path}, and 16-bit floats cannot "
                "represent large IDs exactly"
            ),
        )


def identifier_layers(loaded: LoadedModel, *, inputs: bool = False) -> Iterator[tuple[int, int]]:
    """
    Yield each weightless layer between a float input and a lookup, with the lookup.

    :param inputs: whether to yield the float inputs too, after these layers
    """
    search = _LookupSearch(loaded)
    for graph in loaded.graphs.values():
        for node in graph.nodes.values():
            lookup = search.lookup_in(node)
            if lookup is not None:
                layers_between, from_floats, sources = _carriers(loaded, graph, node.name)
                wrappers = search.wrappers(node)
                for index in (
                    (*layers_between, *wrappers, *(sources if inputs else ()))
                    if from_floats
                    else ()
                ):
                    yield index, lookup


@dataclass
class _LookupSearch:
    """The search for lookups in nested models, each visited once."""

    loaded: LoadedModel
    found: dict[int, int | None] = field(default_factory=dict)
    """The lookup that gets the inputs of a model, by the site of the model; None if none does."""

    def lookup_in(self, node: GraphNode) -> int | None:
        """
        Return the node's layer if it is a lookup, or the lookup in the node that gets its inputs;
        None if there is none.
        """
        if node.site is None:
            return None
        if layer_facts(node.class_name).takes_ids:
            return node.site
        model = self._model_in(node.site)
        if model is None:
            return None
        if model not in self.found:
            self.found[model] = None  # stop if a model contains itself
            self.found[model] = self._behind_inputs(self.loaded.graphs[model])
        return self.found[model]

    def wrappers(self, node: GraphNode) -> list[int]:
        """Return the layers that wrap a nested model; they cast the inputs that they pass to it."""
        index = None if layer_facts(node.class_name).takes_ids else node.site
        layers = []
        while index is not None and self.loaded.sites[index].class_name not in MODEL_CLASSES:
            layers.append(index)
            index = _wrapped_layer(self.loaded, index)
        return layers

    def _model_in(self, site: int) -> int | None:
        """Return the layer if it is a model, or the model that it wraps; None for other layers."""
        index: int | None = site
        while index is not None and index not in self.loaded.graphs:
            index = next(
                (
                    child
                    for child in self.loaded.children[index]
                    if self.loaded.sites[child].attribute not in {LAYERS, "cell", "cells"}
                ),
                None,
            )
        return index

    def _behind_inputs(self, graph: Graph) -> int | None:
        for node in graph.nodes.values():
            lookup = self.lookup_in(node)
            if lookup is not None and _carriers(self.loaded, graph, node.name)[1]:
                return lookup
        return None


def _carriers(loaded: LoadedModel, graph: Graph, name: str) -> tuple[list[int], bool, list[int]]:
    """
    Return the weightless layers between inputs and a node, whether any of these inputs may get
    floats, and the inputs that may.
    """
    walk = EachOnce(graph.nodes[name].parents)
    layers_between: list[int] = []
    sources: list[int] = []
    # the first layer of a Sequential gets the input
    from_floats = not graph.nodes[name].parents
    for parent in walk:
        if parent not in graph.nodes:
            continue
        index = graph.nodes[parent].site
        if index is not None and loaded.is_input(index):
            sources += [index] if float_inputs(loaded, index) else []
        elif index is None or not (loaded.has_weights(index) or loaded.children[index]):
            layers_between += [index] if index is not None else []
            walk.add(graph.nodes[parent].parents)
            from_floats |= not graph.nodes[parent].parents
    return layers_between, from_floats or bool(sources), sources


KEEP_RULES: Final[tuple[Callable[[LoadedModel, Policy], Iterator[tuple[int, str]]], ...]] = (
    output_reasons,
    class_reasons,
    identifier_reasons,
)
"""
The rules, in order; if several match a layer, the first one gives the reason.

A rule yields the sites that stay in float32, each with the reason, for a model and its new policy.
It depends on the structure of the model, never on its current policies.
"""


def layers_to_keep(loaded: LoadedModel, policy: Policy, choice: Outputs) -> Mapping[int, str]:
    """
    Return the sites that stay in float32 under this policy, with the reason for each; empty for a
    policy that computes in 32 bits or more.
    """
    reasons: dict[int, str] = {}
    for rule in KEEP_RULES if policy.compute_dtype in HALVES else ():
        if rule is not output_reasons or choice is Outputs.KEEP:
            for index, reason in rule(loaded, policy):
                reasons.setdefault(index, reason)
    return reasons
