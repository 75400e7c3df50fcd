"""
SavedModel directories, with and without Keras metadata, read without TensorFlow.

The metadata of a Keras object is JSON: inside ``saved_model.pb`` for TF 2.0 to 2.4, in
``keras_metadata.pb`` from 2.6 on, in both for 2.5 (releases from 2.5 on read
``keras_metadata.pb``). Exports of TF 1 have the model's architecture among their assets. The object
graph contains the children of each object, and the variables' shapes and dtypes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from policytool.formats.base import Probe, failed_download, is_serialised, parse_json
from policytool.formats.document import (
    Document,
    Endpoint,
    EndpointArgument,
    Layout,
    ObjectNode,
    Observation,
    Signature,
    Tensor,
    Writer,
)
from policytool.formats.saved_model import (
    CHECKPOINT,
    GRAPH,
    KERAS,
    KERAS_PREFIX,
    MISSING,
    SLOTS,
    is_without_graph,
)
from policytool.formats.saved_model import graph as _graph
from policytool.formats.saved_model.graph_bodies import OP, TableReader, text
from policytool.releases import dtypes, keras_objects
from policytool.support import limits
from policytool.support.files import opening
from policytool.support.text import jsontext

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from policytool.formats.document import Trace
    from policytool.support.text.jsontext import Json

ARCHITECTURE: Final = "assets/saved_model.json"
"""The file in which ``export_saved_model`` of TF 1.13 to 2.0 stores the model's ``to_json()``."""

SERVE: Final = b"serve"
"""The tag of the graph that releases load (tensorflow/python/saved_model/tag_constants.py)."""

VARIABLE: Final = "variable"
COPIES: Final = "_all_variables"
"""
The attribute in which ``export`` of Keras 3 stores copies of all variables
(keras/src/export/saved_model.py).
"""

_ARGUMENT_KINDS: Final = {
    "tensor": EndpointArgument.TENSOR,
    "list": EndpointArgument.LIST,
    "dict": EndpointArgument.DICT,
}
"""The fields of ``ArgumentKind``."""

_MOST_TRACES: Final = 8
"""The number of traces of a function that are compared; ``model.export`` writes one."""

_UTF8_REPLACEMENT: Final = b"\xef\xbf\xbd"


def read(probe: Probe) -> Document:
    """Return the document of a SavedModel."""
    from policytool.formats.saved_model import graph_bodies

    if is_without_graph(probe.path, probe.names):
        raise probe.failure(
            "savedmodel-graphless",
            f"is a SavedModel without {GRAPH}; copy {GRAPH} from the original model, or "
            f"specify {KERAS} to read only the policies",
        )
    if GRAPH not in probe.names:
        raise probe.failure(
            "savedmodel-text",
            f"is a SavedModel in protobuf text format; expected {GRAPH}, which TensorFlow's "
            "SavedModel builder writes by default",
        )
    saved = _message(probe, GRAPH, "SavedModel")
    if not saved.meta_graphs:
        raise probe.failure(
            "savedmodel-empty",
            (
                f"{GRAPH} contains no graph; expected a SavedModel written by "
                "tf.saved_model.save or model.save"
            ),
        )
    probe.check_limit(limits.GRAPHS, len(saved.meta_graphs), "proto-limit", "has")
    observations: list[Observation] = []
    graph = _serving_graph(saved.meta_graphs, observations)
    parts, part_by_node = _metadata(probe, graph.object_graph, observations)
    definition = _definition(probe, graph)
    has_keras = any(
        keras_objects.class_of(parts[place]) is not None for place in part_by_node.values()
    )
    config_part = part_by_node.get(0, next(iter(part_by_node.values()))) if has_keras else None
    if not has_keras and (architecture := _architecture(probe, observations)) is not None:
        parts, config_part = (
            {**parts, ARCHITECTURE: architecture},
            ARCHITECTURE,
        )  # Keras may read the other parts as its own, whatever they contain
    tensors = () if has_keras else tuple(_scoped_tensors(probe, graph, definition, observations))
    nodes = _nodes(graph.object_graph, parts, part_by_node) if has_keras else {}
    restored = (
        _restored_values(probe, graph.object_graph, observations)
        if tensors or nodes  # TensorFlow reads the checkpoint of a model without variables too
        else {}
    )
    ops = _ops(probe, saved.meta_graphs, graph, definition, observations)
    observations += graph_bodies.escaping_assets(probe, saved.meta_graphs)
    observations += _optimizer_slots(graph.object_graph)
    return Document(
        path=probe.shown,
        format="savedmodel",
        parts=parts,
        config_part=config_part,
        config_file=GRAPH if config_part is None else config_part.partition("#")[0],
        layout=Layout.GRAPH if has_keras else Layout.SCOPES,
        tensors=tensors,
        vocabularies=TableReader(
            probe, graph, definition, frozenset(_inverting(parts, part_by_node))
        ).vocabularies()
        if has_keras
        else {},
        restored=restored,
        nodes=nodes,
        signatures=tuple(_signatures(graph)),
        traces=_traces(graph, definition, observations),
        ops=ops,
        numbered=not has_keras and _is_export(graph.object_graph),
        writer=Writer(
            tensorflow=text(graph.meta_info.tensorflow_version) or None, backend="tensorflow"
        ),
        observations=tuple(observations),
    )


