"""Architecture YAML, rewritten: its value is edited and written again, nothing else is in it."""

from __future__ import annotations

import copy
import re
from typing import TYPE_CHECKING, Final

from policytool.formats import writers as texts
from policytool.formats.writing import WriteError
from policytool.formats.yaml_architecture.read import PART
from policytool.support.text import yaml_emitter, yamltext
from policytool.support.text.jsonedit import EditError, same
from policytool.support.text.jsontext import ABSENT, Absent, place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from policytool.formats.writers import Rewriter
    from policytool.support.text.jsonedit import Change
    from policytool.support.text.jsontext import Json

_POINTER: Final = re.compile(r"(?:/(?:[^~]|~[01])*)?", re.DOTALL)


def apply(text: str, edits: Sequence[Change]) -> str:
    """
    Return ``text`` with these values replaced, added to mappings (before is ABSENT) and removed
    from mappings (after is ABSENT); the same text if nothing changes.

    :raises EditError: if a pointer leads nowhere, or if its value is not ``before``.
    :raises WriteError: if the new text does not parse to the edited value, for example because it
        exceeds a limit.
    """
    try:
        root = yamltext.compose(text)
    except yamltext.YamlError as error:
        raise EditError(f"the text {error}") from error
    expected = _edit(yamltext.value(root), edits)
    if same(expected, yamltext.value(root)):
        return text
    edited = yaml_emitter.write(expected, root, "\r\n" if "\r\n" in text else "\n")
    try:
        parsed = yamltext.parse(edited).value
    except yamltext.YamlError as error:
        raise _refuse(str(error)) from error
    if not same(parsed, expected):
        raise _refuse("differs from the expected result")
    return edited


def _refuse(problem: str) -> WriteError:
    return WriteError(
        "not-rewritable",
        f"is YAML that cannot be edited: the edited text {problem}",
    )


def _edit(value: Json, edits: Sequence[Change]) -> Json:
    """Return the value with all edits applied; each edit must match the present value."""
    holder: dict[str, Json] = {"": value}
    for pointer, before, after in edits:
        if not _POINTER.fullmatch(pointer):
            raise EditError(f"{pointer[:80]!r} is not a JSON Pointer into a config")
        try:
            inner, key = place(holder, f"/{pointer}")
            is_there = key in inner if isinstance(inner, dict) else pointer.endswith(f"/{key}")
            stored_value = inner[key] if is_there else ABSENT
        except (LookupError, TypeError, ValueError) as error:
            raise EditError(f"{pointer!r} does not exist") from error
        if not same(stored_value, before) or (
            isinstance(after, Absent) and isinstance(before, Absent)
        ):
            raise EditError(f"{pointer!r} contains a different value than expected")
        if not isinstance(after, Absent):
            inner[key] = copy.deepcopy(after)
        elif isinstance(inner, dict) and pointer:
            del inner[key]
        else:
            raise EditError(f"{pointer!r}: only keys of mappings can be removed")
    return holder[""]


def rewriter() -> Rewriter:
    """Return how models of this format are rewritten."""
    return texts.text_rewriter(PART, apply=apply)
