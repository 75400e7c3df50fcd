"""
Models that policytool does not read: the sentence that names the format of such a file, with the
dtypes of its tensors if a header contains them, and a tool for it.

Only headers and lists of tensors are read, and no graph. A file that is damaged or has very many
tensors is named without dtypes.
"""

from __future__ import annotations

import contextlib
import mmap
import re
import struct
from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from policytool.releases.dtypes import OF_TENSORFLOW_ENUM
from policytool.support.errors import ModelFileError
from policytool.support.files import opening
from policytool.support.files.remote_path import RemotePath
from policytool.support.steps import spend
from policytool.support.text import jsontext, protobuf_splice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from policytool.formats.base import Probe
    from policytool.support.text.protobuf_splice import Span

_MOST_TENSORS: Final = 100_000
_MOST_HEADER_BYTES: Final = 2**24
_CONST: Final = b"Const"


class _UnknownHeaderError(ValueError):
    """A header that is damaged, or larger than what is read for a message."""


class OtherModel(Struct, frozen=True, kw_only=True):
    """A format of models that is recognized and not read."""

    name: str
    """The name of the format."""

    title: str
    """What a file of the format is, with the article."""

    tool: str
    """What shows its contents."""

    recognise: Callable[[memoryview], bool]
    dtypes: Callable[[memoryview], Iterable[str]] | None = None
    """Yields the dtype of each stored tensor; None if finding them needs a reader of graphs."""


def describe(probe: Probe) -> str | None:
    """Return the rest of a sentence about a file whose format has a row; None for another file."""
    with contextlib.ExitStack() as stack:
        content = stack.enter_context(_content(probe))
        model = next((row for row in MODELS if _is(row, content)), None)
        if model is None:
            return None
        return (
            f"is {model.title}{_tensors(model, content)}, which has no layers with policies; if it "
            f"was exported from a Keras model, inspect that one; {model.tool} shows its contents"
        )


_SUFFIXES: Final = frozenset(
    {".engine", ".gguf", ".lite", ".mlmodel", ".onnx", ".pb", ".plan", ".safetensors"}
    | {".tflite", ".trt", ".xml"}
)
_MOST_FILES: Final = 10_000


def counts_by_format(paths: Iterable[Path]) -> Counter[str]:
    """
    Return the number of models of other libraries among local files, by the names of the formats.
    Only files with usual suffixes are opened, and only the first 10,000 of them.
    """
    named = (path for path in paths if path.suffix.lower() in _SUFFIXES)
    names = map(format_name, islice(named, _MOST_FILES))
    return Counter(name for name in names if name is not None)


def format_name(path: Path) -> str | None:
    """Return the name of the format of a model of another library; None for another file."""
    try:
        with opening.regular_stream(path) as stream:
            mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
            with mapped, memoryview(mapped) as content:
                return next((row.name for row in MODELS if _is(row, content)), None)
    except (OSError, ValueError, ModelFileError):  # a file without bytes cannot be mapped
        return None


@contextlib.contextmanager
def _content(probe: Probe) -> Iterator[memoryview]:
    """Open the content of a local file; of a remote one, only its head."""
    if isinstance(probe.path, RemotePath):
        yield memoryview(probe.head)
        return
    with opening.regular_stream(probe.path) as stream:
        mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        with mapped, memoryview(mapped) as content:
            yield content


def _is(model: OtherModel, content: memoryview) -> bool:
    """Return whether the content is a model of a format; False if it cannot be parsed."""
    try:
        return model.recognise(content)
    except (protobuf_splice.WireError, struct.error):
        return False


def _tensors(model: OtherModel, content: memoryview) -> str:
    """Return the number of stored tensors by dtype, in parentheses; empty if it is unknown."""
    if model.dtypes is None:
        return ""
    try:
        counts = Counter(_bounded(model.dtypes(content)))
    except (_UnknownHeaderError, protobuf_splice.WireError, struct.error, ValueError):
        return ""
    if not counts:
        return ""
    parts = [f"{count:,} {dtype}" for dtype, count in counts.most_common()]
    return f" (stored tensors: {', '.join(parts)})"


def _bounded(dtypes: Iterable[str]) -> Iterator[str]:
    """Yield dtypes, and stop with an error beyond the largest number of tensors."""
    for count, dtype in enumerate(dtypes):
        if count == _MOST_TENSORS:
            raise _UnknownHeaderError
        yield dtype


def _starts(*signatures: bytes, offset: int = 0) -> Callable[[memoryview], bool]:
    """Return whether a file has one of some signatures at an offset."""
    return lambda content: any(
        content[offset : offset + len(signature)] == signature for signature in signatures
    )


_SAFETENSORS: Final = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U64": "uint64",
    "U32": "uint32",
    "U16": "uint16",
    "U8": "uint8",
    "BOOL": "bool",
}
"""The dtypes of safetensors (safetensors/src/tensor.rs)."""


