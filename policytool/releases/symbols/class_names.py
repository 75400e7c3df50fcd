"""
Which classes, functions and modules of Keras a config may name to be loaded without ``--trust``.

``data/pure_classes.json`` is the reviewed list, with what libraries resolve and what was left out
of it (``left_out``). A test holds it against every class that the releases have, so that a new one
is reviewed before it is on the list.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from policytool.releases import data

_ROOTS: Final = frozenset({"keras", "tf_keras"})
_BETWEEN: Final = frozenset({"api", "src", "_tf_keras", "keras", "v2", "_v2", "legacy"})
_MODELLING: Final = frozenset(
    {
        *(
            "layers",
            "models",
            "engine",
            "ops",
            "applications",
            "premade",
            "premade_models",
            "feature_column",
            "feature_space",
        ),
        *(
            "initializers",
            "regularizers",
            "constraints",
            "activations",
            "optimizers",
            "losses",
            "metrics",
        ),
        *("quantizers", "dtype_policies", "mixed_precision", "random", "backend"),
    }
)
"""The parts of Keras that its layers, models and what they are made of stand in."""

_TENSORFLOW: Final = ("tensorflow.python.keras.", "tensorflow.keras.")
_BUILTINS: Final = "builtins"
"""What Keras writes as the module of functions that it finds by name alone."""


def is_pure_class(name: str) -> bool:
    """Return whether a class is on the list."""
    return name in _classes()


def is_pure_class_of(module: str, name: str) -> bool:
    """
    Return whether a class of a module outside Keras is on the list: TensorFlow's initializers,
    which models of keras.applications have.
    """
    return name in data.read("pure_classes")["classes_by_module"].get(module, ())


def exclusion_reason(name: str) -> str | None:
    """Return why a class that Keras resolves is not on the list; None for all other classes."""
    reason: str | None = data.read("pure_classes")["left_out"].get(name)
    return reason


def is_pure_name(name: str) -> bool:
    """
    Return whether a bare name, as Keras 2 has it for activations, initializers and the like, is on
    the list: ``relu``, ``glorot_uniform``, ``Zeros``.
    """
    return (
        name in _plain_functions()
        or name in _classes()
        or name.replace("_", "").lower() in _lower_names()
    )


def is_pure_function_of(module: str | None, name: str) -> bool:
    """Return whether a function that a config names with its module is on the list."""
    if module is None or module == _BUILTINS or is_modelling(module):
        return name in _plain_functions()
    return name in data.read("pure_classes")["functions_by_module"].get(module, ())


def is_pure_spec(name: str) -> bool:
    """Return whether a type of tensors is on the list."""
    return name in data.read("pure_classes")["specs"]


def is_modelling(module: str) -> bool:
    """Return whether a module is of a part of Keras that models are made of."""
    for beginning in _TENSORFLOW:
        if f"{module}.".startswith(beginning):
            module = f"keras.{f'{module}.'.removeprefix(beginning)}".removesuffix(".")
    root, *parts = module.split(".")
    rest = [part for part in parts if part not in _BETWEEN]
    return root in _ROOTS and (not rest or rest[0] in _MODELLING)


@cache
def _classes() -> frozenset[str]:
    return frozenset(
        name for group in data.read("pure_classes")["classes"].values() for name in group
    )


@cache
def _plain_functions() -> frozenset[str]:
    return frozenset(
        name for group in data.read("pure_classes")["functions"].values() for name in group
    )


@cache
def _lower_names() -> frozenset[str]:
    """
    Return the classes as bare names spell them without underscores, and the short names that no
    class has, those of RandomFourierFeatures among them.
    """
    groups = data.read("pure_classes")["classes"]
    named = (
        name for group in ("initializers", "regularizers", "constraints") for name in groups[group]
    )
    return frozenset({*(name.lower() for name in named), *data.read("pure_classes")["short_names"]})
