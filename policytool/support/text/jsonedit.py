"""
Replaces values in JSON text, and leaves the rest of the text unchanged.

Parsing a config and writing it again would change the format of numbers, the white space and the
escapes, so that a diff would hide the real change. Therefore, the text is walked only along the
JSON Pointers of the edits. Python's JSON scanner skips other values, and the new values are
inserted as text.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from policytool.support import limits
from policytool.support.text.jsontext import Absent

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from policytool.support.text.jsontext import Json

Change = tuple[str, "Json | Absent", "Json | Absent"]
"""A JSON Pointer, the current value, and the new value."""

_BLANK: Final = re.compile(r"[ \t\n\r]*")
_ESCAPE: Final = re.compile(r"~[01]")
_BAD_ESCAPE: Final = re.compile(r"~(?![01])")
_UNESCAPED: Final = {"~0": "~", "~1": "/"}
_DECODER: Final = json.JSONDecoder()


class EditError(ValueError):
    """
    An edit that does not fit the text: its pointer has no target, the value is not the expected
    one, or two edits overlap.
    """


@dataclass(slots=True)
class _Node:
    """A node of the tree of all pointers: one step of one or more pointers."""

    pointer: str
    change: Change | None = None
    below: dict[str, _Node] = field(default_factory=dict)


@dataclass(slots=True)
class _Member:
    """
    The span of an object's member in the text: from the quote of its key to the end of its value.
    """

    key: str
    start: int
    key_end: int
    value: int
    end: int


@dataclass(slots=True)
class _Place:
    """The span of a value that a step leads to. If a key occurs twice, the last one counts."""

    start: int
    end: int
    members: list[_Member] | None = None
    """The members of an object that a pointer leads into; None for other values."""

    below: dict[str, _Place] = field(default_factory=dict)


def apply(text: str, edits: Sequence[Change]) -> str:
    """
    Return the text with the edits applied. An edit whose current value is ABSENT adds a key to an
    object, and one whose new value is ABSENT removes a key.

    :raises EditError: if a pointer has no target, if the current value is not the expected one, or
        if edits overlap.
    """
    if not edits:
        return text
    root = _trie(edits)
    walk = _Walk(text)
    place = walk.root(root)
    splices = sorted(_splices(root, place, _Style(text)))
    pieces: list[str] = []
    position = 0
    for start, end, new in splices:
        pieces += (text[position:start], new)
        position = end
    return "".join((*pieces, text[position:]))


def same(first: Json | Absent, second: Json | Absent) -> bool:
    """
    Return whether two JSON values are equal, including their types: True is not 1, 1 is not 1.0,
    and NaN equals NaN.
    """
    if isinstance(first, Absent) or isinstance(second, Absent):
        return first is second
    return json.dumps(first, sort_keys=True) == json.dumps(second, sort_keys=True)


def _trie(edits: Sequence[Change]) -> _Node:
    """Return the edits as a tree by the steps of their pointers."""
    root = _Node("")
    for change in edits:
        node = root
        for step in _steps(change[0]):
            if node.change is not None:
                raise EditError(f"the edit at {change[0]!r} is inside the one at {node.pointer!r}")
            node = node.below.setdefault(step, _Node(change[0]))
        if node.change is not None or node.below:
            raise EditError(f"edits at or below {change[0]!r} overlap")
        node.pointer, node.change = change[0], change
    return root


def _steps(pointer: str) -> list[str]:
    if (pointer and not pointer.startswith("/")) or _BAD_ESCAPE.search(pointer):
        raise EditError(f"{pointer!r} is not a JSON Pointer")
    if pointer.count("/") > limits.JSON_DEPTH.value:
        raise EditError(f"a JSON Pointer of {pointer.count('/')} steps is deeper than any config")
    return [
        _ESCAPE.sub(lambda match: _UNESCAPED[match[0]], step) for step in pointer.split("/")[1:]
    ]


class _Walk:
    """A walk through the text along the pointers."""

    def __init__(self, text: str) -> None:
        self._text = text

    def root(self, node: _Node) -> _Place:
        """Return the span of the whole value, which contains the spans of all steps."""
        try:
            place = self._place(node, self._blank(0))
        except EditError:
            raise
        except (ValueError, RecursionError, IndexError) as error:
            raise EditError("the text is not JSON, or is nested too deeply") from error
        if self._blank(place.end) != len(self._text):
            raise EditError(f"unexpected text after the JSON value, at character {place.end}")
        return place

    def _place(self, node: _Node, start: int) -> _Place:
        """
        Return the span of the value that begins at ``start``. The recursion is not deeper than the
        pointers.
        """
        opening = self._text[start]
        if not node.below or opening not in "{[":
            return _Place(start, self._skip(start))
        members: list[_Member] | None = [] if opening == "{" else None
        closing = "}" if opening == "{" else "]"
        place = _Place(start, start, members)
        position, index = self._blank(start + 1), 0
        while index or self._text[position] != closing:
            key, key_end, value = str(index), position, position
            if members is not None:
                key, key_end = _DECODER.raw_decode(self._text, position)
                value = self._blank(self._expect(":", self._blank(key_end)))
            if (child := node.below.get(key)) is None:
                end = self._skip(value)
            else:
                place.below[key] = below = self._place(child, value)
                end = below.end
            if members is not None:
                members.append(_Member(key, position, key_end, value, end))
            position = self._blank(end)
            if self._text[position] == closing:
                break
            position, index = self._blank(self._expect(",", position)), index + 1
        place.end = position + 1
        return place

    def _skip(self, position: int) -> int:
        return _DECODER.raw_decode(self._text, position)[1]

    def _blank(self, position: int) -> int:
        match = _BLANK.match(self._text, position)
        return match.end() if match else position

    def _expect(self, mark: str, position: int) -> int:
        if self._text[position] != mark:
            raise EditError(f"the text is not JSON: expected {mark!r} at character {position}")
        return position + 1


class _Style:
    """The separators that a text uses, so that new values have the same style."""

    def __init__(self, text: str) -> None:
        self.text = text
        first = re.search(r'"[ \t\n\r]*:([ \t\n\r]?)', text)
        self.colon, self.comma = (":", ",") if first is not None and not first[1] else (": ", ", ")
        self._ascii = text.isascii()

    def json(self, value: Json) -> str:
        """Return a value in the style of the text."""
        return json.dumps(value, separators=(self.comma, self.colon), ensure_ascii=self._ascii)

    def member(self, key: str, value: Json, members: Sequence[_Member]) -> str:
        """Return a new member as text, in the style of the last member of the object."""
        colon = self.text[members[-1].key_end : members[-1].value] if members else self.colon
        return f"{self.json(key)}{colon}{self.json(value)}"

    def between(self, place: _Place) -> str:
        """Return the text between two members of this object."""
        members = place.members or []
        if len(members) > 1:
            return self.text[members[-2].end : members[-1].start]
        indent = self.text[place.start + 1 : members[0].start] if members else ""
        return f",{indent}" if "\n" in indent else self.comma


_Splice = tuple[int, int, str]


def _splices(node: _Node, place: _Place, style: _Style) -> Iterator[_Splice]:
    """Yield the replacements in the text: start, end and new text of each."""
    if node.change is not None:
        yield from _replacements(node.change, place, style)
        return
    members = place.members
    removed = {
        step: child.change
        for step, child in node.below.items()
        if members and step in place.below and child.change and _is_removal(child.change)
    }
    added = {
        step: child.change
        for step, child in node.below.items()
        if members is not None and step not in place.below and child.change
    }
    for step, change in removed.items():
        _check(change, place.below[step], style.text)
    if removed or added:
        yield from _resize_object(
            place, removed.keys(), list(_additions(added, members or [], style)), style
        )
    for step, child in node.below.items():
        if step in removed or step in added:
            continue
        if step not in place.below:
            raise EditError(f"{child.pointer!r} does not exist: its step {step!r} is missing")
        yield from _splices(child, place.below[step], style)


def _is_removal(change: Change) -> bool:
    return isinstance(change[2], Absent) and not isinstance(change[1], Absent)


def _check(change: Change, place: _Place, text: str) -> Json:
    """
    Return the value at ``place``.

    :raises EditError: if it is not the value that the change expects.
    """
    old_value: Json = _DECODER.raw_decode(text, place.start)[0]
    if not same(old_value, change[1]):
        raise EditError(
            f"{change[0]!r} contains a different value than expected: "
            f"{text[place.start : min(place.end, place.start + 80)]}"
        )
    return old_value


def _replacements(change: Change, place: _Place, style: _Style) -> Iterator[_Splice]:
    """Yield the splice that replaces a value, unless it is equal."""
    old_value = _check(change, place, style.text)
    if isinstance(change[2], Absent):
        raise EditError(f"{change[0]!r}: only keys of objects can be removed")
    if not same(old_value, change[2]):
        yield place.start, place.end, style.json(change[2])


def _additions(
    added: Mapping[str, Change], members: Sequence[_Member], style: _Style
) -> Iterator[str]:
    """Yield the new members of an object."""
    for step, (pointer, before, after) in added.items():
        if not isinstance(before, Absent) or isinstance(after, Absent):
            raise EditError(f"{pointer!r} does not exist: its step {step!r} is missing")
        yield style.member(step, after, members)


def _resize_object(
    place: _Place, removed: Collection[str], new: Sequence[str], style: _Style
) -> Iterator[_Splice]:
    """
    Yield the splices that remove every occurrence of some keys from an object, and add members at
    its end.
    """
    members = place.members or []
    separator = style.between(place)
    kept = [index for index, member in enumerate(members) if member.key not in removed]
    if not kept:
        start, end = (
            (members[0].start, members[-1].end) if members else (place.start + 1, place.start + 1)
        )
        yield start, end, separator.join(new)
        return
    if kept[0]:
        yield members[0].start, members[kept[0]].start, ""
    for kept_index, next_index in zip(kept, [*kept[1:], len(members)], strict=True):
        if next_index - kept_index > 1:
            yield members[kept_index].end, members[next_index - 1].end, ""
    if new:
        yield members[-1].end, members[-1].end, separator + separator.join(new)
