"""Functions and methods of TensorFlow that only compute tensors from tensors, by the names that op layers of Keras 2 have in their configs."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def is_pure_function(name: str) -> bool:
    """Return whether the name is on the reviewed list of ``data/pure_functions.json``; a name that is not may still be harmless."""
    return name in _pure()


@cache
def _pure() -> frozenset[str]:
    return frozenset(name for names in _data()["functions"].values() for name in names)


def is_class_method(owner: str, name: str) -> bool:
    """Return whether a release of Keras 2 wraps a class' method as a layer."""
    return name in _data()["class_methods"].get(owner, ())


def is_tensor_attribute(class_name: str, name: str) -> bool:
    """Return whether a release of Keras 2 wraps a property or method of ragged or sparse tensors as a layer of this class."""
    return name in _data()["instance_attributes"].get(class_name, ())


@cache
def _data() -> Mapping[str, Any]:
    text = Path(__file__).parent.parent.joinpath("data", "pure_functions.json").read_text(encoding="utf-8")
    found: Mapping[str, Any] = json.loads(text)
    return found
