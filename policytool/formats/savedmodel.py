"""
SavedModel directories, with and without Keras metadata, read without TensorFlow.

The metadata of a Keras object is JSON: inside ``saved_model.pb`` for TF 2.0 to 2.4, in ``keras_metadata.pb`` from 2.6 on, in both for 2.5
(where loaders from 2.5 on obey ``keras_metadata.pb``). The object graph says which object holds which, and the variables' shapes and dtypes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from policytool import dtypes, limits, mistaken
from policytool.document import Document, Layout, Node, Observation, Signature, Tensor, Writer
from policytool.formats._base import Format, Probe, parse_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from policytool.jsontext import Json

GRAPH: Final = "saved_model.pb"
KERAS: Final = "keras_metadata.pb"
OWN_FILES: Final = frozenset({GRAPH, KERAS, "saved_model.pbtxt", "fingerprint.pb"})
"""Files that make a directory a SavedModel; a path to one of them stands for the directory."""

OWN_DIRECTORIES: Final = frozenset({"variables", "assets", "assets.extra"})
KERAS_PREFIX: Final = "_tf_keras_"
VARIABLE: Final = "variable"
_UTF8_REPLACEMENT: Final = b"\xef\xbf\xbd"
_VARIABLE_OPS: Final = frozenset({"VarHandleOp", "VariableV2", "Variable", "AutoReloadVariable"})
_INIT_SIGNATURE: Final = "__saved_model_init_op"


def recognise(probe: Probe) -> bool:
    """Return whether the directory holds a SavedModel's graph."""
    return bool({GRAPH, "saved_model.pbtxt"} & probe.names)


def read(probe: Probe) -> Document:
    """Return the document of a SavedModel."""
    if GRAPH not in probe.names:
        raise probe.failure(
            "savedmodel-text", f"is a SavedModel in protobuf's text form; expected {GRAPH}, which TensorFlow's SavedModel builder writes by default"
        )
    saved = _message(probe, GRAPH, "SavedModel")
    if not saved.meta_graphs:
        raise probe.failure("savedmodel-empty", f"{GRAPH} holds no graph; expected what tf.saved_model.save or model.save writes")
    graph = saved.meta_graphs[0]
    observations: list[Observation] = []
    if len(saved.meta_graphs) > 1:
        observations.append(
            Observation(code="several-graphs", message=f"{GRAPH} holds {len(saved.meta_graphs)} graphs; the first one is reported", where=GRAPH)
        )
    parts, places = _metadata(probe, graph.object_graph, observations)
    has_keras = any(isinstance(part, dict) and isinstance(part.get("class_name"), str) for part in parts.values())
    return Document(
        path=probe.shown,
        format="savedmodel",
        parts=parts,
        config_part=places.get(0, next(iter(parts))) if has_keras else None,
        layout=Layout.GRAPH if has_keras else Layout.SCOPES,
        tensors=() if has_keras else tuple(_scoped_tensors(probe, graph)),
        nodes=_nodes(graph.object_graph, parts, places) if has_keras else {},
        signatures=tuple(_signatures(graph)),
        writer=Writer(tensorflow=_text(graph.meta_info.tensorflow_version) or None, backend="tensorflow"),
        observations=tuple(observations),
    )


def _message(probe: Probe, file: str, kind: str) -> Any:  # message classes made at run time have no static type
    from policytool import protobuf_messages  # protobuf is only for SavedModels

    path = probe.path / file
    size = path.stat().st_size
    if size > limits.MAX_PROTO_BYTES:
        raise probe.failure("proto-limit", f"{file} has {size} bytes; protobuf allows {limits.MAX_PROTO_BYTES}")
    data = path.read_bytes()
    if found := mistaken.download(data[:4096]):
        raise probe.failure(found[0], f"{file} {found[1]}")
    try:
        return protobuf_messages.parse(kind, data)
    except ValueError as error:
        if _UTF8_REPLACEMENT in data[:4096]:
            message = f"{file} was passed through a text tool, which replaced its bytes by U+FFFD; copy the original in binary mode"
            raise probe.failure("mangled", message) from error
        raise probe.failure("truncated", f"{file} is no protobuf message of a SavedModel: truncated or foreign; copy or download it again") from error


