"""
The connections between the calls in the config of a functional model, and the calls that no release
can build.

Releases build the calls in the order of the config, and retry a call if its inputs do not exist
yet. If calls depend on each other, on themselves, or on a call that the config does not have, Keras
2 retries forever (``reconstruct_from_config`` in keras/engine/functional.py). Keras 3 up to 3.14
does the same with nodes in the format of Keras 2. ``fixtures/attacks.json`` has the measurements.

Keras 2 counts the calls of a nested model from 1, because the model was called once when it was
created. Keras 3 counts them from 0 in the HDF5 of Keras 2. Therefore a layer that uses the last
call refers to a call that does not exist. In the outputs of a model, Keras 3 subtracts 1 if the
nested model is functional (``functional_from_config`` in keras/src/models/functional.py, from 3.3
on). In a Sequential, a functional model returns a list of one tensor in Keras 3.0 and 3.15.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Final

from policytool.model.calls import CONSTANT, layer_name, model_calls
from policytool.model.flow import CallGraph
from policytool.releases import keras_objects
from policytool.releases.behaviour import mask_rule
from policytool.releases.dtypes import OF_NODE_DEF, is_float
from policytool.releases.layer_classes import Category, is_operation, layer_facts
from policytool.support.errors import short

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from policytool.model.flow import Node
    from policytool.support.text.jsontext import Json

SEQUENTIAL: Final = "Sequential"
MODELS: Final = frozenset({"Functional", "Model", SEQUENTIAL})

_REFERENCE: Final = 3
"""The minimum number of items in a reference to a tensor: layer, call, output."""

_VALUE: Final = 2
"""The index of the value in a reference to a number."""

_KEEPING_DTYPE: Final = frozenset(
    {
        *("__operators__.add", "__operators__.getitem", "concat", "expand_dims", "identity"),
        *("math.abs", "math.add", "math.divide", "math.exp", "math.log", "math.maximum"),
        *("math.minimum", "math.multiply", "math.negative", "math.pow", "math.reduce_max"),
        *("math.reduce_mean", "math.reduce_min", "math.reduce_sum", "math.sigmoid", "math.sqrt"),
        *("math.square", "math.subtract", "math.tanh", "math.truediv", "nn.relu", "nn.softmax"),
        *("reshape", "reverse", "squeeze", "stack", "tile", "transpose"),
    }
)
"""Functions whose result has the dtype of their input tensors."""

_JOINING: Final = frozenset({"concat", "linalg.matmul", "stack"})
"""Other functions whose input tensors must have the same dtype."""

_MIXED: Final = "mixed_"
_HALVES: Final = frozenset({"float16", "bfloat16"})
ATTENTIONS: Final = frozenset({"Attention", "AdditiveAttention"})
_LISTED: Final = 3
"""The maximum number of layers that a message names."""


def tensors(value: Json) -> Iterator[Node]:
    """
    Yield the calls that a value refers to, in the order of the value. A reference is ``["layer",
    call, output, ...]``, or ``keras_history`` of Keras 3.
    """
    for layer, call, _ in _references(value):
        yield layer, call


def _references(value: Json) -> Iterator[tuple[str, int, int]]:
    """Yield the layer, the call and the output of each reference in a value, in its order."""
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            history = item.get("keras_history")
            if isinstance(history, list) and history and isinstance(history[0], str):
                numbers = [number if isinstance(number, int) else 0 for number in history[1:]]
                call, output = (*numbers, 0, 0)[:2]
                yield history[0], call, output
            else:
                pending += reversed(item.values())
        elif isinstance(item, list):
            if (
                len(item) >= _REFERENCE
                and isinstance(item[0], str)
                and isinstance(item[1], int)
                and isinstance(item[2], int)
            ):
                yield item[0], item[1], item[2]
                pending += reversed(item[_REFERENCE:])
            else:
                pending += reversed(item)


def attentions_with_scores(config: Mapping[str, Json]) -> Iterator[str]:
    """Yield the class of each attention layer whose second output, the scores, is used."""
    entries = _entries(config)
    values = [
        config.get("output_layers"),
        *(entry.get("inbound_nodes") for entry in entries.values()),
    ]
    for value in values:
        for layer, _, output in _references(value):
            class_name = keras_objects.class_of(entries.get(layer))
            if output and layer_facts(class_name).category is Category.ATTENTION:
                yield str(class_name)


def takes_tensor_list(entry: Mapping[str, Json]) -> bool:
    """Return whether some call of a layer has a list of tensors as input, in a Keras 2 config."""
    return any(
        isinstance(node, list) and len(node) > 1 and isinstance(node[0], list)
        for node in keras_objects.stored_calls(entry)
    )


def takes_one_tensor(entry: Mapping[str, Json]) -> bool:
    """Return whether some call of a layer has a single tensor as input."""
    calls = map(tensors, keras_objects.stored_calls(entry))
    return any(len([*call]) == 1 for call in calls)


def takes_mask_list(entry: Mapping[str, Json]) -> bool:
    """
    Return whether some call of a layer has a list of tensors as its mask, in a Keras 2 config.
    """
    return any(
        isinstance(mask, list)
        and any(isinstance(item, list) and isinstance(_first(item), str) for item in mask)
        for mask in _keyword_values(entry, "mask")
    )


def takes_constant(entry: Mapping[str, Json], keyword: str) -> bool:
    """Return whether some call of a layer has numbers as an argument, in a Keras 2 config."""
    return any(
        isinstance(value, list) and isinstance(_first(value), int | float)
        for value in _keyword_values(entry, keyword)
    )


def _first(value: Json) -> Json:
    """Return the first value in nested lists."""
    while isinstance(value, list) and value:
        value = value[0]
    return value


def _keyword_values(entry: Mapping[str, Json], keyword: str) -> Iterator[Json]:
    """Yield a keyword argument of each call of a layer, in a Keras 2 config."""
    for node in keras_objects.stored_calls(entry):
        for tensor in node if isinstance(node, list) else ():
            if isinstance(tensor, list) and tensor and isinstance(tensor[-1], dict):
                yield tensor[-1].get(keyword)


def has_keyword(entry: Mapping[str, Json], keyword: str) -> bool:
    """Return whether some call of a layer has a keyword argument."""
    pending = [entry.get("inbound_nodes")]
    while pending:
        item = pending.pop()
        if isinstance(item, dict) and keyword in item:
            return True
        values = item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()
        pending += [value for value in values if isinstance(value, dict | list)]
    return False


def attends_to_mask(config: Mapping[str, Json]) -> bool | None:
    """
    Return whether a mask reaches the query of an attention layer while Keras 3.6 builds a model;
    None if a layer on the way was not measured.
    """
    return _any(
        [
            masks[0]
            for entry, calls in _mask_flow(config)
            if keras_objects.class_of(entry) in ATTENTIONS
            for _, masks in calls
            if masks
        ]
    )


def masked_attention_dtypes(config: Mapping[str, Json]) -> Iterator[str]:
    """Yield the compute dtype of each attention layer whose scores have a mask."""
    for entry, calls in _mask_flow(config):
        arguments = keras_objects.arguments_of(entry)
        if keras_objects.class_of(entry) in ATTENTIONS and (
            arguments.get("causal") is True
            or has_keyword(entry, "mask")
            or any(True in masks[1:] for _, masks in calls)
        ):
            policy = keras_objects.policy_name(arguments.get("dtype")) or ""
            yield policy.removeprefix(_MIXED)


def repeats_name(config: Mapping[str, Json]) -> bool:
    """
    Return whether Keras 3 gives the name of a layer to an operation of a functional model: it
    creates operations whose configs have no name in the order of the config, and numbers those of
    a class from the first (``auto_name`` in keras/src/utils/naming.py).
    """
    counts: Counter[str] = Counter()
    named, created = set(), set()
    for name, entry in _entries(config).items():
        if not is_operation(entry) or "name" in keras_objects.arguments_of(entry):
            named.add(name)
            continue
        base = keras_objects.snake_case(str(keras_objects.class_of(entry)))
        created.add(f"{base}_{counts[base]}" if counts[base] else base)
        counts[base] += 1
    return not named.isdisjoint(created)


def clashes_with_mask(config: Mapping[str, Json]) -> bool:
    """
    Return whether Keras 3.6 adds an operation to the graph that has the name of a layer: it joins
    the masks of a Concatenate for a layer that is called with a mask, such as a recurrent layer or
    a GlobalAveragePooling1D (``compute_mask`` in keras/src/layers/merging/concatenate.py). It
    numbers these operations from the first. An attention layer fails for another reason. Measured
    with Bidirectional, TimeDistributed, BatchNormalization, Softmax and MultiHeadAttention too.
    """
    names = {name for name, entry in _entries(config).items() if not is_operation(entry)}
    count = 0
    operations: dict[str, str] = {}
    for entry, calls in _mask_flow(config):
        facts = layer_facts(keras_objects.class_of(entry))
        for sources, masks in calls:
            operation = next((operations[name] for name in sources if name in operations), None)
            if facts.moves == "joined" and any(masks):
                operation = f"concatenate_{count}" if count else "concatenate"
                count += 1
            elif (
                operation in names
                and (facts.takes_mask or facts.makes_projections)
                and keras_objects.class_of(entry) not in ATTENTIONS
                and _any(masks) is not False
            ):
                return True
            if operation is not None:
                operations[layer_name(entry)] = operation
    return False


def _mask_flow(
    config: Mapping[str, Json],
) -> Iterator[tuple[Mapping[str, Json], list[tuple[list[str], list[bool | None]]]]]:
    """
    Yield each layer with the inputs of its calls: their layers, and whether each has a mask while
    Keras 3.6 builds the model; None if a layer on the way was not measured.
    """
    entries = _entries(config)
    masks: dict[str, bool | None] = {}
    for name, entry in entries.items():
        inputs = [
            [layer for layer in _positional_inputs(node) if layer in entries]
            for node in keras_objects.stored_calls(entry)
        ]
        calls = [
            (
                layers,
                [
                    masks.get(layer) and _dtype(entry) == _dtype(entries[layer]) and masks[layer]
                    for layer in layers
                ],
            )
            for layers in inputs
        ]
        yield entry, calls
        masks[name] = creates_mask(entry) or _any([_passed_mask(entry, call) for _, call in calls])


def _any(values: Sequence[bool | None]) -> bool | None:
    """Return whether a value is true; None if that is unknown."""
    return True if True in values else None if None in values else False


def _passed_mask(entry: Mapping[str, Json], inputs: Sequence[bool | None]) -> bool | None:
    """Return whether Keras 3.6 passes a mask on from the inputs of a call; None if unknown."""
    if not any(value is not False for value in inputs):
        return False
    rule = mask_rule(
        str(keras_objects.class_of(entry)),
        keras_objects.arguments_of(entry),
        "keras3.6",
        inputs=len(inputs),
    )
    if None in inputs:
        is_dropped = (
            rule is not None
            and not rule.errors
            and all(words[0] == "none" for words in rule.out.values())
        )
        return False if is_dropped else _any(inputs)
    subset = "".join("1" if mask else "0" for mask in inputs)
    words = rule.out.get(subset) if rule else None
    return None if words is None else words[0] != "none"


def _positional_inputs(node: Json) -> Iterator[str]:
    """Yield the layers whose results a call has as positional arguments."""
    if isinstance(node, dict):
        arguments = node.get("args")
    else:
        references = node if isinstance(node, list) else []
        arguments = [item[:_REFERENCE] for item in references if isinstance(item, list)]
    return (layer for layer, _ in tensors(arguments))


def _dtype(entry: Mapping[str, Json]) -> str | None:
    """Return the dtype in which a layer computes; None if it is not stored."""
    name = keras_objects.policy_name(keras_objects.arguments_of(entry).get("dtype"))
    return name.removeprefix("mixed_") if name is not None else None


def classes_of_layers(config: Mapping[str, Json]) -> Mapping[str, str]:
    """Return the class of each layer of a functional model by name."""
    layers = model_calls(config, keras3=False).layers
    return {layer.name: str(keras_objects.class_of(layer.entry)) for layer in layers}


def orders_of_layers(config: Mapping[str, Json]) -> tuple[list[str], list[str]]:
    """
    Return the layers of a functional model in the order of the loaded model, and in that of
    Keras 3.6, which has a call more between layers of different float dtypes.

    Masks, which also add calls, are not taken into account.
    """
    model = model_calls(config, keras3=False)
    dtypes = {layer.name: _dtype(layer.entry) for layer in model.layers}
    graph = CallGraph({layer.name: layer.calls for layer in model.layers}, model.outputs)
    finished, first_visits = graph.walk()

    def order(*, has_casts: bool) -> list[str]:
        depths: dict[Node, int] = {}
        layers: dict[str, int] = {}
        for node in reversed(finished):
            depth = max(depths.get(node, 0), layers.get(node[0], 0))
            layers[node[0]] = depth
            for parent in graph.parents(node):
                pair = dtypes[parent[0]], dtypes[node[0]]
                casts = has_casts and pair[0] != pair[1] and all(map(is_float, pair))
                depths[parent] = max(depths.get(parent, 0), depth + 1 + casts)
        return sorted(layers, key=lambda name: (-layers[name], first_visits[name]))

    return order(has_casts=False), order(has_casts=True)


def creates_mask(entry: Mapping[str, Json]) -> bool:
    """Return whether a layer creates a mask."""
    is_masking = keras_objects.class_of(entry) == "Masking"
    return is_masking or keras_objects.arguments_of(entry).get("mask_zero") is True


def uncallable_layers(config: Mapping[str, Json], *, from_zero: bool = False) -> tuple[str, ...]:
    """
    Return the layers of a functional model's config with a call that cannot be built, in the order
    of the config. Empty for all models that a release can write.

    The calls of a nested model count from 0 or from 1. Keras 3.0 also counts the call in a nested
    model of a layer that is shared with it (:mod:`policytool.migration.convert.decoding`). For such
    layers, each reference counts as one to the first call.

    :param from_zero: whether all calls count from 0, as loaders of Keras 3 read the HDF5 of Keras 2
    """
    entries = _entries(config)
    calls = {layer: keras_objects.stored_calls(entry) for layer, entry in entries.items()}
    layers_with_other_counts = set() if from_zero else _layers_with_other_counts(entries)
    if _is_in_call_order(calls, layers_with_other_counts):
        return ()
    order: TopologicalSorter[Node] = TopologicalSorter()
    for layer, nodes in calls.items():
        for number, node in enumerate(nodes):
            sources = list(_sources(node, calls, layers_with_other_counts))
            order.add((layer, number), *([(layer, number - 1)] if number else []), *sources)
            for other, call in sources:
                if call >= max(len(calls[other]), 1):
                    order.add(
                        (other, call), (other, call)
                    )  # the model never makes this call, so that its users are stuck
    callable_nodes = set(_callable_nodes(order))
    return tuple(
        layer
        for layer, nodes in calls.items()
        if any((layer, number) not in callable_nodes for number in range(len(nodes)))
    )


def has_later_calls(config: Mapping[str, Json]) -> bool:
    """
    Return whether an input of a call is the output of a layer later in the list, which is possible
    for shared layers. Keras 3 retries such a call in 3.12 and later, and fails up to 3.6
    (``convert_revived_tensor`` in keras/src/models/functional.py), except for calls in the format
    of Keras 2.
    """
    entries = _entries(config)
    calls: dict[str, list[Json]] = {
        layer: [node for node in nodes if isinstance(node, dict)]
        for layer, entry in entries.items()
        if isinstance(nodes := entry.get("inbound_nodes"), list)
    }
    return not _is_in_call_order(calls, _layers_with_other_counts(entries))


def has_missing_calls(config: Mapping[str, Json]) -> bool:
    """
    Return whether a call uses the result of a call that a functional model of Keras 3 does not
    have. Keras 3.0 counts the calls of a layer in all models that share it, but only archives store
    that layers are shared; from other files, releases read a copy for each model.
    """
    entries = _entries(config)
    counts = {
        layer: max(len(nodes), 1)
        for layer, entry in entries.items()
        if isinstance(nodes := entry.get("inbound_nodes"), list)
        and keras_objects.SHARED_ID not in entry
        and not _is_model(entry)
    }
    return any(
        call >= counts.get(layer, call + 1)
        for entry in entries.values()
        for layer, call in tensors(entry.get("inbound_nodes"))
    )


def refers_outside(config: Mapping[str, Json]) -> bool:
    """
    Return whether a call or an output uses the result of a layer that is not in the model. Keras 2
    writes such calls for a layer that is shared with a model that is nested several times.
    """
    entries = _entries(config)
    values = [entry.get("inbound_nodes") for entry in entries.values()]
    return bool(entries) and any(
        layer not in entries and layer != CONSTANT
        for value in (*values, config.get("output_layers"))
        for layer, _ in tensors(value)
    )


def has_late_outputs(config: Mapping[str, Json]) -> bool:
    """
    Return whether an output is a call of a functional model that the config counts from 1, as Keras
    3.0 does, which has no such call when it reads the outputs.
    """
    entries = _entries(config)
    return any(
        layer in entries
        and _is_model(entries[layer])
        and keras_objects.class_of(entries[layer]) != SEQUENTIAL
        and call >= len(keras_objects.stored_calls(entries[layer])) > 0
        for layer, call in tensors(config.get("output_layers"))
    )


def describe_stuck(layers: Sequence[str]) -> str:
    """
    Return the defect of a model with these stuck layers, as part of a sentence: the first layers,
    and the number of others.
    """
    further = f" and {len(layers) - _LISTED} more" if len(layers) > _LISTED else ""
    return (
        "a circular dependency between layers, or missing calls: "
        f"{', '.join(map(short, layers[:_LISTED]))}{further}"
    )


def depth(config: Mapping[str, Json]) -> int:
    """
    Return the maximum depth in calls of a depth-first walk through the graph of a functional model,
    from the outputs, with the first input tensor first.

    All Keras releases walk by recursion (``_build_map_helper`` in keras/engine/functional.py,
    keras/src/ops/function.py of Keras 3).
    """
    entries = _entries(config)
    visited: set[Node] = set()
    under_way: list[Iterator[Node]] = [tensors(config.get("output_layers"))]
    deepest = 0
    while under_way:
        node = next(under_way[-1], None)
        if node is None:
            under_way.pop()
        elif node not in visited and node[0] in entries:
            visited.add(node)
            nodes = keras_objects.stored_calls(entries[node[0]])
            under_way.append(
                tensors(nodes[max(0, min(node[1], len(nodes) - 1))] if nodes else None)
            )
            deepest = max(deepest, len(under_way) - 1)
    return deepest


def misses_calls(config: Mapping[str, Json]) -> bool:
    """
    Return whether Keras 3 looks up a call that a functional model's config does not have: a call of
    a nested model, or of a Sequential that creates an output.
    """
    return any(
        keras_objects.class_of(entry) == SEQUENTIAL for entry in _entries(config).values()
    ) or bool(uncallable_layers(config, from_zero=True))


def fails_on_list(model: Mapping[str, Json], *, is_called: bool = False) -> Iterator[bool]:
    """
    Yield for each model in a model in which a layer fails on the output of a model before it,
    whether all releases of Keras 3 build it when they load the file; a Sequential may be built only
    from Keras 3.5 on.

    A functional model returns a list of one tensor if the file lists its output, as all releases
    before Keras 3.11 write it.

    :param is_called: whether the model is called when the file is loaded
    """
    is_chain = keras_objects.class_of(model) == SEQUENTIAL
    runs = is_called or not is_chain or _declares_input(model)
    layers = _layers(model)
    if is_chain and not runs and not (len(layers) > 1 and _starts_with_built_model(model)):
        return
    _, fails = _chain(layers) if is_chain else _graph(model)
    if fails:
        yield runs and fails == "always"
    for layer in layers:
        inner = keras_objects.arguments_of(layer).get("layer")
        for nested in (layer, inner):
            if isinstance(nested, dict) and _is_model(nested):
                yield from fails_on_list(nested, is_called=runs)


def _graph(model: Mapping[str, Json]) -> tuple[str, str | None]:
    """
    Return what a functional model returns (see :func:`_chain`), and when one of its layers fails
    on a tensor of one axis.
    """
    reduced: set[str] = set()
    for layer in _layers(model):
        inputs = {name for name, _ in tensors(layer.get("inbound_nodes"))}
        facts = layer_facts(str(keras_objects.class_of(layer)))
        if _is_model(layer):
            is_reduced = _returned(layer) == "axis"
        elif inputs.isdisjoint(reduced):
            continue
        elif facts.list_of_one in ("ranked", "shrunk"):
            return "tensor", "always"
        else:
            passes = facts.list_of_one in ("kept", "built", "late")
            is_reduced = passes or facts.category is Category.MERGING
        reduced |= {layer_name(layer)} if is_reduced else set()
    outputs = keras_objects.arguments_of(model).get("output_layers")
    if any(name in reduced for name, _ in tensors(outputs)):
        return "axis", None
    is_flat = isinstance(outputs, list) and outputs and isinstance(outputs[0], str)
    return "tensor" if is_flat else "list", None


def _starts_with_built_model(model: Mapping[str, Json]) -> bool:
    """Return whether Keras 3.5 and later build a Sequential for the inputs of its first model."""
    first = next(iter(_layers(model)), {})
    if keras_objects.class_of(first) != SEQUENTIAL:
        return _is_model(first)
    return _declares_input(first) or (len(_layers(first)) > 1 and _starts_with_built_model(first))


def _layers(model: Mapping[str, Json]) -> list[dict[str, Json]]:
    return [
        layer for layer in keras_objects.layer_list(model.get("config")) if isinstance(layer, dict)
    ]


def _declares_input(chain: Mapping[str, Json]) -> bool:
    """Return whether a Sequential declares the shape of its input."""
    arguments = keras_objects.arguments_of(chain)
    first = keras_objects.arguments_of(next(iter(_layers(chain)), {}))
    return (
        bool(arguments.get("build_input_shape"))
        or bool(chain.get("build_config"))
        or not first.keys().isdisjoint(("batch_shape", "batch_input_shape"))
    )


def lists_outputs(model: Mapping[str, Json]) -> bool:
    """Return whether a model returns a list of one tensor."""
    return _returned(model) == "list"


def _returned(model: Mapping[str, Json]) -> str:
    """Return the form of what a model returns; see :func:`_chain`."""
    is_chain = keras_objects.class_of(model) == SEQUENTIAL
    return (_chain(_layers(model)) if is_chain else _graph(model))[0]


def _chain(layers: Sequence[Mapping[str, Json]]) -> tuple[str, str | None]:
    """
    Return what a Sequential returns (``tensor``, ``list``, or ``axis`` for a tensor of one axis),
    and when one of its layers fails: ``always``, or ``late`` if Keras 3.0 loads it from an archive.
    """
    value = "tensor"
    fails = None
    for layer in layers:
        if _is_model(layer):
            value = _returned(layer)
            continue
        outcome = layer_facts(str(keras_objects.class_of(layer))).list_of_one
        is_last_axis = keras_objects.arguments_of(layer).get("axis", -1) in (-1, [-1], None)
        if value != "tensor" and outcome == "late" and layer.get("build_config"):
            value, fails = "tensor", "late"
            continue
        is_kept = outcome == "kept" or (outcome in ("built", "ranked") and is_last_axis)
        if value == "list" and outcome is not None:
            is_built = outcome == "kept" or bool(layer.get("build_config"))
            if not is_built or not (is_kept or outcome == "shrunk"):
                return value, "always"
            value = "list" if is_kept else "axis"
        elif value == "axis" and outcome in ("ranked", "shrunk"):
            return value, "always"
        elif outcome not in ("kept", "built"):
            value = "tensor"
    return value, fails


def mismatched_constants(
    config: Mapping[str, Json], *, projected: str | None = None
) -> Iterator[str]:
    """
    Yield the dtype of each tensor that an op layer of Keras 2 combines with a number on its left,
    as in ``1.0 - x``, if the dtype of the number (float32 or int32) differs. Tensors whose dtype is
    not in the config are skipped.

    :param projected: the dtype of the results of attention layers; None for that of their policies
    """
    entries = _entries(config)
    for entry in entries.values():
        if not layer_facts(keras_objects.class_of(entry)).is_op_layer:
            continue
        for node in keras_objects.stored_calls(entry):
            if not isinstance(node, list) or len(node) <= _VALUE or node[0] != CONSTANT:
                continue
            value = node[_VALUE]
            if isinstance(value, int | float):
                dtype = _tensor_dtype(next(tensors(node[_REFERENCE:]), None), entries, projected)
                if dtype not in {None, "float32" if isinstance(value, float) else "int32"}:
                    yield str(dtype)


def refuses_number(node: Mapping[str, Json], constants: Json) -> bool:
    """
    Return whether the op of an op layer of TF 1.15 to 2.3 needs a number in another dtype than
    float32 or int32, to which the releases convert it.
    """
    from policytool.releases import graph_ops  # only for graphs with these ops

    attributes = node.get("attr")
    dtypes = {
        OF_NODE_DEF[str(attribute["type"])]
        for attribute in (attributes.values() if isinstance(attributes, dict) else ())
        if isinstance(attribute, dict) and str(attribute.get("type")) in OF_NODE_DEF
    }
    numbers = map(_first_number, constants.values() if isinstance(constants, dict) else ())
    return bool(dtypes) and any(
        number is not None and not graph_ops.accepts(str(node.get("op")), number, dtypes)
        for number in numbers
    )


def _first_number(value: Json) -> int | float | None:
    """Return a number, or the first one in lists; None if it is neither."""
    while isinstance(value, list) and value:
        value = value[0]
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def mixed_attentions(config: Mapping[str, Json], *, projected: str | None = None) -> Iterator[str]:
    """
    Yield the global policy for the dtype of each tensor that an op layer of Keras 2 combines with
    the result of an attention layer, if the dtypes differ.

    :param projected: as for :func:`mismatched_constants`
    """
    entries = _entries(config)
    projecting = {
        name: policy
        for name, entry in entries.items()
        if layer_facts(keras_objects.class_of(entry)).makes_projections
        and (policy := keras_objects.policy_name(keras_objects.arguments_of(entry).get("dtype")))
    }
    for entry in entries.values() if projecting else ():
        if not layer_facts(keras_objects.class_of(entry)).is_op_layer:
            continue
        function = keras_objects.arguments_of(entry).get("function")
        if function not in _KEEPING_DTYPE | _JOINING:
            continue
        for call in keras_objects.stored_calls(entry):
            sources = [_source(node, entries) for node in tensors(call)]
            policies = {projecting[name] for name in sources if name in projecting}
            dtypes = {projected or policy.removeprefix(_MIXED) for policy in policies}
            for name in sources if policies else ():
                if name in entries and name not in projecting:
                    dtypes |= _result_dtypes(entries[name])
            for dtype in dtypes if len(dtypes) > 1 else ():
                default = f"{_MIXED}{dtype}" if dtype in _HALVES else dtype
                yield dtype if dtype in policies else default


def _result_dtypes(entry: Mapping[str, Json]) -> set[str]:
    """Return the dtype of the result of a layer; an empty set if it is unknown."""
    layer = keras_objects.arguments_of(entry).get("layer")
    inner = layer if isinstance(layer, dict) else entry
    if layer_facts(keras_objects.class_of(inner)).is_opaque or _is_model(inner):
        return set()
    dtype = _dtype(inner)
    return set() if dtype is None else {dtype}


def _source(node: Node, entries: Mapping[str, dict[str, Json]]) -> str:
    """Return the layer that creates a tensor, before op layers that keep the dtype of an input."""
    for _ in range(len(entries)):
        entry = entries.get(node[0])
        config = entry.get("config") if entry is not None else None
        if (
            entry is None
            or not isinstance(config, dict)
            or not layer_facts(keras_objects.class_of(entry)).is_op_layer
            or config.get("function") not in _KEEPING_DTYPE
        ):
            break
        following = next(tensors(entry.get("inbound_nodes")), None)
        if following is None:
            break
        node = following
    return node[0]


def _tensor_dtype(
    node: Node | None, entries: Mapping[str, dict[str, Json]], projected: str | None
) -> str | None:
    """
    Return the compute dtype of the layer that creates a tensor. For op layers, return the dtype of
    the first input tensor, or the dtype that a ``cast`` names.
    """
    for _ in range(len(entries)):
        entry = entries.get(node[0]) if node is not None else None
        config = entry.get("config") if entry is not None else None
        if entry is None or not isinstance(config, dict) or _is_model(entry):
            return None
        facts = layer_facts(keras_objects.class_of(entry))
        if not facts.is_op_layer:
            return projected if projected and facts.makes_projections else _dtype(entry)
        if config.get("function") not in _KEEPING_DTYPE:
            return None
        node = next(tensors(entry.get("inbound_nodes")), None)
    return None


def _entries(config: Mapping[str, Json]) -> dict[str, dict[str, Json]]:
    """Return the entries of the layers of a model, by name."""
    return {
        layer_name(entry): entry
        for entry in keras_objects.layer_list(config)
        if isinstance(entry, dict)
    }


def _layers_with_other_counts(entries: Mapping[str, dict[str, Json]]) -> set[str]:
    """Return the layers for which each reference counts as one to the first call."""
    nested_names = {inner for entry in entries.values() for inner in _below(entry)}
    return {layer for layer, entry in entries.items() if layer in nested_names or _is_model(entry)}


def _is_in_call_order(calls: Mapping[str, list[Json]], layers_with_other_counts: set[str]) -> bool:
    """
    Return whether each call uses only results of earlier calls, as in most files. This check avoids
    a topological sort, which needs 250 MB for a graph of half a million calls.
    """
    call_counts = {layer: 0 if nodes else 1 for layer, nodes in calls.items()}
    for layer, nodes in calls.items():
        for node in nodes:
            if any(
                call >= call_counts[other]
                for other, call in _sources(node, calls, layers_with_other_counts)
            ):
                return False
            call_counts[layer] += 1
    return True


def _callable_nodes(order: TopologicalSorter[Node]) -> Iterator[Node]:
    """Yield the calls that can be built."""
    with suppress(CycleError):  # calls before the cycle can still be built
        order.prepare()
    while callable_now := order.get_ready():
        yield from callable_now
        order.done(*callable_now)


def _sources(
    node: Json, calls: Mapping[str, list[Json]], layers_with_other_counts: set[str]
) -> Iterator[Node]:
    """Yield the calls that create the inputs of a call, if the config has their layers."""
    for layer, call in tensors(node):
        if layer in calls:
            yield layer, 0 if layer in layers_with_other_counts or call < 0 else call


def _is_model(entry: Mapping[str, Json]) -> bool:
    config = entry.get("config")
    if not isinstance(config, dict) or "layers" not in config:
        return isinstance(config, list)
    category = layer_facts(keras_objects.class_of(entry)).category
    return category is not Category.PREPROCESSING  # a Pipeline


def _below(entry: Mapping[str, Json]) -> Iterator[str]:
    """Yield the names of the layers of a nested model, and of those nested in it."""
    yield from map(layer_name, _entries_below(entry))


def _entries_below(entry: Mapping[str, Json]) -> Iterator[dict[str, Json]]:
    """Yield the entries of the layers of a nested model, and of those nested in it."""
    pending: list[Json] = [entry.get("config")] if _is_model(entry) else []
    while pending:
        for inner in keras_objects.layer_list(pending.pop()):
            if isinstance(inner, dict):
                yield inner
                if _is_model(inner):
                    pending.append(inner.get("config"))
