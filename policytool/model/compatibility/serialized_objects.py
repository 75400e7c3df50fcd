"""
The serialised objects in a model's config, in groups of equal arguments. A release supports either
all objects of a group or none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from policytool.model import custom_classes
from policytool.model.tree import path_of
from policytool.releases import keras_objects, known_arguments
from policytool.releases.known_arguments import ACTIVATIONS, LAYERS
from policytool.releases.layer_classes import layer_facts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from policytool.model.tree import Site
    from policytool.support.text.jsontext import Json

_PACKAGE: Final = ">"
"""The separator between the package and the class in the name of a registered class."""


class ObjectGroup(Struct, frozen=True):
    """Objects of one class whose configs have the same keys."""

    kind: str
    """
    ``layers``, ``initializers`` and so on, as :mod:`policytool.releases.known_arguments` names
    them.
    """

    class_name: str
    module: bool
    """Whether the file stores the module of the class."""

    custom: bool
    """Whether the class is not part of Keras."""

    config: Mapping[str, Json]
    """The config of the first object. The same keys of the others are null."""

    layers: list[str] = field(default_factory=list)
    """The paths of the layers that are such objects, or have one in their config."""


def objects(sites: Sequence[Site]) -> tuple[ObjectGroup, ...]:
    """Return the layers of a model and the objects in their configs, grouped by equal arguments."""
    groups: dict[tuple[object, ...], ObjectGroup] = {}
    for site in sites:
        if site.config is None or _is_implicit(site, sites):
            continue
        custom = not layer_facts(site.class_name).is_opaque and custom_classes.is_opaque(site)
        for kind, name, module, is_custom, config in (
            (LAYERS, site.class_name, site.module is not None, custom, site.config),
            *_parts(site.config),
        ):
            values = (
                ()
                if is_custom
                else tuple(str(config.get(key)) for key in known_arguments.valued_keys(kind, name))
            )
            empty = tuple(key for key, value in config.items() if value is None)
            signature = (kind, name, module, is_custom, tuple(config), empty, values)
            group = groups.get(signature)
            if group is None:
                groups[signature] = group = ObjectGroup(kind, name, module, is_custom, config)
            group.layers.append(path_of(site.names))
    return tuple(groups.values())


def _is_implicit(site: Site, sites: Sequence[Site]) -> bool:
    """
    Return whether a layer of a SavedModel is one that its parent creates, as ConvLSTM2D creates a
    cell: releases do not read its config. Those that can be created alone are tested nevertheless.
    """
    if site.parent is None or known_arguments.is_known(LAYERS, site.class_name):
        return False
    facts = layer_facts(sites[site.parent].class_name)
    created = (*facts.sublayers.values(), *facts.sublayers_to_tf25.values())
    return site.class_name in {sublayer.class_name for sublayer in created}


def _parts(
    config: Mapping[str, Json],
) -> Iterator[tuple[str, str, bool, bool, Mapping[str, Json]]]:
    """
    Yield the initialisers, regularisers, constraints and activations in a layer's config: kind,
    class, whether the module is stored, whether the class is not part of Keras, and config.
    """
    for key, value in config.items():
        if type(value) is str:
            if key.endswith("activation"):
                yield ACTIVATIONS, value, False, False, {}
            continue
        kind = known_arguments.kind_of(key)
        if type(value) is not dict or (kind is None and not key.endswith("activation")):
            continue
        serialized = keras_objects.read(value)
        if serialized is None:
            continue
        if kind is None:
            if serialized.class_name == keras_objects.FUNCTION:
                module = serialized.module is not None
                yield ACTIVATIONS, str(serialized.config), module, False, {}
        elif isinstance(serialized.config, dict):
            name = serialized.own_class
            is_custom = not known_arguments.is_known(kind, name) and _PACKAGE in (
                serialized.registered_name or serialized.class_name
            )
            module = serialized.module is not None
            yield (
                kind,
                name if is_custom else serialized.class_name,
                module,
                is_custom,
                (serialized.config),
            )
