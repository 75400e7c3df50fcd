"""
Compares two paired layers: policies, configs and inputs.

An axis that is counted from the end equals one counted from the start only if the preceding layers
determine the number of dimensions of the input.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from msgspec import Struct, structs
from msgspec.structs import replace

from policytool.comparison import normalization
from policytool.comparison.result import Aspect, Pairing, ValueChange
from policytool.model.calls import Reference
from policytool.model.flow import follow, merged_graph
from policytool.model.loaded_model import once_per_model
from policytool.model.model import Source
from policytool.model.tree import MODEL_CLASSES
from policytool.releases.layer_classes import layer_facts
from policytool.releases.policy import loss_scale_values
from policytool.support.text.jsontext import ABSENT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from policytool.comparison.pairing import ComparedLayer, ComparedModel, Pairs
    from policytool.model.calls import Call
    from policytool.model.flow import Node, TensorValues
    from policytool.model.layer_graph import Graph
    from policytool.model.loaded_model import LoadedModel
    from policytool.model.model import Layer
    from policytool.releases.policy import Quantization
    from policytool.support.text.jsontext import Json


def is_same_axis(
    axis_a: Json,
    axis_b: Json,
    sides: tuple[tuple[ComparedModel, ComparedLayer], tuple[ComparedModel, ComparedLayer]],
) -> bool:
    """Return whether two values of ``axis`` are proven to be the same."""
    first, second = (
        _resolve_axes(value, subject, layer)
        for value, (subject, layer) in zip((axis_a, axis_b), sides, strict=True)
    )
    return first is not None and first == second


def input_rank(subject: ComparedModel, layer: ComparedLayer) -> int | None:
    """Return the number of dimensions of a layer's input; None if it cannot be proven."""
    if subject.loaded is None:
        return None
    return _input_ranks(subject.loaded).get(layer.index)


@once_per_model
def _input_ranks(loaded: LoadedModel) -> Mapping[int, int | None]:
    """Return the rank of each layer's input, by site; None if it is unknown or differs by call."""
    inputs: dict[int, set[int | None]] = defaultdict(set)
    outputs: dict[int, int | None] = {}
    for model, graph in reversed(
        list(loaded.graphs.items())
    ):  # nested models before the models that contain them
        ranks = _Ranks(loaded, graph, outputs)
        calls = merged_graph({node.name: node.parents for node in graph.nodes.values()})
        known = follow(calls, ranks.output, walk="ranks")
        for node in graph.nodes.values():
            if node.site is not None:
                inputs[node.site].add(ranks.input(node.name, known))
        ends = {known.of(Reference(layer=name)) for name in graph.outputs}
        outputs[model] = ends.pop() if len(ends) == 1 else None
    return {site: ranks.pop() if len(ranks) == 1 else None for site, ranks in inputs.items()}


class _Ranks(Struct, frozen=True):
    """The transfer function for ranks in the graph of a model."""

    loaded: LoadedModel
    graph: Graph
    nested: Mapping[int, int | None]
    """The rank of the outputs of each nested model, by site; None if it is unknown or differs."""

    def input(self, name: str, known: TensorValues[int | None]) -> int | None:
        """Return the rank of a layer's input. The config of a first layer contains the shape."""
        node = self.graph.nodes[name]
        if len(node.parents) == 1:
            return known.of(Reference(layer=node.parents[0]))
        return _shape_rank(node.config) if not node.parents else None

    def output(
        self, node: Node, _call: Call | None, known: TensorValues[int | None]
    ) -> Sequence[int | None]:
        """Return the rank of a layer's output."""
        layer = self.graph.nodes[node[0]]
        if layer.site is None or self.loaded.layers[layer.site].opaque:
            return (None,)
        if layer.site in self.nested:
            return (self.nested[layer.site],)
        rank = layer_facts(self.loaded.layers[layer.site].class_name).rank
        return (self.input(layer.name, known) if rank == "input" else rank,)


def _shape_rank(config: Mapping[str, Json]) -> int | None:
    shape = normalization.normal_entries(config).get("batch_shape", ("", None, None))[2]
    return len(shape) if isinstance(shape, list) else None


