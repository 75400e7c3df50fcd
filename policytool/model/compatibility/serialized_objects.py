"""
The serialized objects in a model's config: groups with equal arguments, of which a release supports
either all or none, and the layers that several models of a file share.

Archives of both libraries, and all files of Keras 3, mark the objects of a shared layer, except for
its first object in a nested model, which is written before the second one is found. Other files
show only equal names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from policytool.model import custom_classes
from policytool.model.tree import INPUT_CLASS, path_of
from policytool.releases import keras_objects, known_arguments
from policytool.releases.known_arguments import ACTIVATIONS, LAYERS
from policytool.releases.layer_classes import layer_facts
from policytool.releases.layer_variables import has_variables
from policytool.support.grouping import group_pairs
from policytool.support.text import jsontext

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from policytool.formats.document import Document
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


class SharedLayer(Struct, frozen=True, kw_only=True):
    """A layer of several models."""

    name: str
    class_name: str
    models: tuple[tuple[str, ...], ...]
    """The path of the model of each place, in the order of the file."""

    is_chained: bool
    """Whether the models are Sequential."""

    @property
    def has_variables(self) -> bool | None:
        """Whether the layer can have variables; None if it is unknown."""
        return has_variables(self.class_name)

    @property
    def is_first(self) -> bool:
        """Whether all other models are in the model that the file lists first."""
        outer = self.models[0]
        return all(model[: len(outer)] == outer for model in self.models)


def shared_layers(
    document: Document, sites: Sequence[Site], *, is_marked: bool
) -> tuple[SharedLayer, ...]:
    """
    Return the layers that several models share.

    :param is_marked: whether only layers with a mark are shared, and not those with equal names
    """
    places = group_pairs(
        ((site.name, site.class_name), site)
        for site in sites
        if site.parent is not None
        and sites[site.parent].is_model
        and not site.is_model
        and site.class_name != INPUT_CLASS
    )
    classes = {site.names: site.class_name for site in sites if site.is_model}
    layers = []
    for (name, class_name), found in places.items():
        marks = [number for number, site in enumerate(found, 1) if _has_mark(document, site)]
        occurrences = found[: max(marks, default=0)] if is_marked else found
        models = tuple(names[:-1] for site in occurrences for names in (site.names, *site.also_at))
        if len(set(models)) > 1:
            chains = all(layer_facts(classes.get(model)).network == "chain" for model in models)
            layers.append(
                SharedLayer(name=name, class_name=class_name, models=models, is_chained=chains)
            )
    return tuple(layers)


def _has_mark(document: Document, site: Site) -> bool:
    entry = site.entry and jsontext.value(document.parts[site.entry.part], site.entry.pointer)
    return isinstance(entry, dict) and keras_objects.SHARED_ID in entry
