"""
Which modules, functions and graph ops a model has no reason to name, because they reach files, the
network or Python itself.

``data/hazards.json`` is what the libraries said themselves (``fixtures/hazards.py`` asks them): the
functions that Keras refuses to look up, the modules of Python's standard library, and the ops of
TensorFlow that take a file, a directory or an address, or call Python. ``data/harmful_names.json``
has the reviewed exceptions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Final

from policytool.releases import data
from policytool.releases.symbols import ops

_KERAS: Final = frozenset({"keras", "tf_keras"})
_TENSORFLOW: Final = "tensorflow"
_KERAS_IN_TENSORFLOW: Final = ("tensorflow.python.keras.", "tensorflow.keras.")

_OTHER_KERAS: Final = "tensorflow.python.keras."
"""
TensorFlow's own copy of Keras, whose classes know no safe mode.

Keras 3.0 to 3.8 look them up where a config names this module, which no release writes for a class.
"""

_RAW: Final = "raw_ops."

PRINTING: Final = "PrintV2"
"""``tf.print``, which prints to the terminal, or to a file if its ``output_stream`` says so."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HarmfulOp:
    """An op of a graph that leads out of it."""

    name: str
    what: str
    """What it does, as a part of a sentence."""


def is_harmful(module: str, name: str) -> bool:
    """
    Return whether a config that names this of a module reaches files, the network or Python itself.
    """
    root = module.partition(".")[0]
    if root == "builtins":
        return name in _reviewed("builtins")
    if root in _KERAS or module.startswith(_KERAS_IN_TENSORFLOW):
        if module.startswith(_OTHER_KERAS) and not name[:1].islower():
            return True
        plain = name.rpartition(".")[2]
        if plain in _refused_functions() or plain in _reviewed("keras_functions"):
            return True
        parts = f"{module}.{name}".split(".")[:-1]
        return plain[:1].islower() and any(part in _reviewed("keras_parts") for part in parts)
    if root == _TENSORFLOW:
        inner = module.removeprefix("tensorflow").removeprefix(".python").removeprefix(".")
        return f"{inner}.{name}".startswith(_reviewed("tensorflow_modules")) or in_tensorflow(
            f"{inner}.{name}".removeprefix(".")
        )
    return root in _reviewed("packages") or (
        root in _standard() and root not in _reviewed("harmless_libraries")
    )


def in_tensorflow(name: str) -> bool:
    """Return whether a public name of TensorFlow's, such as ``io.read_file``, is one of those."""
    plain = name.removeprefix("compat.").removeprefix("v1.").removeprefix("v2.")
    if plain.startswith("keras."):
        module, _, function = plain.rpartition(".")
        return is_harmful(module, function)
    if plain.startswith(_RAW):
        return op(plain.removeprefix(_RAW)) is not None
    return plain.startswith(_reviewed("tensorflow")) and not plain.startswith(
        _reviewed("harmless_tensorflow")
    )


def is_foreign(module: str) -> bool:
    """
    Return whether a module is neither Keras' nor what Keras writes for functions that it knows by
    name.
    """
    return (
        module != "builtins"
        and module.partition(".")[0] not in _KERAS
        and not f"{module}.".startswith(_KERAS_IN_TENSORFLOW)
    )


def is_own(registered: str) -> bool:
    """
    Return whether a name that stands for a registered class is Keras 2's own, which it has of
    optimizers: ``Custom>Adam``.
    """
    return registered in data.read("hazards")["registered"]


def op(name: str) -> HarmfulOp | None:
    """
    Return what an op does to files, the network or Python, in any place of a graph; None for
    harmless ops.
    """
    if name in data.read("hazards")["readers"]:
        return HarmfulOp(name=name, what="reads files whose names the graph computes")
    if attributes := data.read("hazards")["programs"].get(name):
        return HarmfulOp(name=name, what=f"runs the code in its {' and '.join(attributes)}")
    arguments = data.read("hazards")["ops"].get(name)
    if (
        arguments is None
        or name in _reviewed("harmless_ops")
        or (ops.is_placed_op(name) and name != PRINTING)
    ):
        return None
    if not arguments:
        return HarmfulOp(
            name=name, what="calls a Python function in the process that runs the graph"
        )
    if name == PRINTING:
        return HarmfulOp(name=name, what="prints to its output_stream, which may be a file")
    return HarmfulOp(name=name, what=f"opens the path given by its {' and '.join(arguments)}")


@cache
def _reviewed(group: str) -> tuple[str, ...]:
    """Return the names, or beginnings of names, of a group of the reviewed exceptions."""
    return tuple(data.read("harmful_names")["groups"][group]["names"])


@cache
def _refused_functions() -> frozenset[str]:
    """
    Return the names of Keras' functions that it refuses to look up, wherever in Keras they are
    found.
    """
    return frozenset(name.rpartition(".")[2] for name in data.read("hazards")["refused"])


@cache
def _standard() -> frozenset[str]:
    return frozenset(data.read("hazards")["standard"])
