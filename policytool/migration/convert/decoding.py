"""
From a file's config to a model that belongs to no generation:
:mod:`policytool.migration.convert.architecture`.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

from policytool.migration.convert._numbering import from_keras2, from_keras3
from policytool.migration.convert.architecture import Network, ObjectKind, Role, Thing, Unit
from policytool.model import calls, inbound_nodes
from policytool.model.calls import Reference
from policytool.model.tree import INPUT_CLASS, LAYERS, MODEL_CLASSES, path_of
from policytool.model.tree.site import split_class
from policytool.releases import generations, keras_objects, layer_classes
from policytool.releases.layer_classes import layer_facts
from policytool.releases.naming import snake_case
from policytool.support.errors import SpellingError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from policytool.migration.convert.architecture import Value
    from policytool.model.calls import Argument
    from policytool.model.loaded_model import LoadedModel
    from policytool.releases.keras_objects import KerasObject
    from policytool.support.text.jsontext import Json

_KINDS: Final = {
    "_initializer": ObjectKind.INITIALIZER,
    "_regularizer": ObjectKind.REGULARIZER,
    "_constraint": ObjectKind.CONSTRAINT,
}
_GRAPH_KEYS: Final = frozenset({LAYERS, "input_layers", "output_layers"})
_LAYER_KEYS: Final = frozenset({"layer", "backward_layer", "cell", "cells", LAYERS})

_SEQUENCES: Final = frozenset({"__tuple__", "TensorShape"})
"""
What the metadata of SavedModels calls shapes and tuples, which stand as lists everywhere else (TF
2.5 to 2.15, tf_keras).
"""

_OWN: Final = frozenset({"keras", "tf_keras", "tensorflow"})
"""The first part of the modules that Keras' own classes say."""


def decode(loaded: LoadedModel) -> Unit:
    """
    Return the model of a file.

    :raises SpellingError: for a graph that no release writes.
    """
    config = loaded.document.config
    if not isinstance(config, dict):
        raise SpellingError("the config in the file is not a serialized Keras model")
    return _Reader(loaded).unit(config, parent=None, attribute=LAYERS)


