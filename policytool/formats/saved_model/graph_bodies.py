"""The nodes of a SavedModel's graph and of its functions, with what their fields hold as text."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from policytool.releases.symbols import ops

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

MAIN: Final = ""
"""The graph itself, among the functions by their names."""

_REPLACING: Final = b"api_implements"
"""The attribute of functions that TensorFlow may call in the place of others."""


_OP: Final = attrgetter("op")


@dataclass(frozen=True)
class Body:
    """The nodes of the graph itself, or of a function."""

    arguments: tuple[str, ...]
    messages: Sequence[Any]
    has_unseen_calls: bool = False
    """
    Whether TensorFlow may call the function with other values than the inputs of the nodes that
    name it.
    """

    @cached_property
    def positions(self) -> Mapping[str, int]:
        """The place of each argument; of a name that occurs twice, that of the first."""
        return {name: place for place, name in reversed(tuple(enumerate(self.arguments)))}

    @cached_property
    def nodes(self) -> Mapping[str, Any]:
        """The nodes by their names."""
        return {text(node.name): node for node in self.messages}


def bodies_of(definition: Any) -> tuple[Mapping[str, Body], Sequence[str]]:
    """
    Return the graph itself and its functions by name, and the names that several functions share;
    the first function with a name counts.
    """
    library = definition.library
    passed = {
        *(text(entry.gradient) for entry in (*library.gradients, *library.registered_gradients)),
        *_functions_in_attributes(definition),
    }
    bodies, doubled = {MAIN: Body((), definition.nodes)}, []
    for function in library.functions:
        name, arguments = text(function.signature.name), function.signature.arguments
        body = Body(
            tuple(text(argument.name) for argument in arguments),
            function.nodes,
            name in passed
            or any(entry.key == _REPLACING for entry in function.attributes)
            # an argument of variable length, so that later inputs have no fixed position
            or any(
                argument.number_attribute or argument.type_list_attribute for argument in arguments
            ),
        )
        if bodies.setdefault(name, body) is not body:
            doubled.append(name)
    return bodies, doubled


def _functions_in_attributes(definition: Any) -> Iterator[str]:
    """
    Yield the functions that a function's attribute is, as its default or in a call of it: what
    calls such an attribute names no function.
    """
    functions = definition.library.functions
    names = {function.signature.name for function in functions}
    pending = [
        attribute.default
        for function in functions
        for attribute in function.signature.attributes
        if attribute.HasField("default")
    ]
    yield from (text(name) for value in pending for name in _named_functions(value))
    calling = ops.calling_ops() | names
    pending += [
        entry.value
        for nodes in (definition.nodes, *(function.nodes for function in functions))
        for node, op in zip(nodes, map(_OP, nodes), strict=True)
        if op in calling
        for entry in node.attributes
    ]
    while pending:
        value = pending.pop()
        for function in (value.function, *value.list.functions):
            for entry in function.attributes:
                yield from (text(name) for name in _named_functions(entry.value))
                pending.append(entry.value)


def _named_functions(value: Any) -> Iterator[bytes]:
    """Yield the functions that the value of an attribute names."""
    if value.HasField("function"):
        yield value.function.name
    yield from (function.name for function in value.list.functions)


def inputs_of(node: Any) -> list[str]:
    """Return where the node's data comes from: names of nodes and arguments."""
    return [text(source).partition(":")[0] for source in node.inputs if not source.startswith(b"^")]


def functions_of(node: Any) -> Iterator[str]:
    """Yield the functions that a node names."""
    for entry in node.attributes:
        yield from map(text, _named_functions(entry.value))


def attribute(node: Any, key: str) -> str | None:
    """
    Return the text of an attribute; None if the node does not have the attribute.

    Return a NUL, which no text contains, if the value is not a text, for example because a call
    fills it in.
    """
    value = next(
        (entry.value for entry in reversed(node.attributes) if text(entry.key) == key), None
    )
    if value is None:
        return None
    return (
        text(value.text) if value.HasField("text") and not value.HasField("placeholder") else "\0"
    )


def text_of(node: Any) -> bytes:
    """
    Return the text of a constant that has exactly one.

    Return a NUL, which no path contains, for anything else, such as text stored as raw bytes, which
    TensorFlow prefers, or a value that a call fills in.
    """
    value = next(
        (entry.value for entry in reversed(node.attributes) if entry.key == b"value"), None
    )
    if value is None or value.HasField("placeholder"):
        return b"\0"
    text_tensor = parse_message("TextTensor", b"".join(value.tensor))
    return (
        text_tensor.texts[0]
        if text_tensor is not None and len(text_tensor.texts) == 1 and not text_tensor.content
        else b"\0"
    )


def parse_message(name: str, data: bytes) -> Any | None:
    """
    Return a message; None for bytes that are none, or are beyond the bounds: TensorFlow reads a
    file with such bytes in no way.
    """
    from policytool.support.text import protobuf_messages  # protobuf is only for SavedModels

    try:
        return protobuf_messages.parse(name, data)
    except (ValueError, protobuf_messages.MessagesError):
        return None


def text(raw: bytes) -> str:
    """Return a name; ill-formed UTF-8 is replaced."""
    return raw.decode("utf-8", "replace")
