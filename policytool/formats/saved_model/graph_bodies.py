"""The nodes of a SavedModel's graph and of its functions, with what their fields hold as text."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

MAIN: Final = ""
"""The graph itself, among the functions by their names."""

_REPLACING: Final = b"api_implements"
"""The attribute of functions that TensorFlow may call in the place of others."""


@dataclass(frozen=True)
class Body:
    """The nodes of the graph itself, or of a function."""

    arguments: tuple[str, ...]
    messages: Sequence[Any]
    replaces: bool = False
    """Whether TensorFlow may call the function in the place of another."""

    @cached_property
    def nodes(self) -> Mapping[str, Any]:
        """The nodes by their names."""
        return {text(node.name): node for node in self.messages}


def bodies_of(definition: Any) -> tuple[Mapping[str, Body], Sequence[str]]:
    """
    Return the graph itself and its functions, by their names, and the names that two functions
    have, of which the first counts.
    """
    found, doubled = {MAIN: Body((), definition.nodes)}, []
    for function in definition.library.functions:
        arguments = tuple(text(argument.name) for argument in function.signature.arguments)
        replaces = any(entry.key == _REPLACING for entry in function.attributes)
        name, body = text(function.signature.name), Body(arguments, function.nodes, replaces)
        if found.setdefault(name, body) is not body:
            doubled.append(name)
    return found, doubled


def inputs_of(node: Any) -> list[str]:
    """Return where the node's data comes from: names of nodes and arguments."""
    return [text(source).partition(":")[0] for source in node.inputs if not source.startswith(b"^")]


def functions_of(node: Any) -> Iterator[str]:
    """Yield the functions that a node names."""
    for entry in node.attributes:
        if entry.value.HasField("function"):
            yield text(entry.value.function.name)
        yield from (text(function.name) for function in entry.value.list.functions)


def attribute(node: Any, key: str) -> str | None:
    """
    Return the text of an attribute; None if the node has none, and a NUL, which no text has, for
    anything else, such as one that a call fills in.
    """
    found = next(
        (entry.value for entry in reversed(node.attributes) if text(entry.key) == key), None
    )
    if found is None:
        return None
    return (
        text(found.text) if found.HasField("text") and not found.HasField("placeholder") else "\0"
    )


def text_of(node: Any) -> bytes:
    """
    Return the one text of a constant; a NUL, which no path has, for anything else, such as text as
    bytes, which TensorFlow takes instead.
    """
    tensor = next(
        (entry.value.tensor for entry in reversed(node.attributes) if entry.key == b"value"), None
    )
    held = parse_message("TextTensor", b"".join(tensor or []))
    return (
        held.texts[0] if held is not None and len(held.texts) == 1 and not held.content else b"\0"
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
