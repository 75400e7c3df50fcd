"""
Which modules, functions and graph ops a model has no reason to name, because they reach files, the
network or Python itself.

``data/hazards.json`` is what the libraries said themselves (``fixtures/hazards.py`` asks them): the
functions that Keras refuses to look up, the modules of Python's standard library, and the ops of
TensorFlow that take a file, a directory or an address, or call Python. ``data/harmful_names.json``
has the reviewed exceptions. ``data/pure_functions.json`` and ``pure_classes.json`` are the reviewed
lists of what only computes.
"""

from __future__ import annotations

import builtins
from functools import cache
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from policytool.releases import data

if TYPE_CHECKING:
    from collections.abc import Mapping


@cache
def _pure_ops() -> frozenset[str]:
    return frozenset(name for group in data.read("pure_ops")["ops"].values() for name in group)


def is_pure_op(name: str) -> bool:
    """
    Return whether an op only computes, at any place in a graph and with any inputs and attributes.
    """
    return name in _pure_ops()


def path_inputs(name: str) -> tuple[int, ...]:
    """
    Return the inputs with paths of an op of TensorFlow's savers and tables; empty for all other
    ops.
    """
    return tuple(data.read("pure_ops")["positions"].get(name, ()))


def attribute_values(name: str) -> Mapping[str, tuple[str, ...]]:
    """
    Return the attributes that decide whether an op is pure, with their allowed values; empty for
    ops whose attributes do not matter.
    """
    return {
        key: tuple(values)
        for key, values in data.read("pure_ops")["attributes"].get(name, {}).items()
    }


@cache
def placed_ops() -> frozenset[bytes]:
    """
    Return the ops that are pure at some places or with some attributes, by their names in graphs.
    """
    return frozenset(
        name.encode()
        for name in (*data.read("pure_ops")["positions"], *data.read("pure_ops")["attributes"])
    )


@cache
def calling_ops() -> frozenset[bytes]:
    """Return the pure ops that call functions of the graph, by their names in graphs."""
    return frozenset(name.encode() for name in data.read("pure_ops")["calling"])


def is_placed_op(name: str) -> bool:
    """Return whether an op is pure at some places or with some attributes."""
    return name.encode() in placed_ops()


_BUILTINS: Final = "builtins"
"""The module that Keras writes for functions that it finds by name only."""

_KERAS: Final = frozenset({"keras", "tf_keras"})
_KERAS_IN_TENSORFLOW: Final = ("tensorflow.python.keras.", "tensorflow.keras.")

_OTHER_KERAS: Final = "tensorflow.python.keras."
"""
TensorFlow's own copy of Keras, whose classes know no safe mode.

Keras 3.0 to 3.8 look them up where a config names this module, which no release writes for a class.
"""

RAW: Final = "raw_ops."

PRINTING: Final = "PrintV2"
"""``tf.print`` prints to the terminal, or to a file if ``output_stream`` names one."""


class HarmfulOp(Struct, frozen=True, kw_only=True):
    """An op that reaches files, the network or Python from a graph."""

    name: str
    what: str
    """The effect of the op, as a part of a sentence."""

    @property
    def sentence(self) -> str:
        """The sentence for a graph that contains the op, without its end."""
        return f"the graph contains the op {self.name}, which {self.what}"


def is_harmful(module: str, name: str) -> bool:
    """
    Return whether a name in a module gives access to files, the network or Python itself, if a
    config refers to it.
    """
    root = module.partition(".")[0]
    if root == _BUILTINS:
        return name in _reviewed(_BUILTINS)
    if root in _KERAS or module.startswith(_KERAS_IN_TENSORFLOW):
        if module.startswith(_OTHER_KERAS) and not name[:1].islower():
            return True
        last_part = name.rpartition(".")[2]
        if last_part in _refused_functions() or last_part in _reviewed("keras_functions"):
            return True
        parts = f"{module}.{name}".split(".")[:-1]
        return last_part[:1].islower() and any(part in _reviewed("keras_parts") for part in parts)
    if root == "tensorflow":
        inner = module.removeprefix("tensorflow").removeprefix(".python").removeprefix(".")
        return f"{inner}.{name}".startswith(_reviewed("tensorflow_modules")) or in_tensorflow(
            f"{inner}.{name}".removeprefix(".")
        )
    return root in _reviewed("packages") or (
        root in _standard() and root not in _reviewed("harmless_libraries")
    )


def in_tensorflow(name: str) -> bool:
    """
    Return whether a public name of TensorFlow, such as ``io.read_file``, gives access to files, the
    network or Python.
    """
    name_without_version = name.removeprefix("compat.").removeprefix("v1.").removeprefix("v2.")
    if name_without_version.startswith("keras."):
        module, _, function = name_without_version.rpartition(".")
        return is_harmful(module, function)
    if name_without_version.startswith(RAW):
        return op(name_without_version.removeprefix(RAW)) is not None
    return name_without_version.startswith(
        _reviewed("tensorflow")
    ) and not name_without_version.startswith(_reviewed("harmless_tensorflow"))


def is_custom_function(name: str, module: str = _BUILTINS) -> bool:
    """
    Return whether a function is custom although its module is ``builtins``, which Keras 3 writes
    for a function that it finds only by its name.
    """
    return (
        module == _BUILTINS
        and not hasattr(builtins, name)
        and not is_pure_function_of(module, name)
    )


def is_foreign(module: str) -> bool:
    """
    Return whether a module is outside of Keras, and not one that Keras writes for functions that it
    finds by name.
    """
    return (
        module != _BUILTINS
        and module.partition(".")[0] not in _KERAS
        and not f"{module}.".startswith(_KERAS_IN_TENSORFLOW)
    )


