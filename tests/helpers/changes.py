"""Changes for tests: an edit of one dtype, casts of everything, and what a directory holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from policytool.formats import format_detection
from policytool.formats.document import Address
from policytool.formats.edits import Cast, Edit, EditKind
from policytool.formats.rewriting import Changes
from policytool.support.text.jsontext import pointer
from tests.helpers.places import places

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from policytool.formats.document import Document
    from policytool.support.text.jsontext import Json
    from tests.helpers.places import Steps

OTHER: Final = {
    "float32": "float64",
    "float64": "float32",
    "float16": "float32",
    "bfloat16": "float32",
}


def document_of(path: Path) -> Document:
    """Return the document at a path."""
    return format_detection.document(path, path.name)


def edit(part: str, place: str, before: Json, after: Json) -> Edit:
    """Return an edit of one value."""
    return Edit(
        kind=EditKind.NUMERICS,
        address=Address(part=part, pointer=place),
        path=None,
        before=before,
        after=after,
        reason="a test",
    )


def cast(tensor: tuple[str, ...], before: str, after: str, through: str | None = None) -> Cast:
    """Return a cast of a layer's tensor."""
    return Cast(
        tensor=tensor, path="a layer", before=before, after=after, reason="a test", through=through
    )


def dtype_edit(document: Document) -> Edit | None:
    """Return an edit of the first dtype that is a string; None for a config without one."""
    part = str(document.config_part)
    for steps, value in _strings(document.parts.get(part)):
        if steps[-1] == "dtype":
            return edit(part, pointer(*steps), value, f"another {value}")
    return None


def casts(document: Document, after: dict[str, str] = OTHER) -> tuple[Cast, ...]:
    """Return casts of every float tensor."""
    return tuple(
        cast(tensor.path, tensor.dtype, after[tensor.dtype])
        for tensor in document.tensors or ()
        if tensor.dtype in after
    )


def all_changes(path: Path) -> Changes:
    """
    Return an edit and casts of everything for the model at a path; a SavedModel's metadata is
    edited wherever it stands.
    """
    document = document_of(path)
    if document.nodes:
        parts = sorted(
            {
                part
                for node in document.nodes.values()
                for part in (node.part, node.other_part)
                if part is not None
            }
        )
        result = (
            (part, steps, value)
            for part in parts
            for steps, value in _strings(document.parts[part])
        )
        return Changes(
            edits=tuple(
                edit(part, pointer(*steps), value, f"another {value}")
                for part, steps, value in result
                if steps[-1] == "name"
            )
        )
    edited = dtype_edit(document)
    return Changes(edits=(edited,) if edited else (), casts=casts(document))


def held(directory: Path) -> dict[str, bytes]:
    """Return every file below a directory with its bytes."""
    return {
        str(file.relative_to(directory)): file.read_bytes()
        for file in sorted(directory.rglob("*"))
        if file.is_file()
    }


def _strings(value: Any) -> Iterator[tuple[Steps, str]]:
    return (place for place in places(value) if place[0] and isinstance(place[1], str))
