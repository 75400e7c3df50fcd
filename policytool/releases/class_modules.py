"""
In which of its modules a release finds which class and which activation. A file stores the module
beside the name, and TF 2.12 and later and Keras 3 look the name up there.

``data/class_modules.json`` is what they found themselves (``fixtures/class_modules.py`` asks them).
"""

from __future__ import annotations

from functools import cache
from typing import Final

from policytool.releases import data, known_arguments

_PACKAGES: Final = frozenset({"keras", "tf_keras", "builtins"})
"""The packages whose modules were asked about; others have classes of users."""


@cache
def is_misplaced(loader: str, module: str, name: str) -> bool:
    """
    Return whether a release does not find a class or an activation that it or another release has
    in a module of Keras.
    """
    if module.partition(".")[0] not in _PACKAGES:
        return False
    rows = data.read("class_modules")["modules"].get(module, {})
    is_found = any(
        name in found.split() and loader in _releases(ranges) for ranges, found in rows.items()
    )
    return not is_found and is_known(name)


def is_known(name: str) -> bool:
    """Return whether some release has a class or an activation of this name."""
    return name in _names()


@cache
def _names() -> frozenset[str]:
    modules = data.read("class_modules")["modules"].values()
    return frozenset(name for rows in modules for found in rows.values() for name in found.split())


@cache
def _releases(ranges: str) -> frozenset[str]:
    return known_arguments.expand_ranges(ranges, data.read("class_modules")["releases"])
