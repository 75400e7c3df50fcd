"""
Frozen dataclasses as JSON and back, by their type hints.

What one process of policytool hands to another goes this way: unlike pickle's, these bytes can do
nothing but become the values that the type says. A dataclass is the list of its fields, a tuple or
a set a list, an enum its value, a mapping an object or a list of pairs; where a type is one of
several, the value stands behind its place among them. What is None stays null. A path is its text,
and JSON is itself.
"""

from __future__ import annotations

import json
import os
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, TypeVar

Value = TypeVar("Value")
_Way = Callable[[Any], Any] | None
"""What makes one form of the other; None where both are the same."""

_PRIMITIVES: Final[frozenset[type]] = frozenset({str, int, float, bool, type(None)})


class AnyJson:
    """Stands in annotations for whatever JSON has, which goes the way as it is."""


class Codec(NamedTuple, Generic[Value]):
    """Text of one line for each value of a type, and the other way round."""

    encoded: Callable[[Value], str]
    decoded: Callable[[str | bytes], Value]


class _Ways(NamedTuple):
    encode: _Way
    decode: _Way
    kinds: frozenset[type]
    """The classes of the type's values, which tell the members of a union apart."""


def codec(hint: object, names: Mapping[str, object]) -> Codec[Any]:
    """
    Return the codec of a type.

    ``names`` are what annotations mention that their own modules import for type checkers alone.

    :raises TypeError: for a type that has no form here.
    """
    ways = _Compiler(names).ways(hint)
    encode, decode = ways.encode or _same, ways.decode or _same
    return Codec(
        encoded=lambda value: json.dumps(encode(value), separators=(",", ":")),
        decoded=lambda text: decode(json.loads(text)),
    )


def _same(value: Any) -> Any:  # whatever JSON has  # noqa: ANN401  # whatever JSON has
    return value


_PLAIN: Final[Mapping[object, _Ways]] = {
    AnyJson: _Ways(None, None, frozenset({dict, list, *_PRIMITIVES})),
    Path: _Ways(os.fspath, Path, frozenset({type(Path())})),
}


class _Compiler:
    """The ways of each type, made once."""

    def __init__(self, names: Mapping[str, object]) -> None:
        self._names = dict(names)
        self._made: dict[type, _Ways] = {}

    def ways(self, hint: object) -> _Ways:
        """Return the ways of a type."""
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
        if origin in {typing.Union, types.UnionType}:
            return self._union([self.ways(argument) for argument in arguments])
        if origin is tuple:
            return self._tuple(arguments)
        if origin is frozenset:
            encode, decode, _ = self._tuple((*arguments, Ellipsis))
            return _Ways(
                lambda value: (encode or _same)(sorted(value)),
                lambda found: frozenset((decode or _same)(found)),
                frozenset({frozenset}),
            )
        if origin is Mapping:
            return self._mapping(*map(self.ways, arguments))
        if hint in _PLAIN:
            return _PLAIN[hint]
        if hint is None or (isinstance(hint, type) and hint in _PRIMITIVES):
            # what says float may hold an int; both come back as they were
            return _Ways(
                None,
                None,
                frozenset({int, float})
                if hint is float
                else frozenset({type(None) if hint is None else hint}),
            )
        if isinstance(hint, type) and issubclass(hint, Enum):
            return _Ways(attrgetter("value"), hint, frozenset({hint}))
        if isinstance(hint, type) and is_dataclass(hint):
            if hint not in self._made:
                self._made[hint] = self._dataclass(hint)
            return self._made[hint]
        raise TypeError(f"{hint} has no form in JSON here")

    def _dataclass(self, cls: type) -> _Ways:
        hints = typing.get_type_hints(cls, localns=self._names)
        names = tuple(field.name for field in fields(cls))
        ways = [self.ways(hints[name]) for name in names]
        encoders = [(index, one.encode) for index, one in enumerate(ways) if one.encode is not None]
        decoders = [(index, one.decode) for index, one in enumerate(ways) if one.decode is not None]
        taken: Callable[[Any], Any] = attrgetter(*names) if names else lambda _: ()

        def encode(value: Any) -> list[Any]:  # noqa: ANN401
            found = list(taken(value)) if len(names) != 1 else [taken(value)]
            for index, way in encoders:
                found[index] = way(found[index])
            return found

        def decode(found: list[Any]) -> Any:  # noqa: ANN401
            for index, way in decoders:
                found[index] = way(found[index])
            return cls(**dict(zip(names, found, strict=True)))

        return _Ways(encode, decode, frozenset({cls}))

    def _tuple(self, arguments: tuple[Any, ...]) -> _Ways:
        kinds = frozenset({tuple})
        if len(arguments) == 2 and arguments[1] is Ellipsis:  # noqa: PLR2004  # tuple[X, ...]
            encode, decode, _ = self.ways(arguments[0])
            return _Ways(
                None if encode is None else lambda value: [encode(item) for item in value],
                tuple if decode is None else lambda found: tuple([decode(item) for item in found]),
                kinds,
            )
        ways = [self.ways(argument) for argument in arguments]
        encoders, decoders = (
            [one.encode or _same for one in ways],
            [one.decode or _same for one in ways],
        )
        return _Ways(
            lambda value: [way(item) for way, item in zip(encoders, value, strict=True)],
            lambda found: tuple([way(item) for way, item in zip(decoders, found, strict=True)]),
            kinds,
        )

    def _mapping(self, key: _Ways, item: _Ways) -> _Ways:
        encode, decode = item.encode or _same, item.decode or _same
        kinds = frozenset({dict, types.MappingProxyType})
        if key.kinds == {str} and key.encode is None:
            return _Ways(
                lambda value: {name: encode(one) for name, one in value.items()},
                lambda found: {name: decode(one) for name, one in found.items()},
                kinds,
            )
        encode_key, decode_key = key.encode or _same, key.decode or _same
        return _Ways(
            lambda value: [(encode_key(name), encode(one)) for name, one in value.items()],
            lambda found: {decode_key(name): decode(one) for name, one in found},
            kinds,
        )

    @staticmethod
    def _union(members: list[_Ways]) -> _Ways:
        """
        Return the ways of one type among several; what is None, or the same in JSON, needs no
        number before it.
        """
        kinds = frozenset().union(*(one.kinds for one in members))
        others = [one for one in members if one.kinds != {type(None)}]
        if all(one.encode is None and one.decode is None for one in others):
            return _Ways(None, None, kinds)
        if len(others) == 1:
            encode, decode = others[0].encode or _same, others[0].decode or _same
            return _Ways(
                lambda value: None if value is None else encode(value),
                lambda found: None if found is None else decode(found),
                kinds,
            )
        if len(kinds) < sum(len(one.kinds) for one in members):
            raise TypeError(
                "members of a union that no class tells apart have no form in JSON here"
            )
        places = {
            kind: (place, one.encode or _same)
            for place, one in enumerate(others)
            for kind in one.kinds
        }
        decoders = [one.decode or _same for one in others]

        def encode_one(value: Any) -> Any:  # noqa: ANN401
            if value is None:
                return None
            place, way = places[type(value)]
            return [place, way(value)]

        def decode_one(found: Any) -> Any:  # noqa: ANN401
            return None if found is None else decoders[found[0]](found[1])

        return _Ways(encode_one, decode_one, kinds)
