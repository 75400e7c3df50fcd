"""
Encoding of a model that is independent of generations into the config that a target reads.

The graphs of functional models are written in the forms that :mod:`policytool.model.calls`
describes. Keras 3.0 to 3.15 do not use the shape and dtype of a tensor when they read a graph;
those that a file of Keras 2 does not contain are written as unknown.

The keys of each object are checked against the keys that the target accepts, which
``data/layer_arguments.json`` records from the releases.

A key that the target does not accept is omitted if its value is the default behaviour of the
target: the value that releases write for a default instance. Other values are refused, with the
layer and the key. If the source omits a key whose default differs in the target, the key is
written.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from msgspec import structs

from policytool.migration.convert.architecture import (
    Network,
    ObjectKind,
    Role,
    SerializedObject,
    Unit,
    map_units,
)
from policytool.migration.convert.decoding import first_calls_keras2, first_outputs_keras3
from policytool.migration.convert.target import display_value
from policytool.model.calls import (
    CONSTANT,
    SLICE,
    TENSOR,
    UNKNOWN_SHAPE,
    Constant,
    Dtype,
    Reference,
    Slice,
)
from policytool.model.tree import LAYERS
from policytool.releases import keras_objects, keras_operations, known_arguments
from policytool.releases.layer_classes import layer_facts, registered_class_name
from policytool.releases.policy import Policy, PolicyMap
from policytool.support.errors import SpellingError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from policytool.migration.convert.architecture import Value
    from policytool.migration.convert.target import Log, Target
    from policytool.model.calls import Argument
    from policytool.support.text.jsontext import Json


def keeps_structure(class_name: str) -> bool:
    """
    Return whether the layer of an op stores a single tensor without a list
    (``_preserve_input_structure_in_config``).
    """
    return layer_facts(class_name).wrapped_op not in {None, "node_def"}


class UnwritableCallError(ValueError):
    """A call that the graph format cannot represent."""


def has_ellipsis(unit: Unit) -> bool:
    """
    Return whether a slicing layer is called with an ellipsis.

    HDF5 files have an object for the ellipsis. Archives have none, and releases do not decode the
    object of HDF5 in them.
    """
    specs = [call.kwargs.get("slice_spec") for call in unit.calls]
    items = [item for spec in specs for item in (spec if isinstance(spec, list) else [spec])]
    return any(isinstance(item, Slice) and item.ellipsis for item in items)


def keras2_nodes(unit: Unit, offsets: Mapping[str, int]) -> list[Json]:
    """
    Return the calls of a unit as ``inbound_nodes``.

    :param offsets: the number of each unit's first call in the network
    :raises UnwritableCallError: for positional arguments after the first, and for values that
        cannot be written as JSON.
    """
    inbound_nodes: list[Json] = []
    for call in unit.calls:
        if len(call.args) != 1:
            raise UnwritableCallError(f"{len(call.args)} positional arguments")
        kwargs: dict[str, Json] = {
            key: _keras2_argument(item, offsets) for key, item in call.kwargs.items()
        }
        first = _written_first(call.args[0], kwargs, offsets)
        is_single = isinstance(call.args[0], Reference | Constant)
        inbound_nodes.append(
            [first] if is_single and not keeps_structure(unit.class_name) else first
        )
    return inbound_nodes


def _written_first(argument: Argument, kwargs: dict[str, Json], offsets: Mapping[str, int]) -> Json:
    """
    Return an argument of a call in the Keras 2 format, in which the keyword arguments follow each
    tensor.
    """
    match argument:
        case Reference():
            call = argument.call + offsets.get(argument.layer, 0)
            return [argument.layer, call, argument.output, kwargs]
        case list() | tuple():
            return [_written_first(item, kwargs, offsets) for item in argument]
        case dict():
            return {key: _written_first(item, kwargs, offsets) for key, item in argument.items()}
    return [CONSTANT, -1, _keras2_argument(argument, offsets), kwargs]


def _keras2_argument(argument: Argument, offsets: Mapping[str, int]) -> Json:
    """
    Return an argument in the format of Keras 2, which Keras 3 uses for a model's inputs and
    outputs.
    """
    match argument:
        case Reference():
            return [argument.layer, argument.call + offsets.get(argument.layer, 0), argument.output]
        case list() | tuple():
            return [_keras2_argument(item, offsets) for item in argument]
        case dict():
            return {key: _keras2_argument(item, offsets) for key, item in argument.items()}
        case Constant():
            return _keras2_argument(argument.value, offsets)
        case Dtype():
            return argument.name
        case Slice(ellipsis=True):
            return keras_objects.special(keras_objects.ELLIPSIS)
        case Slice():
            raise UnwritableCallError("a slice")
        case None | bool() | int() | float() | str():
            return argument
    raise UnwritableCallError(
        "an object instead of a value"
    )  # for a config in a form that no release writes


def keras3_nodes(unit: Unit) -> list[Json]:
    """Return the calls of a unit as ``inbound_nodes``."""
    return [
        {
            "args": [_keras3_argument(item) for item in call.args],
            "kwargs": {key: _keras3_argument(item) for key, item in call.kwargs.items()},
        }
        for call in unit.calls
    ]


def _keras3_argument(argument: Argument) -> Json:
    """Return an argument of a call in the Keras 3 format."""
    match argument:
        case Reference():
            history: list[Json] = [argument.layer, argument.call, argument.output]
            return keras_objects.short(
                TENSOR, {"shape": list(UNKNOWN_SHAPE), "dtype": "float32", "keras_history": history}
            )
        case list():
            return [_keras3_argument(item) for item in argument]
        case tuple():
            items: list[Json] = [_keras3_argument(item) for item in argument]
            return keras_objects.special(keras_objects.TUPLE, items=items)
        case dict():
            return {key: _keras3_argument(item) for key, item in argument.items()}
        case Constant():
            return keras_objects.short(
                "__numpy__",
                {"value": _keras3_argument(argument.value), "dtype": argument.dtype or "float32"},
            )
        case Dtype():
            return argument.name
        case Slice(ellipsis=True):
            return keras_objects.short(keras_objects.ELLIPSIS, {})
        case Slice():
            bounds = {"start": argument.start, "stop": argument.stop, "step": argument.step}
            return keras_objects.short(
                SLICE, {key: _keras3_argument(item) for key, item in bounds.items()}
            )
    return argument


_MODULES: Final = {
    ObjectKind.INITIALIZER: "keras.initializers",
    ObjectKind.REGULARIZER: "keras.regularizers",
    ObjectKind.CONSTRAINT: "keras.constraints",
    ObjectKind.FUNCTION: "builtins",
}

_FUNCTIONAL: Final = "Functional"


_MODEL_BEFORE: Final = "tf2.3"
"""The first release that writes functional models as ``Functional``, not as ``Model``."""


def encode(root: Unit, target: Target, log: Log) -> Json:
    """
    Return the serialized model in the format of the target's container. Anything that the target
    cannot represent is logged as a refusal.
    """
    serialised = _Writer(target, log).unit(root, network=None, member=True)
    if target.container != "json" or target.is_keras3:
        return serialised
    model = keras_objects.require(serialised)
    return {
        **keras_objects.short(model.class_name, model.config),
        "keras_version": target.keras_version,
        "backend": "tensorflow",
    }  # the format of to_json()


@dataclass(frozen=True)
class _Writer:
    """Encodes one model for one target."""

    _target: Target
    _log: Log

    def unit(self, unit: Unit, *, network: Network | None, member: bool = False) -> dict[str, Json]:
        """
        Return a unit as an object of a config.

        :param network: the model that contains the unit as a layer; None for the root model, and
            for units in another layer's config
        :param member: whether the unit is a model's layer or the root model, which has a module
            only in archives
        """
        class_name = self._class_name(unit)
        config: dict[str, Json] = {"name": unit.name} if self._contains_name(unit) else {}
        for key, value in unit.config.items():
            config[key] = self._value(unit, value) if key != "dtype" else self._dtype(unit, value)
        if unit.network is not None:
            config |= self._network(unit.network, member=member)
        entry = self._entry(unit, class_name, config, member=member)
        if (
            unit.build is not None
            and self._target.container == "keras"
            and unit.role is not Role.OPERATION
        ):
            entry["build_config"] = self._value(unit, dict(unit.build))
        if network is not None and not network.is_chain:
            entry["name"] = unit.name
            entry["inbound_nodes"] = self._nodes(unit, network)
        return entry

    def _contains_name(self, unit: Unit) -> bool:
        """
        Return whether the config contains the name: operations of older Keras 3 releases do not
        accept it.
        """
        if unit.role is not Role.OPERATION or unit.module is None:
            return True
        signature = keras_operations.signature(
            self._target.loader, unit.module.removeprefix(keras_operations.MODULES), unit.class_name
        )
        return signature is None or signature.takes_name

    def _class_name(self, unit: Unit) -> str:
        """Return the class name under which the target stores a unit."""
        if (
            unit.role is Role.MODEL
            and unit.registered_name is None
            and unit.network is not None
            and layer_facts(unit.class_name).is_model
        ):
            if unit.network.is_chain:
                return "Sequential"
            return _FUNCTIONAL if self._target.since(_MODEL_BEFORE) else "Model"
        return unit.class_name

    def _entry(
        self, unit: Unit, class_name: str, config: dict[str, Json], *, member: bool
    ) -> dict[str, Json]:
        """
        Return the entry of a unit in a config, with its module and registered name if the target
        stores them.
        """
        modules = self._target.container == "keras" or (
            self._target.writes_modules and (not member or self._target.container == "json")
        )
        if unit.role is Role.OPERATION:
            return keras_objects.full(unit.module, class_name, config, class_name)
        name = (unit.registered_name if unit.custom else None) or class_name
        if not modules:
            return keras_objects.short(name, config)
        if unit.custom:
            return keras_objects.full(unit.module, class_name, config, name)
        module = self._module(unit, class_name)
        if keeps_structure(class_name):
            return keras_objects.full(module, class_name, config, class_name)
        file_name = registered_class_name(class_name) if self._target.is_keras3 else class_name
        registered = class_name if class_name == _FUNCTIONAL else None
        return keras_objects.full(module, file_name, config, registered)

    def _module(self, unit: Unit, class_name: str) -> str:
        """Return the module that the target stores for a class of Keras."""
        if class_name == _FUNCTIONAL:
            return (
                "keras.src.models.functional"
                if self._target.is_keras3
                else f"{self._target.package}.engine.functional"
            )
        if keeps_structure(class_name):
            return f"{self._target.package}.layers.core.tf_op_layer"
        return "keras" if unit.role is Role.MODEL else "keras.layers"

    def _network(self, network: Network, *, member: bool) -> dict[str, Json]:
        """
        Return the config entries of a network: its layers and, unless it is a chain, its inputs and
        outputs.
        """
        layers: list[Json] = [
            self.unit(unit, network=network, member=member) for unit in network.units
        ]
        if network.is_chain:
            return {LAYERS: layers}
        return {
            LAYERS: layers,
            "input_layers": self._ends(network, network.inputs),
            "output_layers": self._ends(network, network.outputs),
        }

    def _nodes(self, unit: Unit, network: Network) -> list[Json]:
        """
        Return the calls of a unit in the target's format; empty if the target cannot represent
        them, which is refused.
        """
        if self._target.is_keras3:
            return keras3_nodes(unit)
        if self._target.container == "keras" and has_ellipsis(unit):
            self._log.refuse(
                "call",
                unit,
                f"{unit.path} uses an ellipsis in a slice, which Keras 2 .keras archives "
                "cannot store; use HDF5 (-o X.h5)",
            )
        try:
            return keras2_nodes(unit, first_calls_keras2(network))
        except UnwritableCallError as error:
            if not self._log.is_refused(unit):
                self._log.refuse(
                    "call",
                    unit,
                    f"{unit.path} ({unit.class_name}) is called with {error}, which Keras 2 "
                    "configs cannot represent",
                )
            return []

    def _ends(self, network: Network, argument: Argument) -> Json:
        """
        Return a model's inputs or outputs as ``input_layers`` and ``output_layers``.

        A single tensor is in a list; Keras 3.11 and later write it without a list, which Keras 3.6
        and later read. Keras 3.3 and later count the calls of nested functional models from 1.
        """
        if not self._target.is_keras3:
            offsets = first_calls_keras2(network)
        else:
            offsets = first_outputs_keras3(network) if self._target.since("keras3.3") else {}
        written = _keras2_argument(argument, offsets)
        in_list = isinstance(argument, Reference) and not self._target.since("keras3.6")
        return [written] if in_list else written

    def _dtype(self, unit: Unit, value: Value) -> Json:
        """Return a policy in the target's format: the name, if the target reads names."""
        if not isinstance(value, Policy | PolicyMap):
            return self._value(unit, value)
        if (
            isinstance(value, Policy)
            and value.quantization is None
            and self._target.reads_bare_names
        ):
            return value.name
        try:
            return self._target.generation.render(value)
        except SpellingError as error:
            self._log.refuse("policy", unit, f"{unit.path}: {error}")
            return None

    def _value(self, unit: Unit, value: Value) -> Json:
        """Return a value of a config in the form of the target."""
        match value:
            case Unit():
                return self.unit(value, network=None)
            case SerializedObject():
                return self._thing(unit, value)
            case Policy() | PolicyMap():
                return self._dtype(unit, value)
            case list():
                return [self._value(unit, item) for item in value]
            case dict():
                return {key: self._value(unit, item) for key, item in value.items()}
        return value

    def _thing(self, unit: Unit, thing: SerializedObject) -> Json:
        """Return a serialized object, such as an initializer, in the form of the target."""
        config: Json = (
            thing.config
            if isinstance(thing.config, str | None)
            else {key: self._value(unit, item) for key, item in thing.config.items()}
        )
        if thing.registered_name is not None:
            return self._registered_object(thing.class_name, thing.registered_name, config)
        if not self._target.writes_modules:
            return keras_objects.short(thing.class_name, config)
        registered = keras_objects.FUNCTION if thing.kind is ObjectKind.FUNCTION else None
        module = thing.module or _MODULES.get(thing.kind, "keras")
        return keras_objects.full(module, thing.class_name, config, registered)

    def _registered_object(self, class_name: str, registered_name: str, config: Json) -> Json:
        """
        Return an object of a registered class, without a module if the target does not support it:
        with a module, TF 2.12, and TF 2.15 and tf_keras for HDF5, look up the unregistered name.
        """
        reads_names = self._target.is_keras3 or (
            self._target.container == "keras" and self._target.since("tf2.15")
        )
        if not reads_names:
            return keras_objects.short(registered_name, config)
        return keras_objects.full(None, class_name, config, registered_name)


