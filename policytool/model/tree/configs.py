"""
The layers of a model's config, nested to any depth.

Layers are in ``layers`` of a model, in wrappers (``layer``, ``backward_layer``), in RNNs (``cell``,
``cells``), in place of activations, and at any key of a custom class. The config distinguishes a
layer from an initialiser, metric, quantiser or optimizer: ``Layer.get_config`` writes ``name`` and
``trainable`` in all Keras releases from 1.0 to 3.15; the others never write ``trainable``.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from policytool.formats.document import Address
from policytool.model.calls import layer_name
from policytool.model.tree.site import (
    INPUT_CLASS,
    LAYERS,
    MODEL_CLASSES,
    Site,
    Unspelled,
    split_class,
    with_shared_places,
)
from policytool.releases import keras_objects
from policytool.releases.layer_classes import is_operation, layer_facts
from policytool.support import limits
from policytool.support.errors import LimitError, SpellingError
from policytool.support.steps import spend

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from policytool.releases.generations import SubLayer
    from policytool.support.text.jsontext import Json

_NOT_LAYERS: Final = frozenset(
    {
        "inbound_nodes",
        "input_layers",
        "output_layers",
        "build_config",
        "compile_config",
        "dtype",
        "quantization_config",
    }
)
"""Keys whose values never contain a layer."""

_BIDIRECTIONAL_KEYS: Final = frozenset({"layer", "merge_mode"})
"""The config keys by which a subclass of Bidirectional is detected."""

LAYER_SLOTS: Final = frozenset({LAYERS, "layer", "backward_layer", "cell", "cells"})
"""
Keys below which each serialised object is a layer, even a custom layer whose config lacks ``name``
and ``trainable``.
"""

Steps = tuple[str | int, ...]


@dataclass
class _Walk:
    """The state of a walk through a config."""

    root: Address
    """The address of the config."""

    composites: Mapping[str, tuple[SubLayer, ...]]
    keras3: bool
    each: bool
    sites: list[Site] = field(default_factory=list)
    shared: dict[int, int] = field(default_factory=dict)
    """The index of the first site of each shared object id."""

    also_at: defaultdict[int, list[tuple[str, ...]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """The additional places of shared layers, by the index of the first site."""

    copies: defaultdict[int, list[Address]] = field(default_factory=lambda: defaultdict(list))
    """The addresses of the objects that serialize a shared layer there, by the same index."""


class _Place(Struct, frozen=True, kw_only=True):
    """The place of a layer in a config."""

    entry: Address
    """The address of the object that serializes the layer."""

    parent: int | None
    attribute: str
    listed: bool = False
    """Whether the layer is in a list or a dict of that key."""

    prefix: str = ""
    """The prefix that a Bidirectional adds to the name of the layer that it builds."""


def sites(
    root: Address,
    config: Json,
    composites: Mapping[str, tuple[SubLayer, ...]],
    *,
    keras3: bool,
    each: bool = False,
) -> tuple[Site, ...]:
    """
    Return all layers of a serialised model in model order, the model itself first. ``root`` is the
    address of the config.

    :param each: whether a shared layer is returned at each of its places; if not, once
    :raises SpellingError: if the config is not a serialised model, or has more layers than the
        limit.
    """
    walk = _Walk(root=root, composites=composites, keras3=keras3, each=each)
    if (
        not isinstance(config, dict)
        or keras_objects.class_of(config) is None
        or not isinstance(config.get("config"), dict | list)
    ):
        raise SpellingError(
            f"{root.part} contains no serialized model: expected an object with "
            "class_name and config"
        )
    _visit(walk, config, _Place(entry=root, parent=None, attribute=LAYERS))
    return with_shared_places(walk.sites, walk.also_at, walk.copies)


def _visit(walk: _Walk, value: dict[str, Json], place: _Place) -> None:
    """
    Add the layer ``value`` and all layers below it; a layer that was already added gets another
    path.
    """
    if excess := limits.LAYERS.exceeded_message(len(walk.sites) + 1, counting=True):
        raise LimitError(f"{walk.root.part} contains {excess}")
    spend(1, walk="layers of a config")
    site = _site(walk, value, place)
    identity = value.get(keras_objects.SHARED_ID)
    if isinstance(identity, int) and not place.prefix and not walk.each:
        first = walk.shared.setdefault(identity, len(walk.sites))
        if first != len(walk.sites):
            walk.also_at[first].append(site.names)
            walk.copies[first].append(place.entry)
            return
    index = len(walk.sites)
    walk.sites.append(site)
    if site.config is not None and (
        layer_facts(site.class_name).wraps == "directions"
        or site.config.keys() >= _BIDIRECTIONAL_KEYS
    ):
        _visit_directions(walk, site.config, place.entry, index)
    else:
        _visit_children(walk, value.get("config"), place.entry, index)
    _add_sub_layers(walk, site.class_name, index)


def _site(walk: _Walk, value: dict[str, Json], place: _Place) -> Site:
    """Return the site of the layer ``value``, without the layers below it."""
    serialized = keras_objects.require(value)
    config = serialized.config
    class_name, registered = split_class(serialized)
    name = layer_name(value)
    built = (
        name
        if name.startswith(place.prefix) or (walk.keras3 and place.attribute == "backward_layer")
        else place.prefix + name
    )
    above = walk.sites[place.parent].names if place.parent is not None else ()
    stored_dtype: Json | Unspelled = Unspelled.ABSENT
    if isinstance(config, dict):
        stored_dtype = config.get(
            "dtype",
            config.get("input_dtype", Unspelled.ABSENT)
            if class_name == INPUT_CLASS
            else Unspelled.ABSENT,
        )
    return Site(
        names=(*above, built),
        given_name=name if name != built else None,
        class_name=class_name,
        registered_name=registered,
        module=serialized.module,
        attribute=place.attribute,
        listed=place.listed,
        parent=place.parent,
        spelled=stored_dtype,
        entry=place.entry,
        address=Address.below(place.entry, "config", "dtype") if isinstance(config, dict) else None,
        is_model=class_name in MODEL_CLASSES
        or (place.parent is None and _layer_list(config) is not None),
        config=config if isinstance(config, dict) else None,
    )


def _visit_children(walk: _Walk, config: Json, entry: Address, index: int) -> None:
    """Add the layers in the config of the layer at ``index``; ``entry`` is its address."""
    if isinstance(config, list):  # a Sequential of Keras 1 and of 2.0 to 2.2.2
        _visit_value(walk, config, entry, index, (LAYERS, ("config",)))
    elif isinstance(config, dict):
        for key, item in config.items():
            if isinstance(item, dict | list) and key not in _NOT_LAYERS:
                _visit_value(walk, item, entry, index, (key, ("config", key)))


def _visit_value(
    walk: _Walk, value: Json, entry: Address, index: int, item: tuple[str, Steps]
) -> None:
    """
    Add the layers in a value of a layer's config.

    :param item: the key of the value, and the steps to it from ``entry``
    """
    key, steps = item
    for inner_steps, inner in _layers_below(value, steps, slot=key in LAYER_SLOTS):
        _visit(
            walk,
            inner,
            _Place(
                entry=Address.below(entry, *inner_steps),
                parent=index,
                attribute=key,
                listed=len(inner_steps) > len(steps),
            ),
        )


def _visit_directions(walk: _Walk, config: dict[str, Json], entry: Address, index: int) -> None:
    """
    Add both directions of a Bidirectional; without a ``backward_layer`` both are built from one
    config and share its address.
    """
    forward, backward = config.get("layer"), config.get("backward_layer")
    own_backward = keras_objects.class_of(backward) is not None
    directions = (
        ("forward_layer", "forward_", "layer", forward),
        (
            "backward_layer",
            "backward_",
            "backward_layer" if own_backward else "layer",
            backward if own_backward else forward,
        ),
    )
    for attribute, prefix, key, value in directions:
        if isinstance(value, dict) and keras_objects.class_of(value) is not None:
            _visit(
                walk,
                value,
                _Place(
                    entry=Address.below(entry, "config", key),
                    parent=index,
                    attribute=attribute,
                    prefix=prefix,
                ),
            )
    shared_config: dict[str, Json] = {
        key: item for key, item in config.items() if key not in {"layer", "backward_layer"}
    }
    _visit_children(walk, shared_config, entry, index)


def _layers_below(
    value: Json, steps: Steps, *, slot: bool
) -> Iterator[tuple[Steps, dict[str, Json]]]:
    """Yield the layers directly in ``value``: the value itself, or items of its lists and dicts."""
    if isinstance(value, list):
        for position, item in enumerate(value):
            if isinstance(item, dict | list):
                yield from _layers_below(item, (*steps, position), slot=slot)
    elif isinstance(value, dict):
        if keras_objects.class_of(value) is None or "config" not in value:
            for key, item in value.items():
                if isinstance(item, dict | list) and key not in _NOT_LAYERS:
                    yield from _layers_below(item, (*steps, key), slot=False)
        elif is_layer(value, slot=slot):
            yield steps, value


def is_layer(value: dict[str, Json], *, slot: bool) -> bool:
    """
    Return whether an object in a config serializes a layer.

    :param slot: whether it is below one of :data:`LAYER_SLOTS`
    """
    config = value["config"]
    if isinstance(config, dict) and "name" in config and "trainable" in config:
        return True
    if keras_objects.class_of(value) in MODEL_CLASSES and _layer_list(config) is not None:
        return True
    return slot and not is_operation(value)


def _layer_list(config: Json) -> list[Json] | None:
    if isinstance(config, list):
        return config
    if isinstance(config, dict):
        listed = config.get(LAYERS)
        return listed if isinstance(listed, list) else None
    return None


def _add_sub_layers(walk: _Walk, class_name: str, index: int) -> None:
    """
    Add the layers that a built-in layer creates, except those whose name already exists below it.
    """
    owner = walk.sites[index]
    existing_names = {site.name for site in walk.sites[index + 1 :] if site.parent == index}
    for sub in walk.composites.get(class_name, ()):
        if sub.name not in existing_names:
            walk.sites.append(
                Site(
                    names=(*owner.names, sub.name),
                    class_name=sub.class_name,
                    attribute=sub.attribute,
                    parent=index,
                    spelled=owner.spelled,
                    address=owner.address,
                    sub_policy=sub.policy,
                    numbered=sub.numbered,
                )
            )
