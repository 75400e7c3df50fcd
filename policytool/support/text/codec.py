"""
Encodes values as JSON and decodes them, for messages between processes, reports and saved plans.

A struct or dataclass becomes an object with its fields, except for fields that are ``ABSENT``. A
tuple or a set becomes a list, an enum its value, and a path or a date a string. A mapping becomes
an object, or a list of pairs if its keys are not strings. Reading follows the type hints and checks
every value, so that, unlike with pickle, the input cannot run code. A hint is evaluated in the
module of its class, so this module must import the names in the hint at run time.
"""

from __future__ import annotations

import json
import os
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from datetime import date
from enum import Enum
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from policytool.support.text.jsontext import ABSENT, Absent, Json

Value = TypeVar("Value")
Read = Callable[[Any], Any]
"""
Converts a JSON value to a value of a type; raises KeyError, TypeError or ValueError if it cannot.
"""

Form = Callable[[Any], Any]
"""Converts a value to its JSON form, in which nested values are not converted yet."""

_WORDS: Final[Mapping[type, str]] = types.MappingProxyType(
    {str: "text", int: "a whole number", float: "a number", bool: "true or false"}
)


def encode(value: object, *, ascii_only: bool = True, nan: bool = True) -> str:
    """
    Return a value as one line of JSON.

    :param nan: whether NaN and infinities are written as Python writes them, which JSON does not
        allow; otherwise they are strings
    :raises TypeError: for a class that cannot be written as JSON.
    """

    def form(instance: Any) -> Any:  # noqa: ANN401
        cls: Any = type(instance)
        return _form(cls)(instance)

    try:
        return json.dumps(value, default=form, ensure_ascii=ascii_only, allow_nan=nan)
    except ValueError:  # the value contains NaN or an infinity, which is rare
        if nan:
            raise
    strict_value = _with_names(json.loads(json.dumps(value, default=form)))
    return json.dumps(strict_value, ensure_ascii=ascii_only, allow_nan=False)


@cache
def _form(cls: type) -> Form:
    """Return the function that converts instances of a class to JSON values."""
    if (names := _field_names(cls)) is not None:
        return _object_form(names)
    if issubclass(cls, Enum):
        return attrgetter("value")
    if issubclass(cls, Path):
        return os.fspath
    if cls is date:
        return date.isoformat
    if issubclass(cls, frozenset):
        return sorted
    if issubclass(cls, Mapping):
        return _entries
    raise TypeError(f"{cls} has no form in JSON")


def _field_names(cls: Any) -> tuple[str, ...] | None:  # noqa: ANN401
    """Return the names of the fields of a struct or dataclass; None for other classes."""
    if issubclass(cls, msgspec.Struct):
        names: tuple[str, ...] = cls.__struct_fields__
        return names
    return tuple(field.name for field in fields(cls)) if is_dataclass(cls) else None


def _object_form(names: tuple[str, ...]) -> Form:
    """
    Return the function that converts attributes to an object, without those that are ``ABSENT``.
    """

    def form(value: object) -> dict[str, Any]:
        return {
            name: _entries(attribute) if type(attribute) is dict else attribute
            for name in names
            if (attribute := getattr(value, name)) is not ABSENT
        }

    return form


def _entries(mapping: Mapping[Any, Any]) -> Any:  # noqa: ANN401
    return dict(mapping) if all(isinstance(key, str) for key in mapping) else list(mapping.items())


def _with_names(value: Any) -> Any:  # noqa: ANN401
    """Return a value with NaN and infinities replaced by their names, which are strings."""
    match value:
        case float() if value - value != 0:  # NaN or an infinity
            return json.dumps(value)
        case list():
            return [_with_names(item) for item in value]
        case dict():
            return {key: _with_names(item) for key, item in value.items()}
    return value


def read(cls: type[Value], json_value: object) -> Value:
    """
    Return a JSON value as an instance of a class.

    :raises KeyError: if a field without a default is missing.
    :raises TypeError: if a value has another type, or a field's type cannot be read from JSON.
    :raises ValueError: if an enum has no such value.
    """
    hint: Any = cls
    value: Value = reader(hint)(json_value)
    return value


@cache
def reader(hint: object) -> Read:
    """
    Return the function that reads the JSON values of a type.

    :raises TypeError: for a type that cannot be read from JSON.
    """
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in {typing.Union, types.UnionType}:
        return _union(arguments)
    if origin is tuple:
        return _tuple(arguments)
    if origin is Sequence:
        return _tuple((*arguments, Ellipsis))
    if origin is frozenset:
        items = _tuple((*arguments, Ellipsis))
        return lambda json_value: frozenset(items(json_value))
    if origin is Mapping:
        return _mapping(*arguments)
    if hint is Json:
        return lambda json_value: json_value
    if hint is None or hint is type(None):
        return lambda json_value: _check(json_value, type(None), "null")
    if isinstance(hint, type):
        return _class(hint)
    raise TypeError(f"{hint} has no form in JSON")


