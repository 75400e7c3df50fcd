"""
Decoding of a file's config into a model that is independent of generations:
:mod:`policytool.migration.convert.architecture`.

In this model, the first call of each layer and nested model has number 0. In Keras 2 the first call
of a nested model with a graph has number 1, because building the graph creates a node that the
config does not contain (``_should_skip_first_node`` in keras/engine/functional.py). Keras 3 does so
only in ``output_layers`` and only for functional models. Keras 3.0 writes the same and reads it
incorrectly; if a nested model contains the layer too, it counts the call there as the first
(``get_config`` and ``functional_from_config`` in keras/src/models/functional.py; measured with 3.0,
3.3, 3.6 and 3.15).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from msgspec import Struct, structs

from policytool.migration.convert.architecture import (
    Network,
    ObjectKind,
    Role,
    SerializedObject,
    Unit,
    once_per_network,
    replace_references,
    rewire,
    used_calls,
)
from policytool.model import inbound_nodes
from policytool.model.calls import Reference, layer_entries, layer_name, model_calls
from policytool.model.loaded_model import once_per_model
from policytool.model.tree import INPUT_CLASS, LAYERS, MODEL_CLASSES, path_of
from policytool.model.tree.configs import LAYER_SLOTS, is_layer
from policytool.model.tree.site import split_class
from policytool.releases import generations, keras_objects, known_arguments, layer_classes
from policytool.releases.layer_classes import Category, layer_facts
from policytool.support.errors import SpellingError
from policytool.support.text import jsontext

if TYPE_CHECKING:
    from collections.abc import Mapping

    from policytool.migration.convert.architecture import Value
    from policytool.model.calls import Argument, ModelCalls
    from policytool.model.loaded_model import LoadedModel
    from policytool.releases.keras_objects import KerasObject
    from policytool.support.text.jsontext import Json


_SHAPE = "batch_input_shape"


def from_keras2(network: Network) -> Network:
    """Return a network of Keras 2 or 1 with references that count each layer's calls from 0."""
    used = used_calls(network)
    first = {
        unit.name: _first(used[unit.name], unit) for unit in network.units if unit.name in used
    }
    return rewire(network, lambda reference: _less(reference, first.get(reference.layer, 0)))


def from_keras3(network: Network) -> Network:
    """Return a network of Keras 3 with outputs that count each layer's calls from 0."""
    first = first_outputs_keras3(network)
    network = replace(
        network,
        outputs=replace_references(
            network.outputs, lambda reference: _less(reference, first.get(reference.layer, 0))
        ),
    )
    used = used_calls(network)
    renumbered = {
        unit.name: max(used[unit.name]) + 1 - max(len(unit.calls), 1)
        for unit in network.units
        if unit.name in used
    }
    return rewire(
        network, lambda reference: _less(reference, max(renumbered.get(reference.layer, 0), 0))
    )


@once_per_network
def first_calls_keras2(network: Network) -> Mapping[str, int]:
    """Return the number that Keras 2 gives to each unit's first call."""
    return {unit.name: int(has_graph(unit)) for unit in network.units}


@once_per_network
def first_outputs_keras3(network: Network) -> Mapping[str, int]:
    """
    Return the number that Keras 3.3 and later give to each unit's first call in ``output_layers``.
    """
    return {unit.name: int(_is_functional(unit)) for unit in network.units}


def _less(reference: Reference, first: int) -> Reference:
    return structs.replace(reference, call=max(reference.call - first, 0))


def _first(numbers: set[int], unit: Unit) -> int:
    """Return the number of the first call of a unit, from the numbers that references use."""
    if unit.role is not Role.MODEL or 0 in numbers:
        return 0
    return 1 if max(numbers) >= len(unit.calls) else int(has_graph(unit))


def _is_functional(unit: Unit) -> bool:
    return unit.role is Role.MODEL and unit.network is not None and not unit.network.is_chain


def has_graph(unit: Unit) -> bool:
    """
    Return whether a nested model has a graph before it is called: it is functional, or a Sequential
    with a known input shape.
    """
    if unit.role is not Role.MODEL or unit.network is None:
        return False
    if not unit.network.is_chain:
        return True
    first = next(iter(unit.network.units), None)
    return first is not None and (
        first.class_name == INPUT_CLASS or first.config.get(_SHAPE) is not None or has_graph(first)
    )


