"""
Facts of layer classes: the data that ``releases/layer_classes.py`` reads in the parent process, and
which its schema in ``releases/data/schemas/`` describes.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any, Mapping

_DATA = os.path.join(
    os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
    "releases",
    "data",
    "layer_classes.json",
)
_entries: dict[str, Mapping[str, Any]] = {}


def kinds(layer: Any) -> set[str]:
    """
    Return the names of a layer's class and of those that it derives from, so that a class of
    someone else's counts as what it extends.
    """
    return {one.__name__ for one in type(layer).__mro__}


def class_facts(name: str) -> Mapping[str, Any]:
    """Return what is known of a class by its name; nothing for one that has no entry."""
    if not _entries:
        with open(_DATA, encoding="utf-8") as stream:
            table = json.load(stream)
        _entries.update({**table["classes"], **table["unlisted"]})
    return _entries.get(name, {})


def facts(layer: Any) -> Mapping[str, Any]:
    """Return what is known of a layer: of the closest of its classes that has an entry."""
    known = (class_facts(one.__name__) for one in type(layer).__mro__)
    return next((entry for entry in known if entry), {})


def category(layer: Any) -> str | None:
    """Return what kind of layer a layer is; None if that is unknown."""
    found: str | None = facts(layer).get("category")
    return found


def passes_values(layer: Any) -> bool:
    """
    Return whether a layer predicts with its input's own values, or with ones between them;
    augmentation does so where nothing is trained.
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
