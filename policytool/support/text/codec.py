"""
Dataclasses as JSON and back: what processes of policytool send each other, what its reports print,
and what saved plans hold.

A dataclass is an object of its fields, without those that are ``ABSENT``. A tuple or a set is a
list, an enum its value, a path or a date its text, and a mapping an object, or a list of pairs if
its keys are not text. Reading follows the type hints and checks every value, so that, unlike
pickle's, these bytes can do nothing but become the values that the type says. A hint is evaluated
in the module of its class, which therefore has to import what the hint mentions at run time.
"""

from __future__ import annotations

import json
import os
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import date
from enum import Enum
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, TypeVar

from policytool.support.text.jsontext import ABSENT, Absent, Json

Value = TypeVar("Value")
Read = Callable[[Any], Any]
"""
Returns the value of a type that JSON stands for, and raises KeyError, TypeError or ValueError if it
stands for none.
"""

Form = Callable[[Any], Any]
"""Returns what stands for a value in JSON; values in it have forms of their own."""

_WORDS: Final[Mapping[type, str]] = types.MappingProxyType(
    {str: "text", int: "a whole number", float: "a number", bool: "true or false"}
)


def encode(value: object, *, ascii_only: bool = True, nan: bool = True) -> str:
    """
    Return a value as one line of JSON.

    :param nan: whether NaN and infinities are written as Python writes them, which JSON does not
        allow; otherwise they are strings
    :raises TypeError: for a class that has no form.
    """

    def form(found: Any) -> Any:  # noqa: ANN401
        cls: Any = type(found)
        return _form(cls)(found)

    try:
        return json.dumps(value, default=form, ensure_ascii=ascii_only, allow_nan=nan)
    except ValueError:  # rare, and known only here
        if nan:
            raise
    named = _with_names(json.loads(json.dumps(value, default=form)))
    return json.dumps(named, ensure_ascii=ascii_only, allow_nan=False)


@cache
def _form(cls: type) -> Form:
    if is_dataclass(cls):
        return _object_form(tuple(field.name for field in fields(cls)))
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


def _object_form(names: tuple[str, ...]) -> Form:
    """Return the form that is an object of attributes, without those that are ``ABSENT``."""

    def form(value: object) -> dict[str, Any]:
        return {
            name: _entries(found) if type(found) is dict else found
            for name in names
            if (found := getattr(value, name)) is not ABSENT
        }

    return form


def _entries(found: Mapping[Any, Any]) -> Any:  # noqa: ANN401
    return dict(found) if all(isinstance(key, str) for key in found) else list(found.items())


def _with_names(value: Any) -> Any:  # noqa: ANN401
    """Return JSON values in which numbers that JSON lacks are their names."""
    match value:
        case float() if value - value != 0:  # NaN or an infinity
            return json.dumps(value)
        case list():
            return [_with_names(item) for item in value]
        case dict():
            return {key: _with_names(item) for key, item in value.items()}
    return value


def read(cls: type[Value], found: object) -> Value:
    """
    Return the value of a class that JSON values stand for.

    :raises KeyError: if a field is missing that has no default.
    :raises TypeError: if a value has another type, or the class has a field without a form.
    :raises ValueError: if an enum has no such value.
    """
    hint: Any = cls
    value: Value = reader(hint)(found)
    return value


@cache
def reader(hint: object) -> Read:
    """
    Return what reads the values of a type.

    :raises TypeError: for a type that has no form.
    """
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in {typing.Union, types.UnionType}:
        return _union(arguments)
    if origin is tuple:
        return _tuple(arguments)
    if origin is frozenset:
        items = _tuple((*arguments, Ellipsis))
        return lambda found: frozenset(items(found))
    if origin is Mapping:
        return _mapping(*arguments)
    if hint is Json:
        return lambda found: found
    if hint is None or hint is type(None):
        return lambda found: _check(found, type(None), "null")
    if isinstance(hint, type):
        return _class(hint)
    raise TypeError(f"{hint} has no form in JSON")