_GRAPH_KEYS: Final = frozenset({LAYERS, "input_layers", "output_layers"})

_SEQUENCES: Final = frozenset({"__tuple__", "TensorShape"})
"""
The class names of shapes and tuples in the metadata of SavedModels (TF 2.5 to 2.15, tf_keras);
other formats store them as lists.
"""

KERAS_PACKAGES: Final = frozenset({"keras", "tf_keras", "tensorflow"})
"""The first part of the modules of Keras classes."""


@once_per_model
def decode(loaded: LoadedModel) -> Unit:
    """
    Return the model of a file.

    :raises SpellingError: if no release writes the graph in this form.
    """
    document = loaded.document
    config, part = document.config, document.config_part
    if not isinstance(config, dict):
        raise SpellingError("the config in the file is not a serialized Keras model")
    sites = {entry.pointer: site for entry, site in loaded.entries.items() if entry.part == part}
    return _Reader(loaded, sites, document.config_pointer).unit(config, document.config_pointer)


class _Reader(Struct, frozen=True):
    """Decodes one file."""

    loaded: LoadedModel
    sites: Mapping[str, int]
    """The JSON pointers of objects that serialize layers, to the layers' sites."""

    root: str
    """The JSON pointer of the model."""

    def unit(self, value: dict[str, Json], pointer: str) -> Unit:
        """Return the layer, model or op that ``value``, at ``pointer``, serializes."""
        serialized = keras_objects.require(value)
        class_name, registered = split_class(serialized)
        module, raw = serialized.module, serialized.config
        config: dict[str, Json] = (
            {LAYERS: raw} if isinstance(raw, list) else raw if isinstance(raw, dict) else {}
        )
        name = layer_name(value)
        operation = layer_classes.is_operation(value)
        is_model = (
            not operation
            and LAYERS in config
            and (class_name in MODEL_CLASSES or pointer == self.root)
        )
        site = self.sites.get(pointer)
        first = self.loaded.sites[site] if site is not None else None
        if first is not None and first.copies and first.entry is not None:
            pointer = first.entry.pointer  # layers in it have sites only at its first place
        build = value.get("build_config")
        return Unit(
            class_name=class_name,
            name=name,
            config=self._config(
                config,
                f"{pointer}/config",
                (class_name, name),
                is_model=is_model,
                operation=operation,
            ),
            role=Role.OPERATION if operation else Role.MODEL if is_model else Role.LAYER,
            custom=not operation and _is_custom(class_name, registered, module),
            registered_name=registered if registered is not None and ">" in registered else None,
            module=module,
            path=self.loaded.layers[site].path if site is not None else path_of((name,)),
            site=site,
            network=self._network(
                config,
                site,
                f"{pointer}/config" if isinstance(raw, list) else f"{pointer}/config/{LAYERS}",
            )
            if is_model
            else None,
            build={
                key: self._value(key, item, f"{pointer}/build_config", key)
                for key, item in build.items()
            }
            if isinstance(build, dict)
            else None,
        )

    def _config(
        self,
        config: Mapping[str, Json],
        pointer: str,
        called: tuple[str, str],
        *,
        is_model: bool,
        operation: bool,
    ) -> dict[str, Value]:
        """
        Return the decoded config of a layer, model or operation, without its name and its graph.
        """
        class_name, name = called
        left_out = _GRAPH_KEYS if is_model else frozenset()
        values: dict[str, Value] = {}
        for key, value in config.items():
            if key in left_out or (key == "name" and value == name):
                continue
            if key == "dtype" and not operation and class_name != INPUT_CLASS:
                values[key] = self._policy(value, pointer)
            else:
                values[key] = self._value(key, value, pointer, key)
        return values

    def _policy(self, value: Json, above: str) -> Value:
        if value is None:
            return None
        try:
            return generations.parse(value, self.loaded.generation)
        except SpellingError:
            return self._value("dtype", value, above, "dtype")

    def _value(self, key: str, value: Json, above: str, step: str | int) -> Value:
        """
        Return the decoded value of a config.

        :param key: the nearest key above the value
        :param above: the JSON pointer of the object or list that contains it
        :param step: its key or position there
        """
        if not isinstance(value, dict | list):
            return value
        pointer = above + jsontext.pointer(step)
        if isinstance(value, list):
            return [
                self._value(key, item, pointer, position) for position, item in enumerate(value)
            ]
        serialized, items = keras_objects.read(value), value.get("items")
        if (
            serialized is not None
            and serialized.class_name in _SEQUENCES
            and isinstance(items, list)
        ):
            return self._value(key, items, pointer, "items")
        if serialized is None or "config" not in value:
            return {
                inner: self._value(inner, item, pointer, inner) for inner, item in value.items()
            }
        if is_layer(value, slot=key in LAYER_SLOTS):
            return self.unit(value, pointer)
        return self._thing(key, serialized, f"{pointer}/config")

    def _thing(self, key: str, serialized: KerasObject, above: str) -> SerializedObject:
        """Return a decoded object that is not a layer, such as an initializer."""
        class_name, registered = split_class(serialized)
        config = serialized.config
        kind = (
            ObjectKind.FUNCTION
            if class_name == keras_objects.FUNCTION
            else ObjectKind(known_arguments.kind_of(key) or ObjectKind.OTHER)
        )
        inner: Mapping[str, Value] | str | None
        if isinstance(config, dict):
            inner = {name: self._value(name, item, above, name) for name, item in config.items()}
        else:
            inner = config if isinstance(config, str) else None
        registered_name = (
            registered
            if kind is not ObjectKind.FUNCTION
            and registered is not None
            and registered != class_name
            else None
        )
        return SerializedObject(
            kind=kind,
            class_name=class_name,
            config=inner,
            registered_name=registered_name,
            module=serialized.module,
        )

    def _network(self, config: Mapping[str, Json], site: int | None, pointer: str) -> Network:
        """
        Return the network of a model.

        :param pointer: the JSON pointer of the list of its layers
        """
        if "output_layers" not in config:
            entries = layer_entries(config)
            return Network(
                units=tuple(self.unit(entry, f"{pointer}/{place}") for place, entry in entries)
            )
        if uncallable := inbound_nodes.uncallable_layers(config):
            raise SpellingError(
                f"a model in the file has {inbound_nodes.describe_stuck(uncallable)}"
            )
        source = self._model_calls(config, site)
        if not (_are_tensors(source.inputs) and _are_tensors(source.outputs)):
            raise SpellingError(
                "input_layers or output_layers of a model in the file refer to tensors that its "
                "layers do not produce"
            )
        units = tuple(
            replace(self.unit(layer.entry, f"{pointer}/{layer.position}"), calls=layer.calls)
            for layer in source.layers
        )
        network = Network(units=units, inputs=source.inputs, outputs=source.outputs)
        return from_keras3(network) if source.keras3 else from_keras2(network)

    def _model_calls(self, config: Mapping[str, Json], site: int | None) -> ModelCalls:
        """
        Return the calls of a functional model from its graph, or from the config if the graph was
        read from another config: for custom classes, and for nested models in a SavedModel's root.
        """
        if site is not None and self.loaded.sites[site].config is config:
            graph = self.loaded.graphs.get(site)
            if graph is not None and graph.source is not None:
                return graph.source
        return model_calls(config, keras3=self.loaded.is_keras3)


def _are_tensors(ends: Argument) -> bool:
    if isinstance(ends, list | tuple):
        return all(_are_tensors(item) for item in ends)
    return isinstance(ends, Reference) or (
        isinstance(ends, dict) and all(_are_tensors(item) for item in ends.values())
    )


def _is_custom(class_name: str, registered: str | None, module: str | None) -> bool:
    """Return whether a class is custom."""
    if registered is not None and ">" in registered and not registered.startswith("Keras>"):
        return True
    is_own = class_name in layer_classes.builtin_classes() or (
        class_name in layer_classes.known_classes()
        and layer_facts(class_name).category is not Category.FOREIGN
    )
    return not is_own or (module is not None and module.split(".", 1)[0] not in KERAS_PACKAGES)