@dataclass
class _Reader:
    """One reading of one file."""

    loaded: LoadedModel
    used: set[int] = field(default_factory=set)
    places: defaultdict[tuple[int, str, str], int] = field(default_factory=lambda: defaultdict(int))
    """How many of the sites of one name are known to be used."""

    def unit(self, value: dict[str, Json], *, parent: int | None, attribute: str) -> Unit:
        """
        Return the layer, model or op that ``value`` serialises; ``parent`` is the site that holds
        it as ``attribute``.
        """
        serialized = keras_objects.require(value)
        class_name, registered = split_class(serialized)
        module, raw = serialized.module, serialized.config
        config: dict[str, Json] = (
            {LAYERS: raw} if isinstance(raw, list) else dict(raw) if isinstance(raw, dict) else {}
        )
        name = str(value.get("name") or config.get("name") or snake_case(class_name))
        site = self._site(parent, attribute, name)
        operation = layer_classes.is_operation(value)
        is_model = (
            not operation and LAYERS in config and (class_name in MODEL_CLASSES or parent is None)
        )
        build = value.get("build_config")
        return Unit(
            class_name=class_name,
            name=name,
            config=self._config(
                config, site, (class_name, name), is_model=is_model, operation=operation
            ),
            role=Role.OPERATION if operation else Role.MODEL if is_model else Role.LAYER,
            custom=not operation and _is_custom(class_name, registered, module),
            package=_package(registered),
            module=module,
            path=self.loaded.layers[site].path if site is not None else path_of((name,)),
            site=site,
            network=self._network(config, site) if is_model else None,
            build={key: self._value(key, item, site, key) for key, item in build.items()}
            if isinstance(build, dict)
            else None,
        )

    def _site(self, parent: int | None, attribute: str, name: str) -> int | None:
        """
        Return the site of a layer that stands below another; None for what is no layer of the tree.
        """
        if parent is None:
            return 0
        sites = self.loaded.sites
        fitting = (
            self._sites_by_call[parent, name, attribute] or self._sites_by_call[parent, name, None]
        )
        place = self.places[parent, name, attribute]
        while place < len(fitting) and fitting[place] in self.used:
            place += 1
        self.places[parent, name, attribute] = place  # those before it stay used
        found = fitting[place] if place < len(fitting) else next(iter(fitting), None)
        if found is None and attribute in {
            "forward_layer",
            "backward_layer",
        }:  # a SavedModel's objects have the names that they were built with
            found = next(
                (
                    child
                    for child in self.loaded.children[parent]
                    if sites[child].attribute == attribute
                ),
                None,
            )
        if found is None:  # a shared layer stands at its first place
            found = self._sites_by_place.get((*sites[parent].names, name))
        if found is not None:
            self.used.add(found)
        return found

    @cached_property
    def _sites_by_call(self) -> Mapping[tuple[int, str, str | None], list[int]]:
        """
        Sites by what they stand below, their name, and what they are held as; None for whatever
        that is.
        """
        found: dict[tuple[int, str, str | None], list[int]] = defaultdict(list)
        for index, site in enumerate(self.loaded.sites):
            if site.parent is not None:
                for attribute in (site.attribute, None):
                    found[site.parent, site.given_name or site.name, attribute].append(index)
        return found

    @cached_property
    def _sites_by_place(self) -> Mapping[tuple[str, ...], int]:
        """Sites by their further places, the first of several."""
        return {
            names: index
            for index, site in reversed(list(enumerate(self.loaded.sites)))
            for names in site.also_at
        }

    def _config(
        self,
        config: Mapping[str, Json],
        site: int | None,
        called: tuple[str, str],
        *,
        is_model: bool,
        operation: bool,
    ) -> dict[str, Value]:
        class_name, name = called
        left_out = _GRAPH_KEYS if is_model else frozenset()
        found: dict[str, Value] = {}
        for key, value in config.items():
            if key in left_out or (key == "name" and value == name):
                continue
            if key == "dtype":
                found[key] = (
                    self._value(key, value, site, key)
                    if operation or class_name == INPUT_CLASS
                    else self._policy(value)
                )
            else:
                attribute = layer_facts(class_name).holds.get(key, key)
                found[key] = self._value(key, value, site, attribute)
        return found

    def _policy(self, value: Json) -> Value:
        if value is None:
            return None
        try:
            return generations.parse(value, self.loaded.generation)
        except SpellingError:
            return self._value("dtype", value, None, "dtype")

    def _value(self, key: str, value: Json, site: int | None, attribute: str) -> Value:
        if isinstance(value, list):
            return [self._value(key, item, site, attribute) for item in value]
        if not isinstance(value, dict):
            return value
        serialized, items = keras_objects.read(value), value.get("items")
        if (
            serialized is not None
            and serialized.class_name in _SEQUENCES
            and isinstance(items, list)
        ):
            return [self._value(key, item, site, attribute) for item in items]
        if serialized is None or "config" not in value:
            return {inner: self._value(inner, item, site, inner) for inner, item in value.items()}
        if _is_layer(key, serialized):
            return self.unit(value, parent=site, attribute=attribute)
        return self._thing(key, serialized, site)

    def _thing(self, key: str, serialized: KerasObject, site: int | None) -> Thing:
        class_name, registered = split_class(serialized)
        config = serialized.config
        kind = (
            ObjectKind.FUNCTION
            if class_name == keras_objects.FUNCTION
            else next((kind for end, kind in _KINDS.items() if key.endswith(end)), ObjectKind.OTHER)
        )
        inner: Mapping[str, Value] | str | None
        if isinstance(config, dict):
            inner = {name: self._value(name, item, site, name) for name, item in config.items()}
        else:
            inner = config if isinstance(config, str) else None
        package = (
            registered
            if kind is not ObjectKind.FUNCTION
            and registered is not None
            and registered != class_name
            else None
        )
        return Thing(
            kind=kind,
            class_name=class_name,
            config=inner,
            package=package,
            module=serialized.module,
        )

    def _network(self, config: dict[str, Json], site: int | None) -> Network:
        entries = [
            entry
            for entry in _as_list(config.get(LAYERS))
            if isinstance(entry, dict) and keras_objects.class_of(entry) is not None
        ]
        units = tuple(self.unit(entry, parent=site, attribute=LAYERS) for entry in entries)
        if "output_layers" not in config:
            return Network(units=units)
        if stuck := inbound_nodes.stuck(config):
            raise SpellingError(f"a model in the file has {inbound_nodes.describe_stuck(stuck)}")
        nodes = [_as_list(entry.get("inbound_nodes")) for entry in entries]
        keras3 = any(calls.is_of_keras3(node) for listed in nodes for node in listed) or (
            self.loaded.is_keras3 and not any(nodes)
        )
        names = frozenset(unit.name for unit in units)
        inputs, outputs = (
            calls.read_ends(config.get(key), names, keras3=keras3)
            for key in ("input_layers", "output_layers")
        )
        if not (_are_tensors(inputs) and _are_tensors(outputs)):
            raise SpellingError(
                "input_layers or output_layers of a model in the file refer to tensors that its "
                "layers do not produce"
            )
        called = tuple(
            replace(
                unit,
                calls=tuple(calls.read_call(node, names, unit.class_name) for node in listed),
            )
            for unit, listed in zip(units, nodes, strict=True)
        )
        network = Network(units=called, inputs=inputs, outputs=outputs)
        return from_keras3(network) if keras3 else from_keras2(network)


def _are_tensors(ends: Argument) -> bool:
    if isinstance(ends, list | tuple):
        return all(_are_tensors(item) for item in ends)
    return isinstance(ends, Reference) or (
        isinstance(ends, dict) and all(_are_tensors(item) for item in ends.values())
    )


def _as_list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


def _is_layer(key: str, serialized: KerasObject) -> bool:
    config = serialized.arguments
    return (
        key in _LAYER_KEYS
        or ("name" in config and "trainable" in config)
        or serialized.class_name in MODEL_CLASSES
    )


def _is_custom(class_name: str, registered: str | None, module: str | None) -> bool:
    """Return whether a class is someone else's."""
    if registered is not None and ">" in registered and not registered.startswith("Keras>"):
        return True
    own = (
        class_name in layer_classes.builtin_classes()
        or class_name in MODEL_CLASSES
        or layer_facts(class_name).is_op_layer
    )
    return not own or (module is not None and module.split(".", 1)[0] not in _OWN)


def _package(registered: str | None) -> str | None:
    return registered.rpartition(">")[0] if registered is not None and ">" in registered else None
