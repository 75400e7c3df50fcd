"""
Facts of layer classes and of TensorFlow's ops: the data that ``releases/layer_classes.py`` and
``graph_ops.py`` read in the parent process, and which schemas in ``releases/data/schemas/``
describe.
"""

from __future__ import annotations

import functools
import json
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any, Mapping

_DATA = os.path.join(
    os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "releases", "data"
)


def base_names(layer: Any) -> set[str]:
    """
    Return the names of a layer's class and of its base classes, so that a custom class counts as
    the class that it extends.
    """
    return {base.__name__ for base in type(layer).__mro__}


def class_facts(name: str) -> Mapping[str, Any]:
    """Return the facts of a class, by its name; empty for a class without an entry."""
    table = _table("layer_classes")
    entry: Mapping[str, Any] = table["classes"].get(name) or table["unlisted"].get(name, {})
    return entry


def op_facts(name: str) -> Mapping[str, Any]:
    """Return the facts of an op of TensorFlow; empty for an op without an entry."""
    entry: Mapping[str, Any] = _table("graph_op_facts")["ops"].get(name, {})
    return entry


@functools.lru_cache(maxsize=None)
def _table(name: str) -> Mapping[str, Any]:
    with open(os.path.join(_DATA, name + ".json"), encoding="utf-8") as stream:
        table: Mapping[str, Any] = json.load(stream)
    return table


def facts(layer: Any) -> Mapping[str, Any]:
    """Return the facts of a layer: the entry of its closest class that has one."""
    known = (class_facts(base.__name__) for base in type(layer).__mro__)
    return next((entry for entry in known if entry), {})


def category(layer: Any) -> str | None:
    """Return the category of a layer; None if it is unknown."""
    layer_category: str | None = facts(layer).get("category")
    return layer_category


def passes_values(layer: Any) -> bool:
    """
    Return whether a layer predicts with the values of its input, or with values between them.
    Augmentation layers do so outside of training.
    """
    entry = facts(layer)
    return not entry.get("cuts") and (
        entry.get("category") in {"augmentation", "input"}
        or entry.get("values") in {"moved", "unchanged"}
        or bool(entry.get("interpolates"))
    )


def is_embedding(layer: Any) -> bool:
    """Return whether a layer holds a vector for each id."""
    return category(layer) == "core" and bool(facts(layer).get("takes_ids"))


def adapts_statistics(layer: Any) -> bool:
    """Return whether ``adapt`` sets the statistics of a layer's inputs."""
    return category(layer) == "preprocessing" and bool(facts(layer).get("statistics"))
