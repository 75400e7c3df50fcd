"""
Architecture YAML: the output of ``model.to_yaml()`` in Keras up to 2.3 and TF up to 2.2.

It stores no variables. A rewrite edits the value and writes it again, because the file contains
nothing else.
"""

from __future__ import annotations

import copy
import re
from codecs import BOM_UTF8
from typing import TYPE_CHECKING, Final

from policytool.formats.base import Format, is_serialised, writer_of
from policytool.formats.document import Document, Observation
from policytool.support import limits
from policytool.support.text.jsontext import ABSENT, Absent, place

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from policytool.formats.base import Probe
    from policytool.formats.writers import Changes, FileChange
    from policytool.formats.writing import WriteError
    from policytool.support.text.jsonedit import Change
    from policytool.support.text.jsontext import Json
    from policytool.support.text.yamltext import Parsed

_BEGINNING: Final = re.compile(
    rb"""(?:[ \t]*(?:\#[^\n]*)?\r?\n | %YAML[^\n]*\n | ---[ \t]*\r?\n)*   # before a document
         (?:["']?(?:backend|keras_version)["']?[ \t]*:[ \t][^\n]*\n){0,2}
         ["']?class_name["']?[ \t]*:[ \t]""",
    re.VERBOSE,
)
"""The first keys, in PyYAML's sorted order, or in Keras' order if PyYAML did not sort them."""

PART: Final = "model"
PYTHON_OBJECTS: Final = "python-objects"
"""The code of the observation about tags that name Python classes."""
_POINTER: Final = re.compile(r"(?:/(?:[^~]|~[01])*)?", re.DOTALL)


def recognise(probe: Probe) -> bool:
    """
    Return whether the file begins with the keys that ``to_yaml()`` writes, ``class_name`` among the
    first three.
    """
    return _BEGINNING.match(probe.head.removeprefix(BOM_UTF8)) is not None


def read(probe: Probe) -> Document:
    """Return the document of an architecture."""
    from policytool.support.text import yamltext  # for this format alone

    data = probe.content(limits.YAML_BYTES, "yaml-limit", "is YAML of")
    try:
        parsed = yamltext.parse(data.removeprefix(BOM_UTF8).decode("utf-8"))
    except UnicodeDecodeError as error:
        raise probe.failure(
            "invalid-yaml", f"the file is not UTF-8 text (byte {error.start})"
        ) from error
    except yamltext.YamlError as error:
        raise probe.failure(error.code, f"the file {error}") from error
    config = parsed.value
    if not is_serialised(config):
        raise probe.failure(
            "yaml-not-keras",
            "is YAML, but not a Keras architecture: it lacks class_name and config; "
            "expected the output of model.to_yaml()",
        )
    return Document(
        path=probe.shown,
        format="yaml",
        parts={PART: config},
        config_part=PART,
        writer=writer_of(config),
        observations=tuple(_observations(parsed)),
    )


def _observations(parsed: Parsed) -> Iterator[Observation]:
    """Yield observations about duplicate keys, and about calls of Python classes."""
    if parsed.repeated:
        keys = ", ".join(repr(key) for key in parsed.repeated[:5])
        yield Observation(
            code="duplicate-key",
            message=f"the file has duplicate keys in one mapping ({keys}); Keras uses the last "
            "value",
            where="the file",
        )
    if parsed.wrappers:
        names = ", ".join(name.rpartition(".")[2] for name in parsed.wrappers)
        yield Observation(
            code=PYTHON_OBJECTS,
            message=(
                f"the file calls Python classes ({names}), but only their arguments are "
                "read; PyYAML 5.2 and later reject such calls"
            ),
        )


def file_changes(path: Path, changes: Changes) -> Mapping[str, FileChange]:
    """Return the change to an architecture."""
    from policytool.formats.writers import text_change  # what writes is imported to write

    return text_change(PART, path, changes, apply)


def apply(text: str, edits: Sequence[Change]) -> str:
    """
    Return ``text`` with values replaced, removed, or added to mappings (if ``before`` is ABSENT).
    from mappings (after is ABSENT); the same text if nothing changes.

    :raises EditError: if a pointer leads nowhere, or if its value is not ``before``.
    :raises WriteError: if the new text does not parse to the edited value, for example because it
        exceeds a limit.
    """
    from policytool.support.text import yamltext
    from policytool.support.text.jsonedit import EditError, same

    try:
        root = yamltext.compose(text)
    except yamltext.YamlError as error:
        raise EditError(f"the text {error}") from error
    expected = _edit(yamltext.node_value(root), edits)
    if same(expected, yamltext.node_value(root)):
        return text
    edited = yamltext.write(expected, root, "\r\n" if "\r\n" in text else "\n")
    try:
        parsed = yamltext.parse(edited).value
    except yamltext.YamlError as error:
        raise _refuse(str(error)) from error
    if not same(parsed, expected):
        raise _refuse("differs from the expected result")
    return edited


def _refuse(problem: str) -> WriteError:
    from policytool.formats.writing import WriteError

    return WriteError(
        "not-rewritable",
        f"is YAML that cannot be edited: the edited text {problem}",
    )


def _edit(value: Json, edits: Sequence[Change]) -> Json:
    """Return the value with all edits applied; each edit must match the present value."""
    from policytool.support.text.jsonedit import EditError, same

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


FORMAT: Final = Format(
    package=__name__,
    reader=f"{__name__}:read",
    changes_finder=f"{__name__}:file_changes",
    document_format="yaml",
    title="architecture YAML",
    suffixes=(".yaml", ".yml"),
    recognise=recognise,
)
