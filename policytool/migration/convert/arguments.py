"""
The keys of each object judged against what the target's release accepts, which
``data/layer_arguments.json`` has from the releases themselves.

A key that the target does not take is left out where it says what the target does anyway: the value
that releases write for a default instance. Any other value is refused, with the layer and the key.
A key that the source leaves unsaid, and whose meaning there is another than in the target, is
written out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from policytool.migration.convert.architecture import (
    ObjectKind,
    Role,
    SerializedObject,
    Unit,
    map_units,
)
from policytool.migration.convert.target import display_value
from policytool.releases import keras_objects, known_arguments
from policytool.releases.policy import Policy, PolicyMap

if TYPE_CHECKING:
    from collections.abc import Mapping

    from policytool.migration.convert.architecture import Value
    from policytool.migration.convert.target import Log, Target
    from policytool.support.text.jsontext import Json

_LAYERS = "layers"
_NEVER = frozenset({"name", "trainable", "dtype"})
_JUDGED = frozenset({ObjectKind.INITIALIZER, ObjectKind.REGULARIZER, ObjectKind.CONSTRAINT})


def keep_known(root: Unit, target: Target, log: Log) -> Unit:
    """
    Return the model with the keys alone that the target takes; what it cannot be told goes to the
    log as a refusal.
    """

    def change(unit: Unit) -> Unit:
        config = {key: _value(unit, value, target, log) for key, value in unit.config.items()}
        if (
            unit.role is not Role.LAYER
            or unit.custom
            or not known_arguments.is_known(_LAYERS, unit.class_name)
        ):
            return replace(unit, config=config)
        return replace(
            unit, config=_Judge(target, log).known_keys(unit, _LAYERS, unit.class_name, config)
        )

    return map_units(root, change)


def _value(unit: Unit, value: Value, target: Target, log: Log) -> Value:
    """Return a value with the objects in it judged; units were judged before."""
    if isinstance(value, SerializedObject):
        if value.registered_name is not None or isinstance(value.config, str | None):
            return value
        config = {key: _value(unit, item, target, log) for key, item in value.config.items()}
        if value.kind in _JUDGED and known_arguments.is_known(value.kind, value.class_name):
            config = _Judge(target, log).known_keys(unit, value.kind, value.class_name, config)
        return replace(value, config=config)
    if isinstance(value, list):
        return [_value(unit, item, target, log) for item in value]
    if isinstance(value, dict):
        return {key: _value(unit, item, target, log) for key, item in value.items()}
    return value


@dataclass(frozen=True)
class _Judge:
    """Holds configs against what one target takes."""

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
            module=target.says_modules,
        )
        if objection is None:
            return accepted_config
        what = (
            f"{unit.path} ({unit.class_name})"
            if class_name == unit.class_name
            else f"{class_name} of {unit.path}"
        )
        if objection.missing:
            log.refuse("class", unit, f"{what}: {target.name} has no {class_name}")
            return accepted_config
        if objection.broken:
            log.refuse(
                "class",
                unit,
                f"{what}: {target.name} cannot load a {class_name}, even from files that it wrote "
                "itself",
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
                )
            else:
                log.refuse(
                    "argument",
                    unit,
                    f"{what} sets {key} to {display_value(_json(value))}, which {target.name} "
                    "cannot represent",
                )
        for key, text in objection.values:
            log.refuse(
                "argument",
                unit,
                f"{what} sets {key} to {text}, which {target.name} does not support",
            )
        for key in objection.lacking:
            log.refuse("argument", unit, f"{what} has no {key}, which {target.name} requires")
        return accepted_config


def is_neutral(kind: str, class_name: str, key: str, value: Value) -> bool:
    """
    Return whether a value is what releases that have the key write for a default instance: what
    those without it do.
    """
    written = known_arguments.written_values(kind, class_name, key)
    return value is None or known_arguments.text(_json(value)) in written


def _json(value: Value) -> Json:
    """Return a value as far as the data knows values: objects by their class."""
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