def _resolve_axes(
    value: Json, subject: ComparedModel, layer: ComparedLayer
) -> tuple[int, ...] | None:
    """Return axes counted from the start; None if the rank is unknown."""
    axes = normalization.normalized_value(value)
    numbers = [
        axis
        for axis in (axes if isinstance(axes, list) else [axes])
        if isinstance(axis, int) and not isinstance(axis, bool)
    ]
    if not numbers or (isinstance(axes, list) and len(numbers) != len(axes)):
        return None
    if min(numbers) >= 0:
        return tuple(numbers)
    rank = input_rank(subject, layer)
    return (
        tuple(axis % rank for axis in numbers)
        if rank is not None and all(-rank <= axis < rank for axis in numbers)
        else None
    )


_ELSEWHERE: Final = frozenset(
    {"name", "dtype", "input_dtype", "layers", "input_layers", "output_layers"}
)
"""Keys of a config that are compared separately, as names, policies, layers or inputs."""

_ASSETS: Final = frozenset({"vocabulary", "has_input_vocabulary"})
"""Keys of lookup layers whose values a SavedModel stores in separate files."""

_BUILT: Final = {
    "forward_layer": frozenset({"zero_output_for_mask"}),
    "backward_layer": frozenset({"zero_output_for_mask", "go_backwards"}),
}
"""
Keys that a Bidirectional sets in the layers that it builds. Some releases write the values of the
original layer instead.
"""


def changes(
    a: ComparedModel, b: ComparedModel, pair: tuple[ComparedLayer, ComparedLayer], by: Pairing
) -> Iterator[ValueChange]:
    """Yield the differences between two layers, policies before configs."""
    layer_a, layer_b = (side.layer for side in pair)
    if a.is_traced and b.is_traced and layer_a.traced_dtypes != layer_b.traced_dtypes:
        yield ValueChange(
            aspect=Aspect.TRACED, a=list(layer_a.traced_dtypes), b=list(layer_b.traced_dtypes)
        )
    if not (a.described and b.described):
        return
    yield from _identity_changes(pair, by)
    unknown = {
        side.layer.path
        for side, subject in zip(pair, (a, b), strict=True)
        if subject.has_unknown_scales and side.layer.loss_scale is None
    }
    policy_changes = _policy(layer_a, layer_b, implicit=pair[0].implicit or pair[1].implicit)
    yield from (
        change for change in policy_changes if change.aspect is not Aspect.LOSS_SCALE or not unknown
    )
    if pair[0].config is not None and pair[1].config is not None:
        yield from _policy_format_changes(pair[0].config, pair[1].config, layer_a, layer_b)
        config_changes = configs(
            pair[0].config, pair[1].config, (layer_a.class_name, layer_b.class_name)
        )
        built = _BUILT.get(pair[0].attribute, frozenset())
        for change in config_changes:
            if not is_asset(change, a, b):
                is_format_only = (
                    change.is_format_only
                    or change.key in built
                    or _is_same_axis(change, a, b, pair)
                )
                yield replace(change, is_format_only=is_format_only)
    if pair[0].operations is not None and pair[1].operations is not None:
        yield from configs(pair[0].operations, pair[1].operations)


def configs(
    a: Mapping[str, Json],
    b: Mapping[str, Json],
    classes: tuple[str | None, str | None] = (None, None),
) -> Iterator[ValueChange]:
    """
    Yield the keys whose values or formats differ between two configs: first the keys of A in their
    order, and then the keys that only B has.
    """
    entries_a, entries_b = (
        normalization.normal_entries(a, classes[0]),
        normalization.normal_entries(b, classes[1]),
    )
    for key in (*entries_a, *(key for key in entries_b if key not in entries_a)):
        if key in _ELSEWHERE:
            continue
        if key in entries_a and key in entries_b:  # in Python, True == 1
            is_format_only = normalization.is_same_value(entries_a[key][2], entries_b[key][2])
            if is_format_only and entries_a[key][:2] == entries_b[key][:2]:
                continue
        else:
            entries, class_name = (
                (entries_a, classes[0]) if key in entries_a else (entries_b, classes[1])
            )
            is_format_only = normalization.is_default(
                key, entries[key][2]
            ) or normalization.is_derived(key, class_name)
        yield ValueChange(
            aspect=Aspect.CONFIG,
            key=key,
            a=entries_a[key][1] if key in entries_a else ABSENT,
            b=entries_b[key][1] if key in entries_b else ABSENT,
            is_format_only=is_format_only,
        )


