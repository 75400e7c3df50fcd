"""
YAML text edited where it stands: what is not edited stays as it is, byte for byte, with its tags,
comments, quotes and line ends.

The nodes along the pointers are found by :mod:`policytool.support.text.yamltext`, and new values
are spliced in, in flow style. A value that several places share by an alias is written out where it
becomes another one than elsewhere. The edited text is read again before it is returned: it says
what was asked, or the edit is refused.
"""

from __future__ import annotations

import copy
import json
import re
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from policytool.support import limits
from policytool.support.text import yamltext
from policytool.support.text.jsonedit import Change, EditError, same
from policytool.support.text.jsontext import ABSENT, Absent, place, steps

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from policytool.support.text.jsontext import Json
    from policytool.support.text.yamltext import Node

__all__ = ["Change", "EditError", "UneditableError", "apply"]

_POINTER: Final = re.compile(r"(?:/(?:[^~]|~[01])*)?", re.DOTALL)
_PROPERTIES: Final = re.compile(r"(?:[!&]\S*\s+)*")
"""A tag and an anchor before a value."""

_COMMENT: Final = re.compile(r"#[^\n]*")
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WORDS: Final = frozenset(
    {"y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"}
)
"""What some reader of YAML takes for more than a word."""

_ESCAPED: Final = re.compile(
    r'[^\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]|["\\]'
)
"""Characters that double quotes do not hold as they are."""

_FOUR_DIGITS: Final = 0xFFFF


class UneditableError(EditError):
    """Text in a form that no splice leaves the rest of as it is; ``to_yaml()`` writes none such."""


@dataclass(slots=True)
class _Step:
    """One step on the way of the pointers."""

    change: Change | None = None
    below: dict[str, _Step] = field(default_factory=dict)

    @property
    def is_removal(self) -> bool:
        """Whether the key is to go."""
        return self.change is not None and isinstance(self.change[2], Absent)

    @property
    def is_addition(self) -> bool:
        """Whether the key is new."""
        return self.change is not None and isinstance(self.change[1], Absent)

    def is_idle(self) -> bool:
        """Return whether all that is asked at and below this step stands there already."""
        pending = [self]
        while pending:
            step = pending.pop()
            if step.change is not None and not same(step.change[1], step.change[2]):
                return False
            pending += step.below.values()
        return True


def apply(text: str, edits: Sequence[Change]) -> str:
    """
    Return ``text`` with these values replaced, added to mappings (before is ABSENT) and removed
    from mappings (after is ABSENT).

    :raises EditError: where a pointer leads nowhere, something other than ``before`` stands there,
        or edits overlap.
    :raises UneditableError: where the text would say something else than asked.
    """
    if not edits:
        return text
    asked = _trie(edits)
    try:
        root = yamltext.compose(text)
    except yamltext.YamlError as error:
        raise EditError(f"the text {error}") from error
    wanted = _edited(yamltext.value(root), edits)
    edited = _spliced(text, _Editor(text, root).splices(asked, wanted))
    try:
        found = yamltext.parse(edited).value
    except yamltext.YamlError as error:
        raise UneditableError(f"once it is edited the text {error}") from error
    if not same(found, wanted):
        raise UneditableError("once it is edited the text says something else than asked")
    return edited


def _trie(edits: Sequence[Change]) -> _Step:
    root = _Step()
    for change in edits:
        pointer = change[0]
        if not _POINTER.fullmatch(pointer) or pointer.count("/") > limits.JSON_DEPTH.value:
            raise EditError(f"{pointer[:80]!r} is no JSON Pointer into a config")
        step = root
        for name in steps(pointer):
            if step.change is not None:
                raise EditError(
                    f"the edit at {pointer!r} lies inside the one at {step.change[0]!r}"
                )
            step = step.below.setdefault(name, _Step())
        if step.change is not None or step.below:
            raise EditError(f"several edits at or below {pointer!r} overlap")
        step.change = change
    return root