def _serving_graph(graphs: Any, observations: list[Observation]) -> Any:
    """
    Return the graph with the tag for serving, or else the first graph. TF 1 also exports graphs for
    training and evaluation.
    """
    if len(graphs) == 1:
        return graphs[0]
    tags = [", ".join(text(tag) for tag in graph.meta_info.tags) or "no tag" for graph in graphs]
    chosen = next((index for index, graph in enumerate(graphs) if SERVE in graph.meta_info.tags), 0)
    observations.append(
        Observation(
            code="several-graphs",
            message=(
                f"{GRAPH} contains {len(graphs)} graphs ({'; '.join(tags)}); only the graph tagged "
                f"{tags[chosen]} is reported"
            ),
            where=GRAPH,
        )
    )
    return graphs[chosen]


def _inverting(parts: Mapping[str, Json], part_by_node: Mapping[int, str]) -> Iterator[int]:
    """Yield the nodes of lookup layers that map numbers to words."""
    for index, place in part_by_node.items():
        if keras_objects.arguments_of(parts[place]).get("invert") is True:
            yield index


def _restored_values(
    probe: Probe, objects: Any, observations: list[Observation]
) -> Mapping[int, Tensor | None]:
    """Return the stored values of the objects in the graph, if no file of the checkpoint lacks."""
    missing = list(_missing_files(probe))
    observations += missing
    if missing or not objects.nodes:
        return {}
    from policytool.formats.saved_model import checkpoint_entries  # only for graphs with variables

    return checkpoint_entries.restored_values(probe, objects, observations)


def _missing_files(probe: Probe) -> Iterator[Observation]:
    """
    Report a missing file of the checkpoint: its index, or a shard. The names of the shards contain
    their number.
    """
    folder, name = probe.path / CHECKPOINT[0], CHECKPOINT[1]
    existing_names = opening.names(folder) if opening.is_directory(folder) else frozenset()
    counts = {
        int(match[1])
        for entry in existing_names
        if (match := re.fullmatch(rf"{name}\.data-\d{{5}}-of-(\d{{5}})", entry))
    }
    # only the first missing shard of each set, because names may claim any number of shards
    missing_names = [
        shard
        for shard in (
            next((shard for shard in _shards(count) if shard not in existing_names), None)
            for count in counts or {1}
        )
        if shard is not None
    ]
    if f"{name}.index" not in existing_names:
        missing_names.append(f"{name}.index")
    if missing_names:
        yield Observation(
            code=MISSING,
            message=(
                f"{CHECKPOINT[0]}/{min(missing_names)} is missing; the model has no values for "
                "its variables and cannot be loaded"
            ),
            where=CHECKPOINT[0],
        )


def _shards(count: int) -> Iterator[str]:
    """Yield the names of a checkpoint's shards in order."""
    return (f"{CHECKPOINT[1]}.data-{shard:05}-of-{count:05}" for shard in range(count))


def _architecture(probe: Probe, observations: list[Observation]) -> Json:
    """
    Return the architecture that TF 1 exports next to the graph; None if the file does not exist or
    contains something else.
    """
    if not opening.is_file(probe.path / ARCHITECTURE):
        return None
    config = parse_json(
        probe,
        probe.content(limits.JSON_BYTES, "json-limit", f"has an {ARCHITECTURE} of", ARCHITECTURE),
        ARCHITECTURE,
        observations,
    )
    return config if is_serialised(config) else None


def edges(probe: Probe) -> Mapping[int, tuple[tuple[str, int], ...]]:
    """
    Return the edges of the object graph by node, even if it contains no Keras object.

    :raises ModelFileError: if the graph cannot be read.
    """
    saved = _message(probe, GRAPH, "SavedModel")
    nodes = _serving_graph(saved.meta_graphs, []).object_graph.nodes if saved.meta_graphs else ()
    return {
        index: tuple(
            (text(edge.local_name), edge.node_id)
            for edge in node.children
            if 0 <= edge.node_id < len(nodes)
        )
        for index, node in enumerate(nodes)
    }