def _class(cls: type) -> Read:
    if cls in _WORDS:
        kinds = (int, float) if cls is float else cls  # a number that is whole comes as it was
        return lambda found: found if type(found) is cls else _check(found, kinds, _WORDS[cls], cls)
    if issubclass(cls, Path):
        return lambda found: Path(_check(found, str, _WORDS[str]))
    if cls is date:
        return lambda found: date.fromisoformat(_check(found, str, _WORDS[str]))
    if issubclass(cls, Enum):
        return cls
    if is_dataclass(cls):
        return _dataclass(cls)
    raise TypeError(f"{cls} has no form in JSON")


def _check(
    found: Value, kinds: type | tuple[type, ...], words: str, cls: type | None = None
) -> Value:
    """
    Return a value that is of a kind; a truth value is no number.

    :raises TypeError: for any other.
    """
    if not isinstance(found, kinds) or (isinstance(found, bool) and cls is not bool):
        raise TypeError(f"expected {words}")
    return found


def _dataclass(cls: type) -> Read:
    hints = typing.get_type_hints(cls)
    readers = {field.name: reader(hints[field.name]) for field in fields(cls)}
    absent = dict.fromkeys(
        (name for name in readers if Absent in typing.get_args(hints[name])), ABSENT
    )
    needed = {
        field.name
        for field in fields(cls)
        if field.default is MISSING and field.default_factory is MISSING
    } - absent.keys()

    def read_fields(found: Any) -> Any:  # noqa: ANN401
        _check(found, dict, "an object")
        if not found.keys() >= needed:
            raise KeyError(min(needed - found.keys()))
        given = {name: read(found[name]) for name, read in readers.items() if name in found}
        return cls(**{**absent, **given})

    return read_fields


def _tuple(arguments: tuple[Any, ...]) -> Read:
    if len(arguments) == 2 and arguments[1] is Ellipsis:  # noqa: PLR2004  # tuple[X, ...]
        item = reader(arguments[0])
        return lambda found: tuple([item(one) for one in _check(found, (list, tuple), "a list")])
    items = [reader(argument) for argument in arguments]
    return lambda found: tuple(
        [item(one) for item, one in zip(items, _check(found, (list, tuple), "a list"), strict=True)]
    )


def _mapping(key: object, value: object) -> Read:
    read_key, read_value = reader(key), reader(value)
    if key is str:
        return lambda found: {
            name: read_value(one) for name, one in _check(found, dict, "an object").items()
        }
    # an empty one looks like any other
    return lambda found: {read_key(name): read_value(one) for name, one in found or ()}


def _union(members: tuple[Any, ...]) -> Read:
    """Return what reads one type among several, which its JSON has to tell apart."""
    others = [one for one in members if one not in {type(None), Absent}]
    if Json in others:
        return reader(Json)
    if all(one in _WORDS for one in others):
        kinds = frozenset({*members, int} if float in others else members)
        words = " or ".join(_WORDS[one] for one in others)
        return lambda found: found if type(found) in kinds else _check(found, (), words)
    if len(others) == 1:
        only = reader(others[0])
        return lambda found: None if found is None else only(found)
    if Path in others:  # a text, and so none of the other forms
        read_path, read_other = reader(Path), _union(tuple(one for one in others if one != Path))
        return lambda found: (read_path if isinstance(found, str) else read_other)(found)
    by_keys: dict[frozenset[str], Read] = {}
    if all(map(is_dataclass, others)):
        by_keys = {frozenset(field.name for field in fields(one)): reader(one) for one in others}
    if len(by_keys) < len(others):
        raise TypeError("union members without a distinguishing field have no form in JSON")
    return lambda found: (
        None if found is None else by_keys[frozenset(_check(found, dict, "an object"))](found)
    )