def _metadata(probe: Probe, graph: Any, observations: list[Observation]) -> tuple[Mapping[str, Json], dict[int, str]]:
    """Return the JSON metadata by part, and the part of each Keras node; what TF 2.5 writes to both files is two parts, and the one that it obeys counts."""
    if len(graph.nodes) > limits.MAX_OBJECT_NODES:
        raise probe.failure("proto-limit", f"{GRAPH} holds {len(graph.nodes)} objects; at most {limits.MAX_OBJECT_NODES} are read")
    texts = {
        index: (GRAPH, node.user_object.metadata)
        for index, node in enumerate(graph.nodes)
        if node.user_object.identifier.startswith(KERAS_PREFIX.encode()) and node.user_object.metadata
    }
    others: dict[int, bytes] = {}
    if KERAS in probe.names:
        for node in _message(probe, KERAS, "KerasMetadata").nodes:
            inner = texts.get(node.node_id)
            if inner and inner[1] != node.metadata:
                observations.append(
                    Observation(
                        code="metadata-differs",
                        message=f"{KERAS} and {GRAPH} describe node {node.node_id} differently; TF 2.5 on obeys {KERAS}, TF 2.4 the other",
                        where=f"{KERAS}#{node.node_id}",
                    )
                )
            if 0 <= node.node_id < len(graph.nodes):
                if inner and inner[0] == GRAPH:
                    others[node.node_id] = inner[1]
                texts[node.node_id] = (KERAS, node.metadata)
    total = sum(len(text) for _, text in texts.values())
    if total > limits.MAX_JSON_BYTES:
        raise probe.failure("json-limit", f"holds {total} bytes of JSON metadata; at most {limits.MAX_JSON_BYTES} are read")
    parts = {f"{file}#{index}": parse_json(probe, text, f"{file}#{index}", observations) for index, (file, text) in texts.items()}
    for index, text in others.items():
        same = parts[f"{KERAS}#{index}"] if text == texts[index][1] else None
        parts[f"{GRAPH}#{index}"] = same if same is not None else parse_json(probe, text, f"{GRAPH}#{index}", observations)
    return parts, {index: f"{file}#{index}" for index, (file, _) in texts.items()}


def _nodes(graph: Any, parts: Mapping[str, Json], places: Mapping[int, str]) -> dict[int, Node]:
    return {
        index: Node(
            id=index,
            identifier=VARIABLE if node.HasField("variable") else _text(node.user_object.identifier),
            children=tuple((_text(edge.local_name), edge.node_id) for edge in node.children if 0 <= edge.node_id < len(graph.nodes)),
            part=places.get(index),
            other_part=other if (other := f"{GRAPH}#{index}") in parts and other != places.get(index) else None,
            variable=_variable(index, node.variable) if node.HasField("variable") else None,
        )
        for index, node in enumerate(graph.nodes)
    }


def _variable(index: int, variable: Any) -> Tensor:
    return Tensor(path=tuple(_text(variable.name).split("/")), shape=_shape(variable.shape), dtype=_dtype(variable.dtype), node=index)


def _shape(shape: Any) -> tuple[int, ...] | None:
    return None if shape.unknown_rank else tuple(dimension.size for dimension in shape.dims)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _dtype(number: int) -> str:
    return dtypes.OF_TENSORFLOW_ENUM.get(number % 100, "unknown")  # numbers above 100 are references (types.proto)


def _scoped_tensors(probe: Probe, graph: Any) -> Iterator[Tensor]:
    """Yield the variables of a model without Keras metadata: from the object graph, else from the graph's variable ops (TF 1)."""
    from policytool import protobuf_messages

    if graph.object_graph.nodes:
        local_names = {edge.node_id: _text(edge.local_name) for node in graph.object_graph.nodes for edge in node.children}
        for index, node in enumerate(graph.object_graph.nodes):
            if node.HasField("variable"):
                name = _text(node.variable.name) or local_names.get(index, f"variable_{index}")
                yield Tensor(path=tuple(name.removesuffix(":0").split("/")), shape=_shape(node.variable.shape), dtype=_dtype(node.variable.dtype), node=index)
        return
    try:
        definition = protobuf_messages.parse("GraphDef", graph.graph_def)
    except ValueError as error:
        raise probe.failure("truncated", f"the graph in {GRAPH} is damaged; copy or download it again") from error
    for node in definition.nodes:
        if _text(node.op) in _VARIABLE_OPS:
            attributes = {_text(entry.key): entry.value for entry in node.attributes}
            dtype = _dtype(attributes["dtype"].type) if "dtype" in attributes else "unknown"
            yield Tensor(path=tuple(_text(node.name).split("/")), shape=_shape(attributes["shape"].shape) if "shape" in attributes else None, dtype=dtype)


def _signatures(graph: Any) -> Iterator[Signature]:
    for entry in sorted(graph.signatures, key=lambda entry: entry.key):
        if _text(entry.key) == _INIT_SIGNATURE:  # an initialisation op, which nobody calls by name
            continue
        inputs = {_text(tensor.key): _dtype(tensor.value.dtype) for tensor in sorted(entry.value.inputs, key=lambda tensor: tensor.key)}
        outputs = {_text(tensor.key): _dtype(tensor.value.dtype) for tensor in sorted(entry.value.outputs, key=lambda tensor: tensor.key)}
        yield Signature(name=_text(entry.key), inputs=inputs, outputs=outputs)


FORMAT: Final = Format(name="savedmodel", title="SavedModel", recognise=recognise, read=read)
