"""
Changes to a tree of JSON values, each by what a config is: keys, classes, names that lead
elsewhere, policies, numbers, nesting.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from tests.fuzz import words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random

Place = tuple[Any, Any]
"""An object or list, and a key or index in it."""


def mutated(rng: Random, tree: Any, most: int = 4) -> Any:
    """Return a tree with some changes; the tree itself is taken apart."""
    holder = [tree]
    for _ in range(rng.randint(1, most)):
        places = list(_places(holder))
        inner, key = rng.choice(places)
        rng.choice(_CHANGES)(rng, inner, key, places)
        if not holder:
            holder.append(words.odd(rng))
    return holder[0]


def text(rng: Random, tree: Any) -> bytes:
    """Return a tree as JSON, now and then with a key twice, or with what is no UTF-8."""
    try:
        result = json.dumps(tree, ensure_ascii=rng.random() < 0.7)
    except (RecursionError, ValueError):  # a change may have nested it deeper than json goes
        result = "[" * 1000 + "]" * 1000
    if rng.random() < 0.05 and '": ' in result:
        result = result.replace('{"', '{"name": "twice", "name": 1, "', 1)
    return result.encode("utf-8", "surrogatepass")


def bytes_of(rng: Random, data: bytes) -> bytes:
    """Return JSON text with some changes to its tree; text that is no JSON as it is."""
    try:
        tree = json.loads(data)
    except (ValueError, RecursionError):
        return data
    return text(rng, mutated(rng, tree))


def _places(value: Any) -> Iterator[Place]:
    """Yield every place in a tree, without recursion."""
    pending = [value]
    while pending:
        holder = pending.pop()
        items = list(holder.items()) if isinstance(holder, dict) else list(enumerate(holder))
        for key, inner in items:
            yield holder, key
            if isinstance(inner, dict | list) and inner:
                pending.append(inner)


def _copy(value: Any) -> Any:
    try:
        return json.loads(json.dumps(value))
    except (RecursionError, ValueError):
        return None


def _replace(rng: Random, holder: Any, key: Any, _places: list[Place]) -> None:
    holder[key] = words.odd(rng)


def _delete(_rng: Random, holder: Any, key: Any, _places: list[Place]) -> None:
    del holder[key]


def _copied(rng: Random, holder: Any, key: Any, places: list[Place]) -> None:
    """Put a copy of another part of the tree here."""
    other, at = rng.choice(places)
    holder[key] = _copy(other[at])


def _swap(rng: Random, holder: Any, key: Any, places: list[Place]) -> None:
    second, at = rng.choice(places)
    first, two = _copy(holder[key]), _copy(second[at])
    holder[key] = two
    if at in second if isinstance(second, dict) else at < len(second):
        second[at] = first


def _duplicate(rng: Random, holder: Any, key: Any, _places: list[Place]) -> None:
    value = holder[key]
    if isinstance(holder, list):
        for _ in range(rng.choice((1, 1, 1, 3, 40))):
            holder.insert(key, _copy(value))
    else:
        holder[rng.choice(words.KEYS)] = _copy(value)


def _rename(rng: Random, holder: Any, key: Any, _places: list[Place]) -> None:
    if isinstance(holder, dict):
        holder[rng.choice(rng.choice((words.KEYS, words.TEXTS)))] = holder.pop(key)


def _add(rng: Random, holder: Any, key: Any, _places: list[Place]) -> None:
    value = holder[key]
    if isinstance(value, dict):
        value[rng.choice(words.KEYS)] = words.odd(rng)
    elif isinstance(value, list):
        value.insert(rng.randint(0, len(value)), words.odd(rng))
    else:
        holder[key] = [value]


def _retarget(rng: Random, holder: Any, key: Any, places: list[Place]) -> None:
    """
    Make a text another text of the tree, or a number another number of it: calls lead elsewhere,
    also in circles.
    """
    kind = type(holder[key])
    same = [
        other[at]
        for other, at in places
        if _is_there(other, at)
        and type(other[at]) is kind
        and not isinstance(other[at], dict | list)
    ]
    holder[key] = rng.choice(same) if same else words.odd(rng)


def _is_there(holder: Any, key: Any) -> bool:
    return key in holder if isinstance(holder, dict) else isinstance(key, int) and key < len(holder)


def _renamed_everywhere(rng: Random, holder: Any, key: Any, places: list[Place]) -> None:
    """
    Give one text of the tree another value wherever it stands, as a layer that is called otherwise.
    """
    old = holder[key]
    if isinstance(old, str):
        new = rng.choice((rng.choice(words.TEXTS), f"{old}/{old}", old.upper()))
        for other, at in places:
            if _is_there(other, at) and isinstance(other[at], str) and other[at] == old:
                other[at] = new


def _nest(rng: Random, holder: Any, key: Any, _places: list[Place]) -> None:
    value = holder[key]
    for _ in range(rng.choice((1, 2, 20, 90, 198, 260))):
        value = (
            [value]
            if rng.random() < 0.5
            else {rng.choice(("config", "layer", "layers", "0")): value}
        )
    holder[key] = value


def _unwrap(rng: Random, holder: Any, key: Any, _places: list[Place]) -> None:
    value = holder[key]
    inner = (
        list(value.values())
        if isinstance(value, dict)
        else value
        if isinstance(value, list)
        else []
    )
    if inner:
        holder[key] = rng.choice(inner)


def _spell(rng: Random, holder: Any, key: Any, places: list[Place]) -> None:
    """Give a place that holds a dtype another policy."""
    actual = [
        place
        for place in places
        if place[1] in {"dtype", "dtype_policy", "default_policy"} and _is_there(*place)
    ]
    holder, key = rng.choice(actual) if actual else (holder, key)
    holder[key] = _copy(rng.choice(words.POLICIES))


def _other_class(rng: Random, holder: Any, key: Any, places: list[Place]) -> None:
    actual = [place for place in places if place[1] == "class_name" and _is_there(*place)]
    holder, key = rng.choice(actual) if actual else (holder, key)
    holder[key] = rng.choice(words.CLASSES)


def _number(rng: Random, holder: Any, key: Any, places: list[Place]) -> None:
    actual = [
        place
        for place in places
        if _is_there(*place) and isinstance(place[0][place[1]], int | float)
    ]
    holder, key = rng.choice(actual) if actual else (holder, key)
    holder[key] = rng.choice(words.NUMBERS)


def _itself(_rng: Random, holder: Any, key: Any, places: list[Place]) -> None:
    """Put a copy of the whole tree into one place of it: models in models."""
    outer, at = places[0]
    copy = _copy(outer[at])
    if _is_there(holder, key):
        holder[key] = copy


_CHANGES: Final[tuple[Callable[[Random, Any, Any, list[Place]], None], ...]] = (
    *(
        _replace,
        _delete,
        _copied,
        _swap,
        _duplicate,
        _rename,
        _add,
        _retarget,
        _retarget,
        _renamed_everywhere,
        _nest,
        _unwrap,
    ),
    *(_spell, _other_class, _number, _itself, _replace, _delete, _copied),
)
