"""
The protobuf messages of TensorFlow's SavedModels and checkpoints. The message classes are created
at run time, under a separate package name.

Only the fields that policytool uses are declared: with the full schema, parsing needs 5.8 times the
size of the file in memory. Other fields are kept as unknown fields, which protobuf writes again.
Graphs are the largest part and stay bytes until they are parsed separately.

Sources:
tensorflow/core/protobuf/{saved_model,meta_graph,saved_object_graph,struct,trackable_object_graph,tensor_bundle}.proto,
tensorflow/core/framework/{graph,node_def,attr_value,tensor_shape,tensor_slice,versions}.proto,
keras/protobuf/saved_metadata.proto.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory

from policytool.support import limits
from policytool.support.text.protobuf_splice import DELIMITED, FIXED, MORE, VARINT

if TYPE_CHECKING:
    from collections.abc import Mapping

PACKAGE: Final = "policytool.messages"

MESSAGES: Final[Mapping[str, tuple[tuple[int, str, str], ...]]] = {
    "SavedModel": ((2, "meta_graphs", "repeated MetaGraph"),),
    "MetaGraph": (
        (1, "meta_info", "MetaInfo"),
        (2, "graph_def", "repeated bytes"),
        (3, "saver", "Saver"),
        (4, "collections", "repeated CollectionEntry"),
        (5, "signatures", "repeated SignatureEntry"),
        (6, "assets", "repeated AssetFile"),
        (7, "object_graph", "ObjectGraph"),
    ),
    "MetaInfo": ((4, "tags", "repeated bytes"), (5, "tensorflow_version", "bytes")),
    "Saver": ((1, "filename_tensor", "bytes"), (3, "restore_op", "bytes")),
    "AssetFile": ((1, "tensor", "TensorInfo"), (2, "filename", "bytes")),
    "CollectionEntry": ((1, "key", "bytes"), (2, "value", "Collection")),
    "Collection": (
        (1, "nodes", "NameList"),
        (2, "bytes", "Empty"),
        (3, "ints", "Empty"),
        (4, "floats", "Empty"),
        (5, "any", "AnyList"),
    ),
    "NameList": ((1, "names", "repeated bytes"),),
    "AnyList": ((1, "values", "repeated Any"),),
    "Any": ((1, "type_url", "bytes"), (2, "value", "bytes")),
    "SignatureEntry": ((1, "key", "bytes"), (2, "value", "Signature")),
    "Signature": ((1, "inputs", "repeated TensorEntry"), (2, "outputs", "repeated TensorEntry")),
    "TensorEntry": ((1, "key", "bytes"), (2, "value", "TensorInfo")),
    "TensorInfo": (
        (1, "name", "bytes"),
        (2, "dtype", "int32"),
        (3, "shape", "Shape"),
        (4, "sparse", "SparseInfo"),
        (5, "composite", "CompositeInfo"),
    ),
    "SparseInfo": ((1, "values", "bytes"), (2, "indices", "bytes"), (3, "shape", "bytes")),
    "CompositeInfo": ((2, "components", "repeated TensorInfo"),),
    "ObjectGraph": (
        (1, "nodes", "repeated Object"),
        (2, "concrete_functions", "repeated ConcreteFunctionEntry"),
    ),
    "Object": (
        (1, "children", "repeated Edge"),
        (3, "slots", "repeated SlotVariable"),
        (4, "user_object", "UserObject"),
        (5, "asset", "AssetNumber"),
        (6, "function", "CallableFunction"),
        (7, "variable", "Variable"),
        (8, "bare_function", "BareFunction"),
        (9, "constant", "ConstantName"),
        (10, "resource", "Empty"),
        (12, "captured", "Empty"),
    ),
    "Empty": (),
    "AssetNumber": ((1, "index", "int32"),),
    "ConstantName": ((1, "operation", "bytes"),),
    "CallableFunction": ((1, "concrete_functions", "repeated bytes"),),
    "BareFunction": ((1, "concrete_function", "bytes"),),
    "ConcreteFunctionEntry": ((1, "key", "bytes"), (2, "value", "ConcreteFunction")),
    "ConcreteFunction": ((2, "bound_inputs", "repeated int32"), (3, "inputs", "repeated bytes")),
    "FunctionInputs": ((52, "tuple", "ArgumentTuples"),),
    "ArgumentTuples": ((1, "values", "repeated ArgumentTuple"),),
    "ArgumentTuple": ((52, "tuple", "Arguments"),),
    "Arguments": ((1, "values", "repeated ArgumentKind"),),
    "ArgumentKind": (
        (1, "none", "Empty"),
        (33, "tensor", "TensorSpec"),
        (51, "list", "ArgumentList"),
        (53, "dict", "ArgumentDict"),
    ),
    "ArgumentList": ((1, "values", "repeated ArgumentItem"),),
    "ArgumentDict": ((1, "fields", "repeated ArgumentField"),),
    "ArgumentField": ((1, "key", "bytes"),),
    "ArgumentItem": ((33, "tensor", "TensorSpec"),),
    "TensorSpec": ((1, "name", "bytes"),),
    "Edge": ((1, "node_id", "int32"), (2, "local_name", "bytes")),
    "UserObject": ((1, "identifier", "bytes"), (3, "metadata", "bytes")),
    "Variable": ((1, "dtype", "int32"), (2, "shape", "Shape"), (6, "name", "bytes")),
    "Shape": ((2, "dims", "repeated Dimension"), (3, "unknown_rank", "bool")),
    "Dimension": ((1, "size", "int64"),),
    "KerasMetadata": ((1, "nodes", "repeated KerasNode"),),
    "KerasNode": (
        (2, "node_id", "int32"),
        (3, "node_path", "bytes"),
        (4, "identifier", "bytes"),
        (5, "metadata", "bytes"),
    ),
    "GraphDef": ((1, "nodes", "repeated GraphNode"), (2, "library", "FunctionLibrary")),
    "FunctionLibrary": (
        (1, "functions", "repeated Function"),
        (2, "gradients", "repeated Gradient"),
        (3, "registered_gradients", "repeated RegisteredGradient"),
    ),
    "Gradient": ((2, "gradient", "bytes"),),
    "RegisteredGradient": ((1, "gradient", "bytes"),),
    "Function": (
        (1, "signature", "FunctionSignature"),
        (3, "nodes", "repeated GraphNode"),
        (5, "attributes", "repeated AttributeEntry"),
    ),
    "FunctionSignature": (
        (1, "name", "bytes"),
        (2, "arguments", "repeated FunctionArgument"),
        (4, "attributes", "repeated SignatureAttribute"),
    ),
    "FunctionArgument": (
        (1, "name", "bytes"),
        (5, "number_attribute", "bytes"),
        (6, "type_list_attribute", "bytes"),
    ),
    "SignatureAttribute": ((3, "default", "Attribute"),),
    "GraphNode": (
        (1, "name", "bytes"),
        (2, "op", "bytes"),
        (3, "inputs", "repeated bytes"),
        (5, "attributes", "repeated AttributeEntry"),
    ),
    "AttributeEntry": ((1, "key", "bytes"), (2, "value", "Attribute")),
    "Attribute": (
        (1, "list", "AttributeList"),
        (2, "text", "bytes"),
        (6, "type", "int32"),
        (7, "shape", "Shape"),
        (8, "tensor", "repeated bytes"),
        (9, "placeholder", "bytes"),
        (10, "function", "FunctionName"),
    ),
    "TextTensor": ((4, "content", "bytes"), (8, "texts", "repeated bytes")),
    "TableTensor": (
        (1, "dtype", "int32"),
        (4, "content", "bytes"),
        (8, "texts", "repeated bytes"),
        (10, "numbers", "repeated int64"),
    ),
    "AttributeList": ((6, "types", "repeated int32"), (9, "functions", "repeated FunctionName")),
    "FunctionName": ((1, "name", "bytes"), (2, "attributes", "repeated AttributeEntry")),
    "BundleHeader": (
        (1, "shards", "int32"),
        (2, "endianness", "int32"),
        (3, "version", "Versions"),
    ),
    "Versions": (
        (1, "producer", "int32"),
        (2, "min_consumer", "int32"),
        (3, "bad_consumers", "repeated int32"),
    ),
    "BundleEntry": (
        (1, "dtype", "int32"),
        (2, "shape", "Shape"),
        (3, "shard", "int32"),
        (4, "offset", "int64"),
        (5, "size", "int64"),
        (6, "checksum", "fixed32"),
        (7, "slices", "repeated Slice"),
    ),
    "Slice": ((1, "extents", "repeated Extent"),),
    "Extent": ((1, "start", "int64"), (2, "length", "int64")),
    "TrackableGraph": ((1, "nodes", "repeated Trackable"),),
    "Trackable": (
        (1, "children", "repeated Edge"),
        (2, "attributes", "repeated StoredAttribute"),
        (3, "slots", "repeated SlotVariable"),
    ),
    "StoredAttribute": (
        (1, "name", "bytes"),
        (2, "full_name", "bytes"),
        (3, "checkpoint_key", "bytes"),
    ),
    "SlotVariable": ((1, "original_node", "int32"), (2, "name", "bytes"), (3, "node", "int32")),
}
"""
The fields of each message: number, name and type.

