"""
A document as it will be once a plan is carried out: what loaders are judged by before anything is
written.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from policytool.support.text.jsontext import ABSENT, place

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from policytool.formats.document import Document
    from policytool.formats.edits import Cast, Edit
    from policytool.support.text.jsontext import Json


def apply_edits(document: Document, edits: Iterable[Edit], casts: Iterable[Cast]) -> Document:
    """Return the document with the edits made and the tensors cast."""
    by_part: dict[str, list[Edit]] = defaultdict(list)
    for edit in edits:
        by_part[edit.address.part].append(edit)
    parts: Mapping[str, Json] = {
        part: _edit(value, by_part[part]) for part, value in document.parts.items()
    }
    after = {cast.tensor: cast.after for cast in casts}
    tensors = document.tensors
    if tensors is not None and after:
        tensors = tuple(
            replace(tensor, dtype=after.get(tensor.path, tensor.dtype)) for tensor in tensors
        )
    return replace(document, parts=parts, tensors=tensors)


def _edit(value: Json, edits: list[Edit]) -> Json:
    if not edits:
        return value
    edited = copy.deepcopy(value)
    for edit in edits:
        holder, key = place(edited, edit.address.pointer)
        if edit.after is ABSENT:
            del holder[key]
        else:
            holder[key] = edit.after
    return edited
