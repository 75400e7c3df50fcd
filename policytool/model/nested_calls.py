"""
What Keras 3 makes of nested models in the HDF5 of Keras 2.

Keras 2 counts the calls of a nested model from 1, because the model was called once when it was
made. Keras 3 counts them from 0: what another layer gets from the last call is a call that it does
not have, and of an output it takes one off, if the nested model is functional
(``functional_from_config`` in keras/src/models/functional.py, from 3.3 on). In a Sequential, a
functional model gives a list of one tensor in Keras 3.0 and 3.15.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.model import inbound_nodes
from policytool.releases import keras_objects
from policytool.releases.layer_classes import layer_facts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from policytool.support.text.jsontext import Json

SEQUENTIAL: Final = "Sequential"
FUNCTIONAL: Final = frozenset({"Functional", "Model"})
MODELS: Final = FUNCTIONAL | {SEQUENTIAL}


def misses_calls(config: Mapping[str, Json]) -> bool:
    """
    Return whether Keras 3 looks for a call that a functional model's config does not have: one of a
    nested model, or of a Sequential that gives an output.
    """
    return any(
        keras_objects.class_of(entry) == SEQUENTIAL for entry in _entries(config.get("layers"))
    ) or bool(inbound_nodes.stuck(config, from_zero=True))


def behind_models(layers: Sequence[Json]) -> Iterator[str]:
    """
    Yield the class of each layer of a Sequential that is the first to need the tensor of a
    functional model in front of it.
    """
    listed = False
    for entry in _entries(layers):
        class_name = keras_objects.class_of(entry)
        if class_name in MODELS:
            listed = class_name != SEQUENTIAL
        elif listed and layer_facts(str(class_name)).list_of_one != "kept":
            yield str(class_name)
            listed = False


def _entries(layers: Json | Sequence[Json]) -> Iterator[dict[str, Json]]:
    for entry in layers if isinstance(layers, list) else ():
        if isinstance(entry, dict):
            yield entry