def _safetensors_dtypes(content: memoryview) -> Iterator[str]:
    """Yield the dtypes in the JSON header, whose length the first 8 bytes are."""
    (size,) = struct.unpack_from("<Q", content)
    if size > min(_MOST_HEADER_BYTES, len(content) - 8):
        raise _UnknownHeaderError
    header, _ = jsontext.parse(bytes(content[8 : 8 + size]))
    for name, entry in header.items() if isinstance(header, dict) else ():
        if name != "__metadata__" and isinstance(entry, dict):
            dtype = str(entry.get("dtype"))
            yield _SAFETENSORS.get(dtype, dtype)


_TFLITE: Final = (
    *("float32", "float16", "int32", "uint8", "int64", "string", "bool", "int16", "complex64"),
    *("int8", "float64", "complex128", "uint64", "resource", "variant", "uint32", "uint16"),
    *("int4", "bfloat16"),
)
"""TensorType by number (tensorflow/compiler/mlir/lite/schema/schema.fbs)."""

_SUBGRAPHS: Final = 2
_TENSORS: Final = 0
_TYPE: Final = 1
_BUFFER: Final = 2
_BUFFERS: Final = 4


def _tflite_dtypes(content: memoryview) -> Iterator[str]:
    """
    Yield the dtypes of the tensors with stored values: those whose buffer is not empty. The file is
    a FlatBuffer, in which a table has the offsets of its fields.
    """
    root = struct.unpack_from("<I", content)[0]
    buffers = list(_tables(content, root, _BUFFERS))
    for graph in _tables(content, root, _SUBGRAPHS):
        for tensor in _tables(content, graph, _TENSORS):
            place = _field(content, tensor, _BUFFER)
            number = struct.unpack_from("<I", content, place)[0] if place else 0
            if number >= len(buffers) or not _field(content, buffers[number], 0):
                continue
            kind = _field(content, tensor, _TYPE)
            code = content[kind] if kind else 0
            yield _TFLITE[code] if code < len(_TFLITE) else f"type {code}"


def _field(content: memoryview, table: int, number: int) -> int:
    """Return the position of a table's field; 0 for a field with its default."""
    fields = table - struct.unpack_from("<i", content, table)[0]
    if fields < 0:
        raise _UnknownHeaderError
    size = struct.unpack_from("<H", content, fields)[0]
    entry = 4 + 2 * number
    offset = struct.unpack_from("<H", content, fields + entry)[0] if entry < size else 0
    return table + offset if offset else 0


def _tables(content: memoryview, table: int, number: int) -> Iterator[int]:
    """Yield the positions of the tables in a field that is a list of tables."""
    place = _field(content, table, number)
    if not place:
        return
    start = place + struct.unpack_from("<I", content, place)[0]
    count = struct.unpack_from("<I", content, start)[0]
    if count > _MOST_TENSORS:
        raise _UnknownHeaderError
    for position in range(start + 4, start + 4 + 4 * count, 4):
        spend(1, walk="tensors of a model")
        yield position + struct.unpack_from("<I", content, position)[0]


_ONNX: Final = (
    *("undefined", "float32", "uint8", "int8", "uint16", "int16", "int32", "int64", "string"),
    *("bool", "float16", "float64", "uint32", "uint64", "complex64", "complex128", "bfloat16"),
    *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "uint4", "int4"),
)
"""TensorProto.DataType by number (onnx/onnx.proto)."""

_IR_VERSION: Final = 1
_ONNX_GRAPH: Final = 7
_ONNX_FIELDS: Final = frozenset({1, 2, 3, 4, 5, 6, 7, 8, 14, 20, 25, 26})
"""The fields of ModelProto (onnx/onnx.proto)."""

_INITIALIZER: Final = 5
_DATA_TYPE: Final = 2


def _is_onnx(content: memoryview) -> bool:
    numbers = [(field.number, field.span is None) for field in _top_fields(content, _ONNX_FIELDS)]
    return numbers[:1] == [(_IR_VERSION, True)] and (_ONNX_GRAPH, False) in numbers


def _onnx_dtypes(content: memoryview) -> Iterator[str]:
    for graph in protobuf_splice.spans(content, _ONNX_GRAPH):
        for tensor in protobuf_splice.spans(content, _INITIALIZER, graph):
            code = _number(content, tensor, _DATA_TYPE)
            yield _ONNX[code] if code < len(_ONNX) else f"type {code}"


_NODE: Final = 1
_GRAPH_FIELDS: Final = frozenset({1, 2, 3, 4, 5})
"""The fields of GraphDef (tensorflow/core/framework/graph.proto)."""

_OP: Final = 2
_ATTRIBUTE: Final = 5
_KEY: Final = 1
_VALUE: Final = 2
_DTYPE: Final = 6
_GRAPH_NODES: Final = 100
"""How many nodes are read to recognize a graph."""