def is_asset(change: ValueChange, a: ComparedModel, b: ComparedModel) -> bool:
    """
    Return whether a vocabulary is missing from the config of a SavedModel because it is in the
    assets, which are not read.
    """
    if change.key not in _ASSETS or a.is_graph == b.is_graph:
        return False
    return (change.a if a.is_graph else change.b) in {
        None,
        True,
    }  # the vocabulary is null, has_input_vocabulary is true


def _is_same_axis(
    change: ValueChange,
    a: ComparedModel,
    b: ComparedModel,
    pair: tuple[ComparedLayer, ComparedLayer],
) -> bool:
    """Return whether both values are the same axis, counted from different ends."""
    if change.key != "axis" or change.a is ABSENT or change.b is ABSENT:
        return False
    return is_same_axis(change.a, change.b, ((a, pair[0]), (b, pair[1])))


def input_changes(
    pair: tuple[ComparedLayer, ComparedLayer], a: ComparedModel, b: ComparedModel, pairs: Pairs
) -> Iterator[ValueChange]:
    """
    Yield the differences in the inputs of two layers; for functional models, also in the inputs and
    outputs of the model.
    """
    layer_a, layer_b = pair
    if layer_a.inputs is not None and layer_b.inputs is not None:
        yield from _input_changes(layer_a.inputs, layer_b.inputs, None, (a, b, pairs))
    if layer_a.ends is not None and layer_b.ends is not None:
        for key in layer_a.ends:
            yield from _input_changes(
                layer_a.ends[key], layer_b.ends.get(key, ()), key, (a, b, pairs)
            )


def _identity_changes(
    pair: tuple[ComparedLayer, ComparedLayer], by: Pairing
) -> Iterator[ValueChange]:
    """Yield the differences in class, registered name, name and place of two paired layers."""
    layer_a, layer_b = (side.layer for side in pair)
    names_a, names_b = (
        (layer_a.class_name, layer_a.registered_name),
        (layer_b.class_name, layer_b.registered_name),
    )
    if layer_a.class_name != layer_b.class_name:
        is_format_only = normalization.class_of(layer_a.class_name) == normalization.class_of(
            layer_b.class_name
        )
        yield ValueChange(
            aspect=Aspect.CLASS,
            a=layer_a.class_name,
            b=layer_b.class_name,
            is_format_only=is_format_only,
        )
    elif layer_a.registered_name != layer_b.registered_name and None not in {*names_a, *names_b}:
        yield ValueChange(aspect=Aspect.CLASS, a=layer_a.registered_name, b=layer_b.registered_name)
    # the file and the built model have different names for the layers of a Bidirectional
    built_a, built_b = (side.names[-1] if side.names else side.layer.name for side in pair)
    if built_a != built_b:
        yield ValueChange(
            aspect=Aspect.NAME,
            a=built_a,
            b=built_b,
            is_format_only=layer_a.name == layer_b.name or all(side.implicit for side in pair),
        )
    if by is Pairing.MOVED:
        yield ValueChange(
            aspect=Aspect.PLACE, a="/".join(pair[0].names[:-1]), b="/".join(pair[1].names[:-1])
        )