def is_own(registered: str) -> bool:
    """
    Return whether the registered name of a class is one that Keras 2 itself writes, as for
    optimizers: ``Custom>Adam``.
    """
    return registered in data.read("hazards")["registered"]


def op(name: str) -> HarmfulOp | None:
    """
    Return the effect of an op on files, the network or Python, anywhere in a graph; None for
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
        or (is_placed_op(name) and name != PRINTING)
    ):
        return None
    if calls_python(name):
        return HarmfulOp(
            name=name, what="calls a Python function in the process that runs the graph"
        )
    if name == PRINTING:
        return HarmfulOp(name=name, what="prints to its output_stream, which may be a file")
    return HarmfulOp(name=name, what=f"opens the path given by its {' and '.join(arguments)}")


def calls_python(name: str) -> bool:
    """Return whether an op calls a Python function in the process that runs the graph."""
    arguments: object = data.read("hazards")["ops"].get(name)
    return arguments == []


@cache
def _reviewed(group: str) -> tuple[str, ...]:
    """Return the names, or beginnings of names, of a group in the reviewed exceptions."""
    return tuple(data.read("harmful_names")["groups"][group]["names"])


@cache
def _refused_functions() -> frozenset[str]:
    """Return the names of the functions that Keras does not look up in its modules."""
    return frozenset(name.rpartition(".")[2] for name in data.read("hazards")["refused"])


@cache
def _standard() -> frozenset[str]:
    return frozenset(data.read("hazards")["standard"])


def is_pure_function(name: str) -> bool:
    """
    Return whether a name is in the reviewed list of ``data/pure_functions.json``. Other functions
    may be harmless too.
    """
    return name in _pure()


@cache
def _pure() -> frozenset[str]:
    return frozenset(
        name for names in data.read("pure_functions")["functions"].values() for name in names
    )


def is_class_method(owner: str, name: str) -> bool:
    """Return whether a Keras 2 release wraps a method of a class as a layer."""
    return name in data.read("pure_functions")["class_methods"].get(owner, ())


def is_tensor_attribute(class_name: str, name: str) -> bool:
    """
    Return whether a Keras 2 release wraps a property or method of ragged or sparse tensors as a
    layer of this class.
    """
    return name in data.read("pure_functions")["instance_attributes"].get(class_name, ())


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
"""The packages of Keras with its layers, models and their parts."""


def is_pure_class(name: str) -> bool:
    """Return whether a class is in the reviewed list."""
    return name in _classes()


def is_pure_class_of(module: str, name: str) -> bool:
    """
    Return whether a class in a module outside of Keras is in the reviewed list: initializers of
    TensorFlow, which models of keras.applications contain.
    """
    return name in data.read("pure_classes")["classes_by_module"].get(module, ())


_HUB: Final = ("keras_hub", "keras_nlp")
"""KerasHub, and its name before 0.17."""


def is_pure_hub_class(module: str, name: str, registered_name: object) -> bool:
    """
    Return whether a class of KerasHub is in the reviewed list, and has the registered name by which
    Keras looks it up before it reads the module.
    """
    return (
        module.startswith(tuple(f"{package}." for package in _HUB))
        and registered_name in {f"{package}>{name}" for package in _HUB}
        and is_reviewed_hub_class(name)
    )


def hub_class(registered_name: str) -> str | None:
    """Return the class of KerasHub that a registered name means; None for other names."""
    package, _, name = registered_name.partition(">")
    return name if package in _HUB else None


def is_reviewed_hub_class(name: str) -> bool:
    """Return whether a class of KerasHub, such as a backbone, is in the reviewed list."""
    return name in data.read("keras_hub_classes")["classes"]


def is_hub_activation(name: str) -> bool:
    """Return whether a class of KerasHub has an activation that Keras does not have."""
    return name in data.read("keras_hub_classes")["activations"]


def exclusion_reason(name: str) -> str | None:
    """
    Return the reason why a class that can be looked up is not in the reviewed list; None for all
    other classes.
    """
    reason: str | None = data.read("pure_classes")["left_out"].get(name)
    return reason


def is_pure_name(name: str) -> bool:
    """
    Return whether a bare name is in the reviewed list. Keras 2 writes such names for activations
    and initializers: ``relu``, ``glorot_uniform``, ``Zeros``.
    """
    return (
        name in _plain_functions()
        or name in _classes()
        or name.replace("_", "").lower() in _lower_names()
    )


def is_pure_function_of(module: str | None, name: str) -> bool:
    """Return whether a function in a module is in the reviewed list."""
    if module is None or module == _BUILTINS or is_modelling(module):
        return name in _plain_functions()
    return name in data.read("pure_classes")["functions_by_module"].get(module, ())


def is_pure_spec(name: str) -> bool:
    """Return whether a type of tensors is in the reviewed list."""
    return name in data.read("pure_classes")["specs"]


def is_modelling(module: str) -> bool:
    """Return whether a module is in a part of Keras that contains components of models."""
    for beginning in _KERAS_IN_TENSORFLOW:
        if f"{module}.".startswith(beginning):
            module = f"keras.{f'{module}.'.removeprefix(beginning)}".removesuffix(".")
    root, *parts = module.split(".")
    inner_parts = [part for part in parts if part not in _BETWEEN]
    return root in _ROOTS and (not inner_parts or inner_parts[0] in _MODELLING)


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
    Return the reviewed classes as bare names without underscores, and the short names without a
    class, such as those of RandomFourierFeatures.
    """
    groups = data.read("pure_classes")["classes"]
    named = (
        name for group in ("initializers", "regularizers", "constraints") for name in groups[group]
    )
    return frozenset({*(name.lower() for name in named), *data.read("pure_classes")["short_names"]})
