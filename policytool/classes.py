"""Which classes are Keras' own layers, and which entries of a graph are operations and no layers."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from policytool.jsontext import Json

_OPERATIONS: Final = ("keras.src.ops.", "keras.ops.")
_NO_OPERATIONS: Final = frozenset({"InputLayer", "Functional", "Model", "Sequential"})


@cache
def builtin_classes() -> frozenset[str]:
    """Return the layer and model classes of every release, which ``fixtures/generate.py`` asks of the releases themselves."""
    text = Path(__file__).with_name("data").joinpath("layer_classes.json").read_text(encoding="utf-8")  # importlib.resources takes 8 ms to import
    return frozenset(json.loads(text)["classes"])


def is_operation(entry: dict[str, Json]) -> bool:
    """
    Return whether an entry of a functional model's graph is an operation of Keras 3 and not a layer.

    Its module says so. HDF5 has none: there it is told by its call arguments (``args``), which only Keras 3 writes, and by a config without
    ``trainable``; the layers that write none either (SpatialDropout, Discretization) have a ``dtype`` and a class of Keras' own.
    """
    module, class_name, config = entry.get("module"), entry.get("class_name"), entry.get("config")
    if isinstance(module, str):
        return module.startswith(_OPERATIONS)
    if not isinstance(config, dict) or "trainable" in config or class_name in _NO_OPERATIONS or ">" in str(class_name):
        return False
    nodes = entry.get("inbound_nodes")
    if not isinstance(nodes, list) or not any(isinstance(node, dict) and "args" in node for node in nodes):
        return False
    return "dtype" not in config or class_name not in builtin_classes()