def _edited(value: Json, edits: Sequence[Change]) -> Json:
    """Return the value with every edit made, each of which has to find what it expects."""
    holder: dict[str, Json] = {"": copy.deepcopy(value)}
    for pointer, before, after in edits:
        try:
            inner, key = place(holder, f"/{pointer}")
            found = (
                inner.get(key, ABSENT)
                if isinstance(inner, dict)
                else inner[key]
                if pointer.endswith(f"/{key}")
                else ABSENT
            )
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise EditError(f"{pointer!r} leads nowhere") from error
        if not same(found, before) or (isinstance(after, Absent) and isinstance(before, Absent)):
            raise EditError(f"{pointer!r} holds another value than expected")
        if not isinstance(after, Absent):
            inner[key] = copy.deepcopy(after)
        elif isinstance(inner, dict) and pointer:
            del inner[key]
        else:
            raise EditError(f"{pointer!r}: only keys of mappings can be removed")
    return holder[""]


def _spliced(text: str, splices: Sequence[_Splice]) -> str:
    pieces: list[str] = []
    position = 0
    for start, end, new in sorted(splices):
        pieces += (text[position:start], new)
        position = end
    return "".join((*pieces, text[position:]))


_Splice = tuple[int, int, str]


class _Editor:
    """Turns the edits of one text into splices."""

    def __init__(self, text: str, root: Node) -> None:
        self._text, self._root = text, root
        self._newline = "\r\n" if "\r\n" in text else "\n"
        self._splices: list[_Splice] = []
        self._holders: set[int] = set()
        """Identities of the nodes that an edit lies in."""

        self._gone: list[tuple[int, int]] = []
        """From where to where nodes are replaced or removed."""

    def splices(self, asked: _Step, wanted: Json) -> list[_Splice]:
        """Return what is replaced in the text, each by its start, its end and what comes there."""
        self._visit(self._root, asked, wanted, None)
        self._write_out_aliases()
        return self._splices

    def _visit(self, node: Node, asked: _Step, wanted: Json, key: Node | None) -> None:
        """Edit at and below a node, before which ``key`` stands in a mapping."""
        if asked.is_idle():
            return
        inner = node.bare
        if asked.change is not None or inner.kind == "alias":
            if inner.kind == "alias" and asked.change is None:
                _refuse_tags(inner)
            self._gone.append((node.start, node.end))
            self._replace(node, wanted, key)
            return
        self._holders |= {id(node), id(inner)}
        if isinstance(wanted, dict):
            self._edit_members(inner, asked, wanted)
        elif isinstance(wanted, list):
            for step, below in asked.below.items():
                self._visit(inner.items[int(step)], below, wanted[int(step)], None)

    def _edit_members(self, mapping: Node, asked: _Step, wanted: Mapping[str, Json]) -> None:
        last = {key: (name, node) for key, name, node in mapping.members}
        removed = {key for key, step in asked.below.items() if step.is_removal}
        added = {key: wanted[key] for key, step in asked.below.items() if step.is_addition}
        if removed or added:
            self._resize(
                mapping, removed, [f"{_flow(key)}: {_flow(value)}" for key, value in added.items()]
            )
        for key, step in asked.below.items():
            if key not in removed and key not in added:
                name, node = last[key]
                self._visit(node, step, wanted[key], name)

    def _replace(self, node: Node, new: Json, key: Node | None) -> None:
        """Put a value in the place of a node."""
        start, end, text = node.start, node.end, self._text
        written = (f"&{node.anchor} " if node.anchor is not None else "") + _flow(
            new, node.bare.style
        )
        if text[start:end].endswith("\n"):  # a block scalar, or a collection that ends with one
            written += self._newline
        if key is not None and (
            not node.flow or start == end
        ):  # begins on a line of its own, or has nothing yet
            colon = text.find(":", key.end, start)
            start, written = (colon + 1, f" {written}") if colon >= 0 else (key.end, f": {written}")
        elif start and text[start - 1] in ":-?":
            written = f" {written}"
        self._splices.append((start, end, written))

    def _resize(self, mapping: Node, removed: Collection[str], new: Sequence[str]) -> None:
        """
        Remove keys from a mapping, each time they stand there, and add members at its beginning:
        YAML has indentation to copy there, and no comma.
        """
        members = mapping.members
        self._refuse_explicit(mapping)
        self._gone += [(name.start, node.end) for key, name, node in members if key in removed]
        kept = [index for index, (key, _, _) in enumerate(members) if key not in removed]
        if not kept:
            self._refill(mapping, ", ".join(new))
            return
        begin, first = members[0][1].start, members[kept[0]][1].start
        between = (
            ", "
            if mapping.flow
            else self._newline + " " * (begin - self._text.rfind("\n", 0, begin) - 1)
        )
        if new or begin != first:
            self._splices.append((begin, first, "".join(f"{member}{between}" for member in new)))
        for one, other in zip(kept, [*kept[1:], len(members)], strict=True):
            if other - one > 1:
                start, end = members[one + 1][1].start, members[other - 1][2].end
                self._splices.append(
                    (*((members[one][2].end, end) if mapping.flow else self._lines(start, end)), "")
                )

    def _refill(self, mapping: Node, members: str) -> None:
        """Put members in the place of all that a mapping has."""
        if mapping.flow:
            opening = _PROPERTIES.match(self._text, mapping.start)
            self._splices.append(
                ((opening.end() if opening else mapping.start) + 1, mapping.end - 1, members)
            )
            return
        start = mapping.members[0][1].start
        tail = self._newline if self._text[start : mapping.end].endswith("\n") else ""
        self._splices.append((start, mapping.end, f"{{{members}}}{tail}"))

    def _lines(self, start: int, end: int) -> tuple[int, int]:
        """
        Return from where to where the lines are that members in block style stand on, with a
        comment behind the last.
        """
        if not self._text[start:end].endswith("\n"):
            end = self._text.find("\n", end) + 1 or len(self._text)
        return self._text.rfind("\n", 0, start) + 1, end

    def _refuse_explicit(self, mapping: Node) -> None:
        """
        Refuse to change which keys a mapping has where one of them stands behind a question mark.
        """
        end = mapping.start
        for _, name, node in mapping.members:
            if "?" in _COMMENT.sub("", self._text[end : name.start]):
                raise UneditableError(
                    f"a key stands behind a question mark, before character {name.start}"
                )
            end = node.end

    def _write_out_aliases(self) -> None:
        """
        Write out the aliases of values that change where they are defined, and that keep what they
        have.
        """
        gone = sorted(self._gone)

        def is_gone(node: Node) -> bool:
            index = bisect_right(gone, (node.start, len(self._text) + 1)) - 1
            return index >= 0 and node.end <= gone[index][1]

        nodes = list(yamltext.nodes(self._root))
        changed = {
            id(node)
            for node in nodes
            if node.anchor is not None and (id(node) in self._holders or is_gone(node))
        }
        for node in nodes:
            if node.target is not None and id(node.target) in changed and not is_gone(node):
                _refuse_tags(node)
                self._splices.append((node.start, node.end, _flow(yamltext.value(node))))


