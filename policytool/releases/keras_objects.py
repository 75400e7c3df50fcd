"""
How Keras serializes an object, such as a layer, an initializer, an optimizer or a policy, in JSON;
and how it names layers and variables.

Every release writes ``class_name`` and ``config``. TF 2.13 and later and Keras 3 add ``module`` and
``registered_name`` in ``.keras`` archives, Keras 3 in HDF5 and JSON too
(keras/src/saving/serialization_lib.py, ``serialize_keras_object``); everything older, and HDF5 of
Keras 2, writes the two alone (keras/utils/generic_utils.py). No other module reads these keys.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from policytool.support.errors import SpellingError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from policytool.support.text.jsontext import Json

FUNCTION: Final = "function"
"""The class name of functions that are serialized by their name."""

TUPLE: Final = "__tuple__"
"""The class name of a tuple, whose config has its ``items``."""

CODE: Final = "__lambda__"
"""The class of Python bytecode."""

ELLIPSIS: Final = "__ellipsis__"
"""The class of an ellipsis in an index."""

ARRAY: Final = "__numpy__"
"""The class of a NumPy array or number."""

_CONTAINERS: Final = frozenset({dict, list})

CLASS: Final = "class_name"
SHARED_ID: Final = "shared_object_id"
"""
The key of the number that Keras gives each object; all places of a shared object have the same
number.
"""

KEYS: Final = ("module", CLASS, "config", "registered_name")
"""The keys of a serialized object, as Keras orders them."""


class KerasObject(Struct, frozen=True, kw_only=True):
    """A serialized object."""

    class_name: str
    """The class name in the file: HDF5 and SavedModels of Keras 2 contain ``package>Class``."""

    config: Json = None
    """The arguments of the object; for a function, its name."""

    module: str | None = None
    registered_name: str | None = None

    @property
    def own_class(self) -> str:
        """The class without its package."""
        return self.class_name.rpartition(">")[2]

    @property
    def arguments(self) -> dict[str, Json]:
        """The config, if it is an object; else no arguments."""
        return self.config if isinstance(self.config, dict) else {}

    @property
    def function(self) -> str | None:
        """The name of the serialized function; None for an object of a class."""
        return self.config if self.class_name == FUNCTION and isinstance(self.config, str) else None


def read(value: object) -> KerasObject | None:
    """Return the object that a JSON value serializes; None for a value without a class name."""
    if not isinstance(value, dict) or not isinstance(class_name := value.get(CLASS), str):
        return None
    module, registered = value.get("module"), value.get("registered_name")
    return KerasObject(
        class_name=class_name,
        config=value.get("config"),
        module=module if isinstance(module, str) else None,
        registered_name=registered if isinstance(registered, str) else None,
    )


def require(value: object) -> KerasObject:
    """
    Return the object that a JSON value serializes.

    :raises SpellingError: for a value without a class name.
    """
    serialized = read(value)
    if serialized is None:
        raise SpellingError("expected a serialized Keras object with a class name")
    return serialized


def class_of(value: object) -> str | None:
    """Return the class name of a serialized object; None for any other value."""
    class_name = value.get(CLASS) if isinstance(value, dict) else None
    return class_name if isinstance(class_name, str) else None


def arguments_of(value: object) -> dict[str, Json]:
    """Return the config of a value if it is an object; otherwise an empty dict."""
    config = value.get("config") if isinstance(value, dict) else None
    return config if isinstance(config, dict) else {}


def dicts(*values: Json) -> Iterator[dict[str, Json]]:
    """Yield each JSON object in some values, at any depth."""
    pending: list[Json] = list(values)
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            yield value
            pending += [item for item in value.values() if type(item) in _CONTAINERS]
        elif isinstance(value, list):
            pending += [item for item in value if type(item) in _CONTAINERS]


def policy_name(value: object) -> str | None:
    """
    Return the name of a policy: the value itself, or the name in the config of an object; None for
    neither.
    """
    name = arguments_of(value).get("name") if isinstance(value, dict) else value
    return name if isinstance(name, str) else None


def layer_list(config: object) -> list[Json]:
    """
    Return the list of layers in a model's config, which is the config itself for a Sequential
    before TF 2.2.
    """
    listed = config.get("layers") if isinstance(config, dict) else config
    return listed if isinstance(listed, list) else []


def stored_calls(entry: Mapping[str, Json]) -> list[Json]:
    """Return the calls of a layer of a functional model; empty if the entry has no list of them."""
    nodes = entry.get("inbound_nodes")
    return nodes if isinstance(nodes, list) else []


def name_of(value: object) -> str | None:
    """
    Return the name by which a release looks up a value: a string, or a serialized function or
    class; None for any other value.
    """
    if isinstance(value, str):
        return value
    serialized = read(value)
    if serialized is None:
        return None
    return serialized.function if serialized.class_name == FUNCTION else serialized.class_name


def short(class_name: str, config: Json) -> dict[str, Json]:
    """Return the two keys that every release reads."""
    return {CLASS: class_name, "config": config}


def special(class_name: str, **contents: Json) -> dict[str, Json]:
    """Return the JSON form of a value that JSON lacks, such as a tuple or an ellipsis."""
    return {CLASS: class_name, **contents}


def full(
    module: str | None, class_name: str, config: Json, registered_name: str | None = None
) -> dict[str, Json]:
    """Return all keys, as ``.keras`` archives and Keras 3 have them."""
    return dict(zip(KEYS, (module, class_name, config, registered_name), strict=True))


USUAL_VARIABLES: Final = (
    *("embeddings", "depthwise_kernel", "pointwise_kernel", "kernel", "recurrent_kernel", "bias"),
    *("gamma", "beta", "moving_mean", "moving_variance"),
)
"""The names of variables of Keras layers, in the order of their creation."""

_WORD = re.compile(r"(.)([A-Z][a-z]+)")
_EDGE = re.compile(r"([a-z])([A-Z])")


def snake_case(class_name: str) -> str:
    """
    Return the name that Keras derives from a class: ``MaxPooling2D`` gives ``max_pooling2d``,
    ``ConvLSTM2D`` gives ``conv_lst_m2d``.

    Source: ``to_snake_case`` in keras/src/utils/naming.py; Keras 2 has the same two substitutions.
    """
    return _EDGE.sub(r"\1_\2", _WORD.sub(r"\1_\2", re.sub(r"\W+", "", class_name))).lower()