_NEVER = frozenset({"name", "trainable", "dtype"})
_JUDGED = frozenset({ObjectKind.INITIALIZER, ObjectKind.REGULARIZER, ObjectKind.CONSTRAINT})


def keep_known(root: Unit, target: Target, log: Log) -> Unit:
    """
    Return the model with only the keys that the target accepts; values that the target cannot
    represent are logged as refusals.
    """

    def change(unit: Unit) -> Unit:
        """Remove the keys of one unit that the target does not accept."""
        config = {key: _value(unit, value, target, log) for key, value in unit.config.items()}
        kind, class_name = known_arguments.LAYERS, unit.class_name
        is_layer = unit.role is Role.LAYER and not unit.custom
        if is_layer and known_arguments.is_known(kind, class_name):
            config = _Judge(target, log).known_keys(unit, kind, class_name, config)
        return replace(unit, config=config)

    return map_units(root, change)


def _value(unit: Unit, value: Value, target: Target, log: Log) -> Value:
    """Return a value with only known keys in its objects; units were checked before."""
    if isinstance(value, SerializedObject):
        if value.registered_name is not None or isinstance(value.config, str | None):
            return value
        config = {key: _value(unit, item, target, log) for key, item in value.config.items()}
        if value.kind in _JUDGED and known_arguments.is_known(value.kind, value.class_name):
            config = _Judge(target, log).known_keys(unit, value.kind, value.class_name, config)
        return structs.replace(value, config=config)
    if isinstance(value, list):
        return [_value(unit, item, target, log) for item in value]
    if isinstance(value, dict):
        return {key: _value(unit, item, target, log) for key, item in value.items()}
    return value