Text is declared as bytes, which have the same encoding, so that invalid UTF-8 does not make the
parser fail.

A message that stays bytes is declared as repeated. If a file contains it twice, TensorFlow merges
both, which has the same effect as joining their bytes.
"""

_BELOW: Final = {
    name: {
        number: kind.rpartition(" ")[2]
        for number, _, kind in fields
        if kind.rpartition(" ")[2] in MESSAGES
    }
    for name, fields in MESSAGES.items()
}
"""The fields of each message that contain other messages."""

_MIN_BYTES: Final = 2
"""Minimum size in bytes of a nested message."""

_SCALARS: Final = {
    "bool": descriptor_pb2.FieldDescriptorProto.TYPE_BOOL,
    "bytes": descriptor_pb2.FieldDescriptorProto.TYPE_BYTES,
    "fixed32": descriptor_pb2.FieldDescriptorProto.TYPE_FIXED32,
    "int32": descriptor_pb2.FieldDescriptorProto.TYPE_INT32,
    "int64": descriptor_pb2.FieldDescriptorProto.TYPE_INT64,
}


class MessagesError(Exception):
    """
    A message contains more nested messages than the limit allows; the text says how many. A nested
    message needs forty times its size in memory.
    """


def parse(name: str, data: bytes) -> Any:  # classes created at run time have no static type
    """
    Return the message ``name`` in ``data``.

    :raises ValueError: for bytes that are not such a message.
    :raises MessagesError: if it contains too many messages.
    """
    most = limits.PROTO_MESSAGES.value
    if len(data) > _MIN_BYTES * most and (
        excess := limits.PROTO_MESSAGES.exceeded_message(_count(name, data, most), counting=True)
    ):
        raise MessagesError(excess)
    try:
        return _message_class(name).FromString(data)
    except message.DecodeError as error:
        raise ValueError(f"is not a {name} message") from error


def _count(name: str, data: bytes, most: int) -> int:
    """
    Return the number of nested messages whose types are declared, including the message itself;
    stop counting above ``most``.

    Invalid bytes end the count; the parser reports them.
    """
    count, pending = 1, [(name, 0, len(data))]
    try:
        while pending and count <= most:
            kind, position, end = pending.pop()
            below = _BELOW[kind]
            while position < end and count <= most:
                tag, position = _varint(data, position)
                if tag & 7 == VARINT:
                    _, position = _varint(data, position)
                elif tag & 7 in FIXED:
                    position += FIXED[tag & 7]
                elif tag & 7 == DELIMITED:
                    size, position = _varint(data, position)
                    if tag >> 3 in below:
                        count += 1
                        if size:
                            pending.append((below[tag >> 3], position, min(position + size, end)))
                    position += size
    except IndexError:
        return count
    return count


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Return the number at a position, and the position after it."""
    value = data[position]
    if value < MORE:
        return value, position + 1
    value, shift = value & (MORE - 1), 7
    while True:
        position += 1
        byte = data[position]
        value |= (byte & (MORE - 1)) << shift
        if byte < MORE:
            return value, position + 1
        shift += 7


