"""
Layers of Keras 2 around TensorFlow's own functions, methods and ops, which are looked up by their
names and called with what the config holds.

Sources: tf_keras/src/layers/core/tf_op_layer.py of 2.21.0; ``TensorFlowOpLayer`` of
tensorflow/python/keras/engine/base_layer.py, TF 1.15 to 2.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.model import inbound_nodes
from policytool.model.calls import CONSTANT
from policytool.model.hazards._harm import Harm
from policytool.releases.layer_classes import layer_facts
from policytool.releases.symbols import harmful as _functions
from policytool.releases.symbols import ops
from policytool.releases.symbols.harmful import in_tensorflow, op
from policytool.support.errors import short

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.model.hazards._harm import HazardParts
    from policytool.support.text.jsontext import Json


_RAW_OPS: Final = "raw_ops."
_NOT_PURE: Final = "which is not on the allow-list of functions"


def find_wrapped(
    class_name: str, config: dict[str, Json], entry: dict[str, Json]
) -> Iterator[HazardParts]:
    """
    Yield what a wrapper calls that is not known to only compute.

    :param entry: the layer's entry in its model, with its calls (``inbound_nodes``).
    """
    named_by = layer_facts(class_name).wrapped_op
    if named_by == "function":
        yield from _hazards_of_function(config.get("function"))
    elif named_by == "class_method":
        yield from _of_class_method(config)
    elif named_by == "attribute":
        yield from _of_attribute(class_name, config.get("attr_name"))
    else:
        yield from _of_node_def(config.get("node_def"))
    if any(
        all(name == CONSTANT for name, _ in inbound_nodes.tensors(node)) for node in _calls(entry)
    ):
        yield (
            Harm.UNKNOWN,
            "constants",
            ("has a call with only constant inputs, which no release writes"),
        )


def _calls(entry: dict[str, Json]) -> list[Json]:
    nodes = entry.get("inbound_nodes")
    return nodes if isinstance(nodes, list) else []


def _hazards_of_function(name: Json) -> Iterator[HazardParts]:
    if not isinstance(name, str):
        yield Harm.UNKNOWN, "function", "does not refer to a TensorFlow function"
    elif not (
        _functions.is_pure_function(name)
        or (name.startswith(_RAW_OPS) and ops.is_pure_op(name.removeprefix(_RAW_OPS)))
    ):
        yield from _find_call(f"tensorflow.{name}", harmful=in_tensorflow(name))


def _of_class_method(config: dict[str, Json]) -> Iterator[HazardParts]:
    """
    Yield a method of a class: of a class that no release wraps, whatever it is, it is looked up in
    all of TensorFlow's names.
    """
    owner, method = config.get("cls_symbol"), config.get("method_name")
    if not (
        isinstance(owner, str)
        and isinstance(method, str)
        and _functions.is_class_method(owner, method)
    ):
        yield from _find_call(f"tensorflow.{owner}.{method}", harmful=True)


def _of_attribute(class_name: str, name: Json) -> Iterator[HazardParts]:
    if not (isinstance(name, str) and _functions.is_tensor_attribute(class_name, name)):
        yield (
            Harm.UNKNOWN,
            str(name),
            (
                f"reads the tensor attribute {short(str(name))}, which is not on the allow-list "
                "of attributes"
            ),
        )


def _of_node_def(node: Json) -> Iterator[HazardParts]:
    """
    Yield the op of a layer that holds one: its definition is JSON in every release, and text would
    be taken for protobuf.
    """
    name = node.get("op") if isinstance(node, dict) else None
    if not isinstance(node, dict) or not isinstance(name, str):
        yield (
            Harm.UNKNOWN,
            "node_def",
            "stores its op in a format other than JSON, which no release does",
        )
    elif harmful := op(name):
        yield Harm.NAMED, name, f"runs the op {name}, which {harmful.what}"
    elif not ops.is_pure_op(name) or _has_function(node.get("attr")):
        yield (
            Harm.UNKNOWN,
            name,
            f"runs the op {short(name)}, which is not on the allow-list of ops",
        )


def _has_function(attributes: Json) -> bool:
    """Return whether an attribute names a function, which no config holds."""
    values = attributes.values() if isinstance(attributes, dict) else ()
    return any(
        isinstance(value, dict)
        and (
            "func" in value or (isinstance(listed := value.get("list"), dict) and "func" in listed)
        )
        for value in values
    )


def _find_call(name: str, *, harmful: bool) -> Iterator[HazardParts]:
    if harmful:
        yield Harm.NAMED, name, f"calls {short(name)}, which accesses resources outside the model"
    else:
        yield Harm.UNKNOWN, name, f"calls {short(name)}, {_NOT_PURE}"
