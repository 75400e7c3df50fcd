"""Which dtypes the operations of a graph take and make, as their class and config say it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.model.calls import Constant
from policytool.releases.layer_classes import layer_facts, operation_facts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from policytool.model.calls import Argument
    from policytool.model.layer_graph import GraphNode
    from policytool.support.text.jsontext import Json

ENUMS: Final = {
    "float16": "DT_HALF",
    "bfloat16": "DT_BFLOAT16",
    "float32": "DT_FLOAT",
    "float64": "DT_DOUBLE",
}
"""What a ``node_def`` calls the dtypes."""

_OF_ENUM: Final = {value: key for key, value in ENUMS.items()}

_RESIZES: Final = "image.resize"
"""TensorFlow's own interpolation, which gives float32 whatever it takes."""

_JOINS: Final = frozenset({"concat", "concatenate", "concatv2", "pack", "stack"})
"""
Operations that put several tensors into one, by the name of their class, function or op in small
letters.
"""


def parents_of_one_dtype(node: GraphNode, *, is_operation: bool) -> tuple[tuple[str, ...], bool]:
    """
    Return the nodes whose dtypes have to be one where an operation of Keras 3 promotes nothing, and
    whether they have to be float32.
    """
    facts = operation_facts(node.class_name)
    if not is_operation or (facts.promotes and facts.half_kernels):
        return (), False
    return node.parents, not facts.half_kernels or len(node.parents) == 1


def takes(node: GraphNode, met: frozenset[str]) -> bool:
    """Return whether an operation without 16-bit kernels gets none: float64 it has kernels for."""
    return is_wide(node) and "float16" not in met and "bfloat16" not in met


def is_wide(node: GraphNode) -> bool:
    """Return whether a node is an operation of Keras 3 that has no 16-bit kernel."""
    return node.site is None and not operation_facts(node.class_name).half_kernels


def joins(node: GraphNode) -> bool:
    """Return whether an operation puts several tensors into one as they are."""
    definition = node.config.get("node_def")
    names = (
        node.class_name,
        node.config.get("function"),
        definition.get("op") if isinstance(definition, dict) else None,
    )
    return any(isinstance(name, str) and name.lower() in _JOINS for name in names)


def cast_target(node: GraphNode) -> str | None:
    """
    Return the dtype that a casting op makes; None for those whose result is as wide as their
    inputs.
    """
    if layer_facts(node.class_name).wrapped_op == "node_def":
        return _OF_ENUM.get(str(node_def_type(node.config, "DstT")))
    if node.class_name == "Cast":
        return str(node.config.get("dtype"))
    if str(node.config.get("function")).startswith(_RESIZES):
        return "float32"
    if node.config.get("function") == "cast":
        return next(
            (dtype for call in node.calls if isinstance(dtype := call.kwargs.get("dtype"), str)),
            None,
        )
    return None


def begins_with_constant(node: GraphNode) -> bool:
    """
    Return whether an op's first argument is a number, which Keras 2 makes a float32 tensor of.
    """
    pending: list[Argument] = [call.args[0] for call in node.calls if call.args]
    while pending:
        value = pending.pop()
        if isinstance(value, list):
            pending += value
        elif isinstance(value, Constant) and isinstance(value.value, float):
            return True
    return False


def node_def_type(config: Mapping[str, Json], name: str) -> Json:
    """Return what the ``node_def`` in a config has as the type of an attribute."""
    value: Json = config.get("node_def")
    for key in ("attr", name, "type"):
        value = value.get(key) if isinstance(value, dict) else None
    return value
