"""
What a layer's config names that is not Keras' own: activations, initialisers, regularisers and
constraints of someone else's.

A loader without them cannot build the layer, though its class is Keras' own.
``data/built_in_names.json`` has the names that loaders find themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from policytool.releases import data, keras_objects
from policytool.releases.layer_classes import builtin_classes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_ACTIVATION: Final = "activation"
_ENDINGS: Final = ("_initializer", "_regularizer", "_constraint")


def names(config: Mapping[str, object]) -> Iterator[str]:
    """Yield what a layer's own config names and Keras has not."""
    for key, value in config.items():
        if key.endswith(_ACTIVATION):
            yield from (
                name
                for name in activations(value)
                if name not in _built_in()["activations"] and name not in builtin_classes()
            )
        elif key.endswith(_ENDINGS):
            named = keras_objects.class_of(value) if isinstance(value, dict) else value
            if isinstance(named, str) and not _is_built_in_object(named):
                yield named


def first_built() -> dict[str, str]:
    """
    Return the activations that older loaders do not know, with the first of those that were asked
    that does: in an older one the layer is revived from traces.
    """
    return {
        name: entry["revived_before"]
        for name, entry in _built_in()["activations"].items()
        if "revived_before" in entry
    }


def activations(value: object) -> Iterator[str]:
    """
    Yield the name of an activation: a function, by its name alone or serialised, or a layer's
    class.
    """
    if (name := keras_objects.name_of(value)) is not None:
        yield name


def _is_built_in_object(name: str) -> bool:
    return name in _built_in()["classes"] or name in _built_in()["bare_names"]


def _built_in() -> Mapping[str, Any]:
    return data.read("built_in_names")