def _policy(layer_a: Layer, layer_b: Layer, *, implicit: bool) -> Iterator[ValueChange]:
    """
    Yield the differences between the policies of two layers.

    A model, or a layer that another layer creates, may have a policy in one format and none in
    another; that is not a difference between the models.
    """
    if Source.UNKNOWN in {layer_a.source, layer_b.source}:
        return
    is_implicit_in_one_file = (
        Source.GLOBAL in {layer_a.source, layer_b.source} and layer_a.policy != layer_b.policy
    )
    if is_implicit_in_one_file and (
        implicit
        or layer_a.class_name in MODEL_CLASSES
        or "" in {layer_a.path.rpartition("/")[0], layer_b.path.rpartition("/")[0]}
    ):
        return
    pairs: tuple[tuple[Aspect, Json, Json], ...] = (
        (Aspect.POLICY, layer_a.policy, layer_b.policy),
        (Aspect.COMPUTE, layer_a.compute_dtype, layer_b.compute_dtype),
        (Aspect.VARIABLE, layer_a.variable_dtype, layer_b.variable_dtype),
        (
            Aspect.LOSS_SCALE,
            loss_scale_values(layer_a.loss_scale),
            loss_scale_values(layer_b.loss_scale),
        ),
        (Aspect.QUANTIZATION, *_quantization_pair(layer_a.quantization, layer_b.quantization)),
    )
    yield from (
        ValueChange(aspect=aspect, a=before, b=after)
        for aspect, before, after in pairs
        if before != after
    )
    if (
        layer_a.autocast is not None
        and layer_b.autocast is not None
        and layer_a.autocast != layer_b.autocast
    ):
        yield ValueChange(aspect=Aspect.AUTOCAST, a=layer_a.autocast, b=layer_b.autocast)


def _quantization_pair(a: Quantization | None, b: Quantization | None) -> tuple[Json, Json]:
    """Return two quantizations as JSON, without a history length that one file does not store."""
    values: list[dict[str, Json] | None] = [
        structs.asdict(side) if side is not None else None for side in (a, b)
    ]
    for side in values:
        if side is not None and (
            a is None or b is None or None in {a.amax_history_length, b.amax_history_length}
        ):
            del side["amax_history_length"]
    return values[0], values[1]


def _policy_format_changes(
    a: Mapping[str, Json], b: Mapping[str, Json], layer_a: Layer, layer_b: Layer
) -> Iterator[ValueChange]:
    """
    Yield a change if both layers have the same policy in different formats. Policies that no
    release supports are compared as they are written.
    """
    entries = [
        next(
            ((key, config[key]) for key in ("dtype", "input_dtype") if key in config), ("", ABSENT)
        )
        for config in (a, b)
    ]
    if entries[0] == entries[1]:
        return
    (_, before), (_, after) = entries
    if Source.UNKNOWN in {layer_a.source, layer_b.source}:
        is_format_only = (
            before is not ABSENT
            and after is not ABSENT
            and normalization.is_same_value(
                normalization.normalized_value(before), normalization.normalized_value(after)
            )
        )
        yield ValueChange(
            aspect=Aspect.POLICY, key="dtype", a=before, b=after, is_format_only=is_format_only
        )
    elif (layer_a.policy, layer_a.loss_scale, layer_a.quantization) == (
        layer_b.policy,
        layer_b.loss_scale,
        layer_b.quantization,
    ):
        yield ValueChange(aspect=Aspect.POLICY, key="dtype", a=before, b=after, is_format_only=True)


def _input_changes(
    inputs_a: tuple[int | str, ...],
    inputs_b: tuple[int | str, ...],
    key: str | None,
    sides: tuple[ComparedModel, ComparedModel, Pairs],
) -> Iterator[ValueChange]:
    """
    Yield a change if the inputs of two layers do not belong together. Inputs of the same name do,
    such as an op layer and the operation of Keras 3 that replaces it, which is not a layer.
    """
    a, b, pairs = sides
    sources_a = [
        pairs.paired_index_of_a(source) if isinstance(source, int) else source
        for source in inputs_a
    ]
    sources_b = [
        pairs.paired_index_of_b(source) if isinstance(source, int) else source
        for source in inputs_b
    ]
    names_a, names_b = _names(a, inputs_a), _names(b, inputs_b)
    if (None in {*sources_a, *sources_b} or sources_a != sources_b) and names_a != names_b:
        yield ValueChange(aspect=Aspect.WIRING, key=key, a=names_a, b=names_b)


def _names(subject: ComparedModel, sources: tuple[int | str, ...]) -> Json:
    return [
        subject.layers[source].layer.name if isinstance(source, int) else source
        for source in sources
    ]