def _refuse_tags(alias: Node) -> None:
    """Refuse to write out what has tags: the text would lose them."""
    for node in _shared(alias):
        if node.tag is not None:
            raise UneditableError(
                f"a value with the tag {node.tag.rpartition(':')[2]} is shared with other places "
                "by an alias"
            )


def _shared(alias: Node) -> Iterator[Node]:
    """Yield every node that an alias stands for."""
    pending = [alias]
    while pending:
        for node in yamltext.nodes(pending.pop()):
            yield node
            if node.target is not None:
                pending.append(node.target)


def _flow(value: Json, style: str | None = None) -> str:
    """Return a value in flow style; ``style`` is the quote that a text is to have."""
    match value:
        case dict():
            return f"{{{', '.join(f'{_flow(key)}: {_flow(item)}' for key, item in value.items())}}}"
        case list():
            return f"[{', '.join(_flow(item) for item in value)}]"
        case str():
            return _quoted(value, style)
        case float():
            return _float(value)
    return json.dumps(value)


def _quoted(text: str, style: str | None) -> str:
    is_word = _PLAIN.fullmatch(text) is not None
    if is_word and style == "'":
        return f"'{text}'"
    if is_word and style != '"' and text.lower() not in _WORDS:
        return text
    return f'"{_ESCAPED.sub(_escape, text)}"'


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    if match[0] in '"\\':
        return f"\\{match[0]}"
    return f"\\u{code:04x}" if code <= _FOUR_DIGITS else f"\\U{code:08x}"


def _float(value: float) -> str:
    """Return a float as YAML 1.1 knows it: ``1.0e-07`` where Python has ``1e-07``, and ``.inf``."""
    text = repr(value)
    if text.endswith(("inf", "nan")):
        return f"{text[:-3]}.{text[-3:]}"
    return text if "." in text else text.replace("e", ".0e")