def _class(cls: type) -> Read:
    """Return the function that reads instances of a class from JSON values."""
    if cls in _WORDS:
        kinds = (int, float) if cls is float else cls  # an integer stays an integer
        return lambda json_value: (
            json_value if type(json_value) is cls else _check(json_value, kinds, _WORDS[cls], cls)
        )
    if issubclass(cls, Path):
        return lambda json_value: Path(_check(json_value, str, _WORDS[str]))
    if cls is date:
        return lambda json_value: date.fromisoformat(_check(json_value, str, _WORDS[str]))
    if issubclass(cls, Enum):
        return cls
    if _field_names(cls) is not None:
        return _fields(cls)
    raise TypeError(f"{cls} has no form in JSON")


def _check(
    json_value: Value, kinds: type | tuple[type, ...], words: str, cls: type | None = None
) -> Value:
    """
    Return a value that has one of the types; a bool is not a number.

    :raises TypeError: for any other value.
    """
    if not isinstance(json_value, kinds) or (isinstance(json_value, bool) and cls is not bool):
        raise TypeError(f"expected {words}")
    return json_value


def _fields(cls: Any) -> Read:  # noqa: ANN401
    """Return the function that reads a struct or dataclass from a JSON object."""
    hints = typing.get_type_hints(cls)
    names = _field_names(cls) or ()
    readers = {name: reader(hints[name]) for name in names}
    absent = {name: ABSENT for name in names if Absent in typing.get_args(hints[name])}
    needed = _without_default(cls) - absent.keys()

    def read_fields(json_object: Any) -> Any:  # noqa: ANN401
        _check(json_object, dict, "an object")
        if not json_object.keys() >= needed:
            raise KeyError(min(needed - json_object.keys()))
        field_values = {
            name: read(json_object[name]) for name, read in readers.items() if name in json_object
        }
        return cls(**{**absent, **field_values})

    return read_fields


def _without_default(cls: Any) -> set[str]:  # noqa: ANN401
    """Return the names of the fields that must be given."""
    if issubclass(cls, msgspec.Struct):
        return {field.name for field in msgspec.structs.fields(cls) if field.required}
    return {
        field.name
        for field in fields(cls)
        if field.default is MISSING and field.default_factory is MISSING
    }


def _tuple(arguments: tuple[Any, ...]) -> Read:
    """Return the function that reads a tuple from a JSON list."""
    if len(arguments) == 2 and arguments[1] is Ellipsis:  # noqa: PLR2004  # tuple[X, ...]
        item = reader(arguments[0])
        return lambda json_value: tuple(
            [item(entry) for entry in _check(json_value, (list, tuple), "a list")]
        )
    items = [reader(argument) for argument in arguments]
    return lambda json_value: tuple(
        [
            item(entry)
            for item, entry in zip(items, _check(json_value, (list, tuple), "a list"), strict=True)
        ]
    )


def _mapping(key: object, value: object) -> Read:
    """Return the function that reads a mapping from a JSON object, or from a list of pairs."""
    read_key, read_value = reader(key), reader(value)
    if key is str:
        return lambda json_value: {
            name: read_value(entry) for name, entry in _check(json_value, dict, "an object").items()
        }
    # an empty mapping is written as an object, whatever its keys
    return lambda json_value: {
        read_key(name): read_value(entry) for name, entry in json_value or ()
    }


def _union(members: tuple[Any, ...]) -> Read:
    """
    Return the function that reads a union of types, which must differ in their JSON form.
    """
    others = [member for member in members if member not in {type(None), Absent}]
    if Json in others:
        return reader(Json)
    if all(member in _WORDS for member in others):
        kinds = frozenset({*members, int} if float in others else members)
        words = " or ".join(_WORDS[member] for member in others)
        return lambda json_value: (
            json_value if type(json_value) in kinds else _check(json_value, (), words)
        )
    if len(others) == 1:
        read_member = reader(others[0])
        return lambda json_value: None if json_value is None else read_member(json_value)
    if Path in others:  # a path is a string, the others are not
        read_path, read_other = (
            reader(Path),
            _union(tuple(member for member in others if member != Path)),
        )
        return lambda json_value: (read_path if isinstance(json_value, str) else read_other)(
            json_value
        )
    by_keys: dict[frozenset[str], Read] = {}
    if all(isinstance(member, type) for member in others):
        by_keys = {
            frozenset(names): reader(member)
            for member in others
            if (names := _field_names(member)) is not None
        }
    if len(by_keys) < len(others):
        raise TypeError("union members without a distinguishing field have no form in JSON")
    return lambda json_value: (
        None
        if json_value is None
        else by_keys[frozenset(_check(json_value, dict, "an object"))](json_value)
    )
