"""
The functions of a SavedModel's root object that have the name of a signature, such as ``serve``,
which ``model.export`` writes. ``keras.layers.TFSMLayer`` calls them instead of the signature.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from policytool.formats.document import Endpoint, EndpointArgument
from policytool.formats.saved_model.graph_bodies import text

if TYPE_CHECKING:
    from collections.abc import Mapping

_KINDS: Final = {
    "tensor": EndpointArgument.TENSOR,
    "list": EndpointArgument.LIST,
    "dict": EndpointArgument.DICT,
}
"""The fields of ``ArgumentKind``."""

_MOST_TRACES: Final = 8
"""The number of traces of a function that are compared; ``model.export`` writes one."""


def root_endpoints(objects: Any) -> Mapping[str, Endpoint]:
    """Return the functions that the root object has and that one argument calls, by name."""
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
    kind = next((kind for field, kind in _KINDS.items() if arguments[0].HasField(field)), None)
    if kind is None:
        return None
    return Endpoint(
        argument=kind,
        names=(
            *(text(value.tensor.name) for value in arguments[0].list.values),
            *sorted(text(field.key) for field in arguments[0].dict.fields),
        ),
    )