def _message(
    probe: Probe, file: str, kind: str
) -> Any:  # message classes made at run time have no static type
    """Return a parsed protobuf file of the model."""
    from policytool.support.text import protobuf_messages  # protobuf is only for SavedModels

    data = probe.content(limits.PROTO_BYTES, "proto-limit", f"has a {file} of", file)
    if problem := failed_download(data[:4096]):
        raise probe.failure(problem[0], f"{file} {problem[1]}")
    try:
        return protobuf_messages.parse(kind, data)
    except protobuf_messages.MessagesError as error:
        raise probe.failure("proto-limit", f"has a {file} of {error}") from error
    except ValueError as error:
        if _UTF8_REPLACEMENT in data[:4096]:
            raise probe.failure(
                "mangled",
                (
                    f"{file} was damaged by a text tool, which replaced bytes with U+FFFD; copy "
                    "the original in binary mode"
                ),
            ) from error
        raise probe.failure(
            "truncated",
            f"{file} is truncated or is not the protobuf message of a SavedModel; copy or "
            "download it again",
        ) from error


def _metadata(
    probe: Probe, graph: Any, observations: list[Observation]
) -> tuple[Mapping[str, Json], dict[int, str]]:
    """
    Return the JSON metadata by part, and the part of each Keras node.

    TF 2.5 writes metadata to both files. These are two parts, and a node has the part that TF 2.5
    reads.
    """
    probe.check_limit(limits.OBJECT_NODES, len(graph.nodes), "proto-limit", "has")
    in_graph = {
        index: node.user_object.metadata
        for index, node in enumerate(graph.nodes)
        if node.user_object.identifier.startswith(KERAS_PREFIX.encode())
        and node.user_object.metadata
    }
    # Keras builds the described object before it looks for the node, which may be missing
    in_file = (
        {node.node_id: node.metadata for node in _message(probe, KERAS, "KerasMetadata").nodes}
        if KERAS in probe.names
        else {}
    )
    texts = {**in_graph, **in_file}
    size = sum(len(text) for text in texts.values())
    probe.check_limit(limits.JSON_BYTES, size, "json-limit", "has JSON metadata of")
    part_by_node = {index: f"{KERAS if index in in_file else GRAPH}#{index}" for index in texts}
    parts = {
        part_by_node[index]: parse_json(probe, text, part_by_node[index], observations)
        for index, text in texts.items()
    }
    for index, metadata in in_file.items():
        if index in in_graph:
            keras, place = parts[part_by_node[index]], f"{GRAPH}#{index}"
            if in_graph[index] == metadata:
                parts[place] = keras
                continue
            parts[place] = parse_json(probe, in_graph[index], place, observations)
            if _without_numbers(parts[place]) != _without_numbers(keras):
                observations.append(_different_metadata(index))
    count = len(graph.nodes)
    observations += [_stray_metadata(index) for index in texts if not 0 <= index < count]
    return parts, {index: place for index, place in part_by_node.items() if 0 <= index < count}


def _optimizer_slots(objects: Any) -> Iterator[Observation]:
    """
    Yield the observation that an optimizer has slot variables, as those of TF 2.10 and older and of
    ``keras.optimizers.legacy`` do. TensorFlow calls ``add_slot`` of the optimizer while it loads
    any SavedModel, and only Keras 2 registers a class for it. TF 2.16 and later import it from
    tf_keras (tensorflow/python/saved_model/load.py; measured in TF 2.4 to 2.15, and in TF 2.16 and
    2.21 with and without tf_keras).
    """
    if any(node.slots for node in objects.nodes):
        yield Observation(
            code=SLOTS,
            message="tf.saved_model.load and TFSMLayer of TF 2.16 and later need the package "
            "tf_keras to load it, because it has slot variables of an optimizer",
            where=GRAPH,
        )


def _different_metadata(index: int) -> Observation:
    """Return the observation that the two files describe a node differently."""
    return Observation(
        code="metadata-differs",
        message=f"{KERAS} and {GRAPH} describe node {index} differently; TF 2.5 and later "
        f"use {KERAS}, and TF 2.4 uses {GRAPH}",
        where=f"{KERAS}#{index}",
    )


def _stray_metadata(index: int) -> Observation:
    """Return the observation that the graph does not contain an object with metadata."""
    return Observation(
        code="stray-metadata",
        message=f"{KERAS} describes the object {index}, which is missing from the graph; "
        "Keras builds the object anyway",
        where=f"{KERAS}#{index}",
    )