def _is_graph_def(content: memoryview) -> bool:
    """Return whether the first fields are nodes with the name of an op."""
    ops = []
    for field in protobuf_splice.fields(content):
        if field.number not in _GRAPH_FIELDS or field.span is None:
            return False
        if field.number == _NODE:
            ops.append(_text(content, field.span, _OP))
        if len(ops) == _GRAPH_NODES:
            break
    return bool(ops) and all(re.fullmatch(rb"[A-Z]\w*|_\w+", op) for op in ops)


def _graph_def_dtypes(content: memoryview) -> Iterator[str]:
    """Yield the dtypes of the constants."""
    for node in protobuf_splice.spans(content, _NODE):
        if _text(content, node, _OP) != _CONST:
            continue
        for entry in protobuf_splice.spans(content, _ATTRIBUTE, node):
            if _text(content, entry, _KEY) == b"dtype":
                for value in protobuf_splice.spans(content, _VALUE, entry):
                    code = _number(content, value, _DTYPE)
                    yield OF_TENSORFLOW_ENUM.get(code, f"type {code}")


_SPECIFICATION: Final = 1
_CORE_ML_KINDS: Final = 200
"""The kinds of models have field numbers from 200 on (mlmodel/format/Model.proto)."""

_CORE_ML_FIELDS: Final = frozenset({1, 2, 10, *range(_CORE_ML_KINDS, 4_000)})


def _is_core_ml(content: memoryview) -> bool:
    fields = list(_top_fields(content, _CORE_ML_FIELDS))
    return (
        bool(fields)
        and (fields[0].number, fields[0].span) == (_SPECIFICATION, None)
        and any(field.number >= _CORE_ML_KINDS for field in fields)
    )


def _top_fields(content: memoryview, numbers: frozenset[int]) -> Iterator[protobuf_splice.Field]:
    """
    Yield the fields of a message.

    :raises WireError: at a field that a format does not have.
    """
    for field in protobuf_splice.fields(content):
        if field.number not in numbers:
            raise protobuf_splice.WireError(f"an unknown field {field.number}")
        yield field


def _text(content: memoryview, message: Span, number: int) -> bytes:
    span = next(protobuf_splice.spans(content, number, message), None)
    return b"" if span is None else bytes(content[span.start : min(span.end, span.start + 100)])


def _number(content: memoryview, message: Span, number: int) -> int:
    fields = protobuf_splice.fields(content, message.start, message.end)
    return next((field.value for field in fields if field.number == number), 0)


_XML_HEAD: Final = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*>\s*)?<net\s[^>]*version=")
_XML_CONSTANT: Final = re.compile(rb'<data\s[^>]{0,500}?element_type="(\w+)"[^>]{0,500}?offset="')
_OPENVINO: Final = {
    "f": "float",
    "i": "int",
    "u": "uint",
    "bf": "bfloat",
}
_OPENVINO_DTYPE: Final = re.compile(r"(bf|[fiu])(\d+)")


def _is_openvino(content: memoryview) -> bool:
    return _XML_HEAD.match(content[:4096]) is not None


def _openvino_dtypes(content: memoryview) -> Iterator[str]:
    """Yield the dtypes of the constants, which are stored in the file next to the XML."""
    for match in _XML_CONSTANT.finditer(content[:_MOST_HEADER_BYTES]):
        name = match[1].decode()
        parts = _OPENVINO_DTYPE.fullmatch(name)
        yield f"{_OPENVINO[parts[1]]}{parts[2]}" if parts is not None else name


_NETRON: Final = "Netron"

LITE: Final = "TensorFlow Lite"
"""The name of the only format here that ``check --against`` runs."""

MODELS: Final = (
    OtherModel(
        name=LITE,
        title="a TensorFlow Lite model",
        tool="the LiteRT analyzer (tf.lite.experimental.Analyzer)",
        recognise=_starts(b"TFL3", offset=4),
        dtypes=_tflite_dtypes,
    ),
    OtherModel(
        name="safetensors",
        title="a safetensors file",
        tool="safetensors.safe_open",
        recognise=_starts(b'{"', offset=8),
        dtypes=_safetensors_dtypes,
    ),
    OtherModel(name="GGUF", title="a GGUF model", tool="gguf-dump", recognise=_starts(b"GGUF")),
    OtherModel(
        name="TensorRT",
        title="a TensorRT engine",
        tool="trtexec",
        # lutzroeder/netron, source/tensorrt.js
        recognise=_starts(b"ptrt", b"ftrt"),
    ),
    OtherModel(
        name="OpenVINO",
        title="an OpenVINO model",
        tool=_NETRON,
        recognise=_is_openvino,
        dtypes=_openvino_dtypes,
    ),
    OtherModel(
        name="ONNX", title="an ONNX model", tool=_NETRON, recognise=_is_onnx, dtypes=_onnx_dtypes
    ),
    OtherModel(name="Core ML", title="a Core ML model", tool=_NETRON, recognise=_is_core_ml),
    OtherModel(
        name="frozen TensorFlow graph",
        title="a frozen TensorFlow graph",
        tool=_NETRON,
        recognise=_is_graph_def,
        dtypes=_graph_def_dtypes,
    ),
)
