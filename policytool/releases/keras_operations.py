"""
What loaders make of operations in a graph.

Which classes each release of Keras 3 has and what their constructors take, and which functions the
op layers of Keras 2 find by name: ``data/operations.json`` is what they said themselves
(``fixtures/operations.py`` asks them, and explains it).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from policytool.releases import data

if TYPE_CHECKING:
    from collections.abc import Mapping

MODULES: Final = "keras.src.ops."
"""What the modules of Keras 3's operations begin with."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OperationSignature:
    """What a class of operations takes."""

    config: Mapping[str, Any]
    """
    The constructor's parameters that have a default, with it; ``name`` too, where it takes one.
    """

    required: tuple[str, ...]
    """The constructor's parameters without."""

    call: tuple[str, ...]
    """The parameters of a call, in order; one that takes many begins with ``*``."""

    @property
    def takes_name(self) -> bool:
        """Whether an operation of the class can be given a name."""
        return "name" in self.config


def signature(loader: str, module: str, class_name: str) -> OperationSignature | None:
    """
    Return what a release of Keras 3 says of a class of ``keras.src.ops.MODULE``; None where it has
    none.
    """
    for found in data.read("operations")["operations"].get(f"{module}.{class_name}", ()):
        if loader in found["loaders"]:
            return OperationSignature(
                config=found["config"], required=tuple(found["required"]), call=tuple(found["call"])
            )
    return None


def is_known(module: str, class_name: str) -> bool:
    """Return whether any release has a class."""
    return f"{module}.{class_name}" in data.read("operations")["operations"]


def module_of(class_name: str) -> str | None:
    """Return the module of the operation of a name; None where none has it, or several do."""
    found = [
        name.partition(".")[0]
        for name in data.read("operations")["operations"]
        if name.partition(".")[2] == class_name
    ]
    return found[0] if len(found) == 1 else None


def resolves(loader: str, function: str) -> bool:
    """Return whether the op layers of a release of Keras 2 find a function by its name."""
    return loader in data.read("operations")["functions"].get(function, ())
