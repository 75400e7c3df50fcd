"""
Graphs of TensorFlow written field by field, so that a field can stand twice, in two forms, or in a
form that no writer uses.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from policytool.support.text import protobuf_splice

if TYPE_CHECKING:
    from collections.abc import Sequence

FLOAT, INT, STRING, BOOL, LONG = 1, 3, 7, 10, 9
_DELIMITED: Final = 2

Value = int | bytes | str


def message(*fields: tuple[int, Value]) -> bytes:
    """Return a message of these fields."""
    found = b""
    for number, value in fields:
        if isinstance(value, int):
            found += protobuf_splice.encode_varint(number << 3) + protobuf_splice.encode_varint(
                value & 2**64 - 1
            )
        else:
            data = value.encode() if isinstance(value, str) else value
            found += (
                protobuf_splice.encode_varint(number << 3 | _DELIMITED)
                + protobuf_splice.encode_varint(len(data))
                + data
            )
    return found


def attribute(key: str, number: int, value: Value) -> bytes:
    """
    Return an attribute of a node, whose value is of the kind that the field's number says
    (``AttrValue``).
    """
    return message((1, key), (2, message((number, value))))


def kind(key: str, number: int) -> bytes:
    """Return an attribute that is a dtype."""
    return attribute(key, 6, number)


def kinds(key: str, *numbers: int) -> bytes:
    """Return an attribute that is a list of dtypes."""
    return attribute(key, 1, message(*((6, number) for number in numbers)))


def function_attribute(key: str, name: str, *attributes: bytes) -> bytes:
    """Return an attribute that is a function, with attributes of its own."""
    return attribute(key, 10, message((1, name), *((2, item) for item in attributes)))


def node(name: str, op: str, inputs: Sequence[str], *attributes: bytes) -> bytes:
    """Return a node."""
    return message(
        (1, name),
        (2, op),
        *((3, input_value) for input_value in inputs),
        *((5, item) for item in attributes),
    )


def tensor(dtype: int, *fields: tuple[int, Value], length: int | None = None) -> bytes:
    """Return a tensor: a scalar, or a vector of a length."""
    shape = b"" if length is None else message((2, message((1, length))))
    return message((1, dtype), (2, shape), *fields)


def constant(name: str, dtype: int, *tensors: bytes) -> bytes:
    """Return a constant whose value stands in the file once, or more often."""
    return node(
        name, "Const", (), kind("dtype", dtype), *(attribute("value", 8, item) for item in tensors)
    )


def function(
    name: str,
    arguments: Sequence[tuple[str, int]],
    nodes: Sequence[bytes],
    runs: Sequence[str],
    *declared: bytes,
) -> bytes:
    """
    Return a function without results, that runs some of its nodes; ``declared`` are attributes that
    its callers fill in.
    """
    taken = [(2, message((1, argument), (3, dtype))) for argument, dtype in arguments]
    signature = message(
        (1, name),
        *taken,
        *((4, item) for item in declared),
        *((20, f"c{number}") for number in range(len(runs))),
    )
    return message(
        (1, signature),
        *((3, item) for item in nodes),
        *((6, message((1, f"c{number}"), (2, one))) for number, one in enumerate(runs)),
    )


def call(name: str, called: str, inputs: Sequence[str], *attributes: bytes) -> bytes:
    """Return a node that calls a function with texts."""
    given = kinds("Tin", *[STRING] * len(inputs))
    return node(
        name,
        "StatefulPartitionedCall",
        inputs,
        given,
        attribute("Tout", 1, b""),
        function_attribute("f", called, *attributes),
    )


def graph(nodes: Sequence[bytes], functions: Sequence[bytes] = ()) -> bytes:
    """Return a graph."""
    library = message(*((1, item) for item in functions))
    return message(*((1, item) for item in nodes), (2, library), (4, message((1, 987))))


@dataclass
class Outside:
    """What stands beside a graph and tells a loader what to do with it."""

    assets: list[tuple[str, str]] = field(default_factory=list)
    """Nodes that are given the paths of files."""

    collected: bool = False
    """Whether the assets stand where TF 1 wrote them."""

    restores: str = "saver_restored"
    """The node that reads the variables."""

    tag: str = "serve"


def meta_graph(held: Sequence[bytes], main: str, outside: Outside) -> bytes:
    """
    Return a graph with the input ``x``, the output ``y``, a saver, and a node that runs when the
    model is loaded; of several graphs all are merged.
    """
    ends = [
        (name, message((1, f"{name}:0"), (2, FLOAT), (3, message((2, message((1, 1)))))))
        for name in ("x", "y")
    ]
    signature = message(
        (1, message((1, "x"), (2, ends[0][1]))),
        (2, message((1, "y"), (2, ends[1][1]))),
        (3, "tensorflow/serving/predict"),
    )
    run = message((1, "saved_model_main_op"), (2, message((1, message((1, main))))))
    files = [message((1, message((1, f"{name}:0"))), (2, file)) for name, file in outside.assets]
    info = message((4, outside.tag), (5, "2.9.0"))
    saver = message((1, "saver:0"), (2, "saver_done:0"), (3, outside.restores), (7, 2))
    served = (5, message((1, "serving_default"), (2, signature)))
    kept = ((4, _collection(files)),) if outside.collected else tuple((6, file) for file in files)
    return message((1, info), *((2, item) for item in held), (3, saver), (4, run), served, *kept)


def _collection(files: Sequence[bytes]) -> bytes:
    """Return assets as TF 1 wrote them."""
    several = message(
        *(
            (1, message((1, "type.googleapis.com/tensorflow.AssetFileDef"), (2, file)))
            for file in files
        )
    )
    return message((1, "saved_model_assets"), (2, message((5, several))))


def frame() -> bytes:
    """Return what every graph has: its input, output, and a saver's nodes."""
    shape = attribute("shape", 7, message((2, message((1, 1)))))
    scalar = attribute("shape", 7, b"")
    return graph(
        (
            node("x", "Placeholder", (), kind("dtype", FLOAT), shape),
            node("y", "Identity", ("x",), kind("T", FLOAT)),
            node("saver", "Placeholder", (), kind("dtype", STRING), scalar),
            node("saver_done", "Identity", ("saver",), kind("T", STRING)),
            node("saver_restored", "NoOp", ()),
        )
    )