def _without_numbers(value: Json) -> Json:
    """
    Return metadata without the numbers of its objects, which TF 2.5 may write only to
    ``keras_metadata.pb``.
    """
    return jsontext.without(value, keras_objects.SHARED_ID)


def _nodes(
    graph: Any, parts: Mapping[str, Json], part_by_node: Mapping[int, str]
) -> dict[int, ObjectNode]:
    """Return the objects of a graph by number."""
    return {
        index: ObjectNode(
            id=index,
            identifier=VARIABLE if node.HasField("variable") else text(node.user_object.identifier),
            children=tuple(
                (text(edge.local_name), edge.node_id)
                for edge in node.children
                if 0 <= edge.node_id < len(graph.nodes)
            ),
            part=part_by_node.get(index),
            other_part=other
            if (other := f"{GRAPH}#{index}") in parts and other != part_by_node.get(index)
            else None,
            variable=_variable(index, node.variable) if node.HasField("variable") else None,
        )
        for index, node in enumerate(graph.nodes)
    }


def _variable(index: int, variable: Any) -> Tensor:
    return Tensor(
        path=tuple(text(variable.name).split("/")),
        shape=_shape(variable.shape),
        dtype=_dtype(variable.dtype),
        node=index,
    )


def _shape(shape: Any) -> tuple[int, ...] | None:
    return None if shape.unknown_rank else tuple(dimension.size for dimension in shape.dims)


def _open_shape(tensor: Any) -> tuple[int | None, ...] | None:
    """Return the shape of a tensor of a graph, in which -1 stands for a size that is not fixed."""
    sizes = _shape(tensor.shape)
    return None if sizes is None else tuple(None if size < 0 else size for size in sizes)


def _dtype(number: int) -> str:
    return dtypes.OF_TENSORFLOW_ENUM.get(
        number % 100, "unknown"
    )  # numbers above 100 are references (types.proto)


def _definition(probe: Probe, graph: Any) -> Any:
    """
    Return the graph definition. It is most of the file, and is parsed only after the other parts
    were checked.
    """
    from policytool.support.text import protobuf_messages

    try:
        return protobuf_messages.parse("GraphDef", b"".join(graph.graph_def))
    except protobuf_messages.MessagesError as error:
        raise probe.failure("proto-limit", f"has a graph of {error}") from error
    except ValueError as error:
        raise probe.failure(
            "truncated", f"the graph in {GRAPH} is damaged; copy or download the file again"
        ) from error


def _ops(
    probe: Probe, graphs: Any, served: Any, definition: Any, observations: list[Observation]
) -> frozenset[str]:
    """
    Return the kinds of ops in all graphs, because TensorFlow may load another graph than the
    reported one. The names of functions, which are called like ops, are not included.
    """
    from policytool.formats.saved_model import graph_paths
    from policytool.releases import symbols  # as in read

    op_names: set[bytes] = set()
    for graph in graphs:
        message = definition if graph is served else _definition(probe, graph)
        main_ops = set(map(OP, message.nodes))
        for function in message.library.functions:
            main_ops.update(map(OP, function.nodes))
        if not main_ops.isdisjoint(symbols.placed_ops()):
            observations += graph_paths.observe_ops(graph, message)
        op_names |= main_ops.difference(
            function.signature.name for function in message.library.functions
        )
    return frozenset(map(text, op_names))


def _traces(graph: Any, definition: Any, observations: list[Observation]) -> tuple[Trace, ...]:
    """Return the traces of a graph; none, with an observation, if the graph exceeds a limit."""
    try:
        return _graph.traces(graph, definition)
    except _graph.GraphLimitError as error:
        observations.append(
            Observation(
                code="graph-limit",
                message=f"the traced dtypes were not read: the graph {error}",
                where=GRAPH,
            )
        )
        return ()