@cache
def _message_class(name: str) -> Any:
    descriptor = _pool().FindMessageTypeByName(f"{PACKAGE}.{name}")
    if hasattr(message_factory, "GetMessageClass"):  # protobuf 4.22 on
        return message_factory.GetMessageClass(descriptor)
    return message_factory.MessageFactory().GetPrototype(descriptor)  # type: ignore[attr-defined]  # until 4.22


@cache
def _pool() -> descriptor_pool.DescriptorPool:
    """
    Return a separate pool, so that these messages do not conflict with TensorFlow's messages in the
    same process.
    """
    file = descriptor_pb2.FileDescriptorProto(
        name="policytool/messages.proto", package=PACKAGE, syntax="proto2"
    )
    for name, fields in MESSAGES.items():
        declared = file.message_type.add(name=name)
        for number, field_name, kind in fields:
            field = declared.field.add(name=field_name, number=number)
            repeated, _, kind_name = kind.rpartition(" ")
            field.label = field.LABEL_REPEATED if repeated else field.LABEL_OPTIONAL
            if kind_name in _SCALARS:
                field.type = _SCALARS[kind_name]
                field.options.packed = (
                    bool(repeated) and kind_name != "bytes"
                )  # TensorFlow uses proto3, which packs repeated numbers
            else:
                field.type = field.TYPE_MESSAGE
                field.type_name = f".{PACKAGE}.{kind_name}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file) if not hasattr(pool, "AddSerializedFile") else pool.AddSerializedFile(
        file.SerializeToString()
    )
    return pool
