"""
Layers whose declared policy does not prove their compute dtype, and the names of custom code in the
config of a layer.

Custom code, Lambda, ops of a graph wrapped as layers, and other frameworks' modules compute as
their code says, whatever their policy.

Custom code in a config is an activation, initialiser, regulariser or constraint that is not part of
Keras.

A release without this code cannot build the layer, even if the class of the layer is part of Keras.
``data/built_in_names.json`` has the names that releases find without custom code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from policytool.releases import data, keras_objects, known_arguments
from policytool.releases.layer_classes import builtin_classes, known_classes, layer_facts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from policytool.model.tree import Site

_KERAS_MODULES: Final = ("keras.", "tf_keras.", "tensorflow.python.keras.", "tensorflow.keras.")


def is_opaque(site: Site) -> bool:
    """
    Return whether the class at ``site`` is not part of Keras, or runs code of others. The layers
    that only a weights file names follow the policy of the layer that creates them.
    """
    if not site.class_name:
        return False
    if layer_facts(site.class_name).is_opaque:
        return True
    if site.registered_name is not None and site.registered_name != site.class_name:
        return True
    if site.module is not None:
        return not f"{site.module}.".startswith(_KERAS_MODULES)
    return site.class_name not in known_classes()


def names(sites: Iterable[Site]) -> list[str]:
    """
    Return the names of custom classes as the file stores them: the names under which
    ``--custom-objects`` has to define them.
    """
    return sorted(
        {
            site.registered_name or site.class_name or ""
            for site in sites
            if is_opaque(site) and not layer_facts(site.class_name).is_opaque
        }
    )


def custom_names(config: Mapping[str, object]) -> Iterator[str]:
    """Yield the names of functions and classes in a layer's config that are not part of Keras."""
    for key, value in config.items():
        if key.endswith("activation"):
            yield from (
                name
                for name in activations(value)
                if name not in _built_in()["activations"] and name not in builtin_classes()
            )
        elif known_arguments.kind_of(key) is not None:
            name = keras_objects.class_of(value) if isinstance(value, dict) else value
            if isinstance(name, str) and not _is_built_in_object(name):
                yield name


def first_built() -> dict[str, str]:
    """
    Return the activations that older releases lack, with the first measured release that has each.
    An older release revives the layer from its traces.
    """
    return {
        name: entry["revived_before"]
        for name, entry in _built_in()["activations"].items()
        if "revived_before" in entry
    }


def activations(value: object) -> Iterator[str]:
    """
    Yield the name of an activation: a function name, a serialised function, or the class of a
    layer.
    """
    if (name := keras_objects.name_of(value)) is not None:
        yield name


def _is_built_in_object(name: str) -> bool:
    return name in _built_in()["classes"] or name in _built_in()["bare_names"]


def _built_in() -> Mapping[str, Any]:
    return data.read("built_in_names")