_SEED: Final = "seed"
"""The argument of random numbers, which no layer or loaded initializer needs to predict."""


@dataclass(frozen=True)
class _Judge:
    """Checks configs against the arguments that a target accepts."""

    target: Target
    log: Log

    def known_keys(
        self, unit: Unit, kind: str, class_name: str, config: Mapping[str, Value]
    ) -> dict[str, Value]:
        """Return an object's config with only the keys that the target accepts."""
        target, log = self.target, self.log
        accepted_config = dict(config)
        objection = known_arguments.objection(
            target.loader,
            kind,
            class_name,
            {key: _json(value) for key, value in config.items()},
            module=target.writes_modules,
        )
        if objection is None:
            return accepted_config
        object_words = (
            f"{unit.path} ({unit.class_name})"
            if class_name == unit.class_name
            else f"{class_name} of {unit.path}"
        )
        if objection.missing:
            log.refuse("class", unit, f"{object_words}: {target.name} has no {class_name}")
            return accepted_config
        if objection.broken:
            log.refuse(
                "class",
                unit,
                f"{object_words}: {target.name} cannot load a {class_name}, even from files that "
                "it wrote itself",
            )
            return accepted_config
        for key in objection.refused:
            if key in _NEVER:
                continue
            value = accepted_config.pop(key)
            if is_neutral(kind, class_name, key, value):
                log.change(
                    "key-dropped",
                    unit,
                    f"{key} of {class_name} is omitted: {target.name} does not support it and "
                    f"always behaves as if it were {display_value(_json(value))}",
                    omitted=f"{key} of {class_name}",
                )
            elif key == _SEED:
                log.change(
                    "key-dropped",
                    unit,
                    f"{key} of {class_name} is omitted: {target.name} does not support it, and "
                    "only training depends on it",
                )
            else:
                log.refuse(
                    "argument",
                    unit,
                    f"{object_words} sets {key} to {display_value(_json(value))}, which "
                    f"{target.name} cannot represent",
                )
        for key, text in objection.values:
            log.refuse(
                "argument",
                unit,
                f"{object_words} sets {key} to {text}, which {target.name} does not support",
            )
        for key in objection.lacking:
            log.refuse(
                "argument", unit, f"{object_words} has no {key}, which {target.name} requires"
            )
        return accepted_config


def is_neutral(kind: str, class_name: str, key: str, value: Value) -> bool:
    """
    Return whether releases with the key write this value for a default instance. The value then
    equals the behaviour of releases without the key.
    """
    written = known_arguments.written_values(kind, class_name, key)
    return value is None or known_arguments.text(_json(value)) in written


def _json(value: Value) -> Json:
    """Return a value in the form of the argument data, which has objects by their class."""
    match value:
        case SerializedObject() | Unit():
            return keras_objects.short(value.class_name, {})
        case list():
            return [_json(item) for item in value]
        case dict():
            return {key: _json(item) for key, item in value.items()}
        case Policy() | PolicyMap():
            return value.name
    return value
