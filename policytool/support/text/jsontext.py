"""
Parses untrusted JSON with limits on its size and depth, reports duplicate keys, and resolves JSON
Pointers (RFC 6901).
"""

from __future__ import annotations

import json
import sys
from array import array
from enum import Enum, auto
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from policytool.support import limits
from policytool.support.errors import CodedError
from policytool.support.steps import spend

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"
else:

    class Json:
        """Any JSON value, for annotations that policytool.support.text.codec evaluates."""


class Absent(Enum):
    """The absence of a value: before an addition, or after a removal."""

    ABSENT = auto()


ABSENT = Absent.ABSENT


_STEPS: Final = bytes.maketrans(b"{[}]", b"\x01\x01\xff\xff")
"""Maps opening brackets to 1, and closing brackets to -1 as a signed byte."""

_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"{[}]"))


class JsonError(CodedError, ValueError):
    """Text that is not JSON, or JSON beyond the limits; ``code`` distinguishes them."""


def parse(text: str | bytes) -> tuple[Json, tuple[str, ...]]:
    """
    Return the value, and the keys that occur twice in one object (the last one counts, as in Python
    and so in Keras).

    :raises JsonError: with code ``json-limit`` or ``invalid-json``.
    :raises ModelFileError: if the steps of the current file exceed their limit.
    """
    if excess := limits.JSON_BYTES.exceeded_message(len(text)):
        raise JsonError("json-limit", f"is JSON of {excess}")
    values = _most_values(text)
    if excess := limits.JSON_VALUES.exceeded_message(values):
        raise JsonError("json-limit", f"is JSON with {excess}")
    spend(values, walk="JSON values")
    repeated: list[str] = []

    def unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
        value = dict(pairs)
        if len(value) != len(pairs):
            keys: set[str] = set()
            repeated.extend(key for key, _ in pairs if key in keys or keys.add(key))  # type: ignore[func-returns-value]
        return value

    try:
        value: Json = json.loads(text, object_pairs_hook=unique)
    except RecursionError:
        raise _too_deep() from None
    except UnicodeDecodeError as error:
        raise JsonError("invalid-json", f"is not UTF-8 text (byte {error.start})") from error
    except json.JSONDecodeError as error:
        problem = error.msg.removesuffix(" at")
        raise JsonError(
            "invalid-json",
            f"is not valid JSON: {problem} at line {error.lineno}, column {error.colno}",
        ) from error
    except ValueError as error:
        # an integer with more digits than Python converts, because the time is quadratic
        raise JsonError(
            "invalid-json",
            f"contains an integer with more than {sys.get_int_max_str_digits()} digits, "
            "which configs never need",
        ) from error
    most = limits.JSON_DEPTH.value
    if _bracket_depth(text) > most and _deeper_than(value, most):
        raise _too_deep()
    return value, tuple(dict.fromkeys(repeated))


def _too_deep() -> JsonError:
    return JsonError(
        "json-limit",
        "nests JSON to a depth of "
        f"{limits.JSON_DEPTH.exceeded_message(limits.JSON_DEPTH.value + 1, counting=True)}",
    )


def text_at(holder: Mapping[str, Any], key: str) -> str | None:
    """
    Return the string under a key; None if the key is missing or has another value, which may not
    even be hashable.
    """
    text = holder.get(key)
    return text if isinstance(text, str) else None


def number(value: object) -> float | None:
    """
    Return a number as a float; None if the value is not a number, is a bool, or is an integer that
    is too large for a float.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def pointer(*steps: str | int) -> str:
    """
    Return the JSON Pointer that leads through ``steps``: ``pointer("config", "layers", 0)`` is
    ``/config/layers/0``.
    """
    return "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in steps)


def steps(path: str) -> list[str]:
    """
    Return the steps of a JSON Pointer: the inverse of :func:`pointer`.
    """
    return [step.replace("~1", "/").replace("~0", "~") for step in path.split("/")[1:]]


def place(value: Json, path: str) -> tuple[Any, Any]:
    """
    Return the object or list that contains the target of a JSON Pointer, and the key or index of
    the target in it. The key may be missing.

    :raises LookupError: if there is no such object or list.
    """
    *parents, last = steps(path)
    holder: Any = value
    for step in parents:
        holder = holder[int(step)] if isinstance(holder, list) else holder[step]
    return holder, int(last) if isinstance(holder, list) else last


def value(document: Json, path: str) -> Json:
    """
    Return the value at a JSON Pointer.

    :raises LookupError: if there is no such value; TypeError and ValueError if the pointer leads
        through a value that is not an object or list.
    """
    node: Any = document
    for step in steps(path):
        node = node[int(step)] if isinstance(node, list) else node[step]
    result: Json = node
    return result


def without(document: Json, key: str) -> Json:
    """Return a value without a key, at any depth."""
    if isinstance(document, dict):
        return {name: without(child, key) for name, child in document.items() if name != key}
    return [without(child, key) for child in document] if isinstance(document, list) else document


def leaves(document: Json) -> Iterator[Json]:
    """Yield the values at any depth that contain no others, in no order."""
    pending = [document]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            pending += node.values()
        elif isinstance(node, list):
            pending += node
        else:
            yield node


def containers(
    document: Json,
) -> Iterator[tuple[tuple[str | int, ...], dict[str, Json] | list[Json]]]:
    """Yield the objects and lists at any depth with the steps to them, outer ones first."""
    pending: list[tuple[tuple[str | int, ...], Json]] = [((), document)]
    while pending:
        path, node = pending.pop()
        if not isinstance(node, dict | list):
            continue
        yield path, node
        items = node.items() if isinstance(node, dict) else enumerate(node)
        below = [((*path, key), child) for key, child in items if isinstance(child, dict | list)]
        pending += reversed(below)


def _most_values(text: str | bytes) -> int:
    """
    Return the maximum number of values in a text: the number of its opening brackets and commas,
    including those in strings, plus one.
    """
    if isinstance(text, bytes):
        return 1 + sum(map(text.count, (b"[", b"{", b",")))
    return 1 + sum(map(text.count, ("[", "{", ",")))


def _bracket_depth(text: str | bytes) -> int:
    """
    Return an upper bound of the nesting depth: the depth of the brackets of a text, including those
    in strings. Walking through the value takes ten times as long.
    """
    raw = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    return max(accumulate(array("b", raw.translate(_STEPS, _NO_BRACKETS)), initial=0))


def _deeper_than(value: Json, depth: int) -> bool:
    """
    Return whether objects and lists are nested more than ``depth`` levels. The value is walked
    level by level, because recursion could exceed Python's limit.
    """
    level: list[Json] = [value]
    for _ in range(depth):
        level = [child for parent in level for child in _containers(parent)]
        if not level:
            return False
    return True


def _containers(value: Json) -> Iterable[Json]:
    children = (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    )
    return (child for child in children if isinstance(child, dict | list))
