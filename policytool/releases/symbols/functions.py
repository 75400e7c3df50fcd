"""
Functions and methods of TensorFlow that only compute tensors from tensors, by the names that op
layers of Keras 2 have in their configs.
"""

from __future__ import annotations

from functools import cache

from policytool.releases import data


def is_pure_function(name: str) -> bool:
    """
    Return whether the name is on the reviewed list of ``data/pure_functions.json``; a name that is
    not may still be harmless.
    """
    return name in _pure()


@cache
def _pure() -> frozenset[str]:
    return frozenset(
        name for names in data.read("pure_functions")["functions"].values() for name in names
    )


def is_class_method(owner: str, name: str) -> bool:
    """Return whether a release of Keras 2 wraps a class' method as a layer."""
    return name in data.read("pure_functions")["class_methods"].get(owner, ())


def is_tensor_attribute(class_name: str, name: str) -> bool:
    """
    Return whether a release of Keras 2 wraps a property or method of ragged or sparse tensors as a
    layer of this class.
    """
    return name in data.read("pure_functions")["instance_attributes"].get(class_name, ())