def _scoped_tensors(
    probe: Probe, graph: Any, definition: Any, observations: list[Observation]
) -> Iterator[Tensor]:
    """
    Yield the variables of a model without Keras metadata: from the object graph, or else from the
    variable ops of the graph (TF 1).
    """
    if graph.object_graph.nodes:
        local_names = {
            edge.node_id: text(edge.local_name)
            for node in graph.object_graph.nodes
            for edge in node.children
        }
        copies = _copies(graph.object_graph)
        if copies:
            observations.append(
                Observation(
                    code="variable-copies",
                    message=(
                        f"{len(copies)} of the variables are copies that no function reads, "
                        "because Keras 3 exports each variable twice; copies are not counted"
                    ),
                )
            )
        for index, node in enumerate(graph.object_graph.nodes):
            if node.HasField("variable") and index not in copies:
                name = text(node.variable.name) or local_names.get(index, f"variable_{index}")
                yield Tensor(
                    path=probe.tensor_path(name.removesuffix(":0"), "proto-limit"),
                    shape=_shape(node.variable.shape),
                    dtype=_dtype(node.variable.dtype),
                    node=index,
                )
        return
    for index, node in enumerate(definition.nodes):
        if text(node.op) in _graph.VARIABLE_OPS:
            attributes = {text(entry.key): entry.value for entry in node.attributes}
            yield Tensor(
                path=probe.tensor_path(text(node.name), "proto-limit"),
                shape=(_shape(attributes["shape"].shape) if "shape" in attributes else None),
                dtype=(_dtype(attributes["dtype"].type) if "dtype" in attributes else "unknown"),
                node=index,
            )


def _is_export(objects: Any) -> bool:
    """Return whether the root object was created by Keras 3's ``export``."""
    return bool(objects.nodes) and {
        text(edge.local_name) for edge in objects.nodes[0].children
    } >= {COPIES, "variables", "trainable_variables"}


def _copies(objects: Any) -> frozenset[int]:
    """
    Return the variables in the list of copies by Keras 3's ``export`` that no function reads.
    """
    if not _is_export(objects):
        return frozenset()
    edges = {text(edge.local_name): edge.node_id for edge in objects.nodes[0].children}
    if not 0 <= edges[COPIES] < len(objects.nodes):
        return frozenset()
    read = {number for entry in objects.concrete_functions for number in entry.value.bound_inputs}
    return frozenset(edge.node_id for edge in objects.nodes[edges[COPIES]].children) - read


def _signatures(graph: Any) -> Iterator[Signature]:
    """Return the signatures of a graph, sorted by name."""
    endpoints = _root_endpoints(graph.object_graph)
    for entry in sorted(graph.signatures, key=lambda entry: entry.key):
        if _graph.is_internal(entry.key):
            continue
        inputs, outputs = (
            {text(tensor.key): tensor.value for tensor in sorted(side, key=lambda side: side.key)}
            for side in (entry.value.inputs, entry.value.outputs)
        )
        yield Signature(
            name=text(entry.key),
            inputs={key: _dtype(tensor.dtype) for key, tensor in inputs.items()},
            outputs={key: _dtype(tensor.dtype) for key, tensor in outputs.items()},
            input_shapes={key: _open_shape(tensor) for key, tensor in inputs.items()},
            output_shapes={key: _open_shape(tensor) for key, tensor in outputs.items()},
            endpoint=endpoints.get(text(entry.key)),
        )


def _root_endpoints(objects: Any) -> Mapping[str, Endpoint]:
    """
    Return the functions that the root object has and that one argument calls, by name, such as
    ``serve``, which ``model.export`` writes. ``keras.layers.TFSMLayer`` calls them instead of the
    signature of this name.
    """
    if not objects.nodes:
        return {}
    concrete = {entry.key: entry.value for entry in objects.concrete_functions}
    endpoints = {}
    for edge in objects.nodes[0].children:
        if 0 <= edge.node_id < len(objects.nodes):
            names = objects.nodes[edge.node_id].function.concrete_functions[:_MOST_TRACES]
            found = {
                _endpoint(concrete[name].inputs) if name in concrete else None for name in names
            }
            if len(found) == 1 and (endpoint := found.pop()) is not None:
                endpoints[text(edge.local_name)] = endpoint
    return endpoints


def _endpoint(parts: Any) -> Endpoint | None:
    """
    Return a concrete function; None if one argument does not call it. ``Model.call`` has further
    arguments, ``training`` and ``mask``, whose defaults are None.
    """
    from policytool.support.text import protobuf_messages  # protobuf is only for SavedModels

    try:
        structure = protobuf_messages.parse("FunctionInputs", b"".join(parts))
    except (ValueError, protobuf_messages.MessagesError):
        return None  # damaged or huge; only advice depends on it
    # a tuple of the positional arguments, which are a tuple, and of the keyword arguments
    arguments: Any = structure.tuple.values[0].tuple.values if structure.tuple.values else ()
    if not arguments or not all(argument.HasField("none") for argument in arguments[1:]):
        return None
    kind = next(
        (kind for field, kind in _ARGUMENT_KINDS.items() if arguments[0].HasField(field)), None
    )
    if kind is None:
        return None
    return Endpoint(
        argument=kind,
        names=(
            *(text(value.tensor.name) for value in arguments[0].list.values),
            *sorted(text(field.key) for field in arguments[0].dict.fields),
        ),
    )
