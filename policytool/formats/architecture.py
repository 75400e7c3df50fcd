"""
Architecture JSON: the output of ``model.to_json()`` of any Keras, which ``model_from_json`` reads.

It contains the config and no variables.
"""

from __future__ import annotations

import os
from codecs import BOM_UTF8
from typing import TYPE_CHECKING, Final

from policytool.formats.base import Format, is_serialised, parse_json, writer_of
from policytool.formats.document import Document, Observation
from policytool.formats.sharded_weights import recognise as is_shard_map
from policytool.formats.tfjs import recognise as is_tfjs_model
from policytool.support import limits

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from policytool.formats.base import Probe
    from policytool.formats.document import Values
    from policytool.formats.edits import Content, Counted
    from policytool.formats.writers import Changes, Creator, FileChange
    from policytool.support.text.jsontext import Json

_PART: Final = "model"


def recognise(probe: Probe) -> bool:
    """
    Return whether the file begins with a JSON object that no other format recognises.
    """
    is_object = probe.head.removeprefix(BOM_UTF8).lstrip().startswith(b"{")
    return is_object and not is_shard_map(probe) and not is_tfjs_model(probe)


def read(probe: Probe) -> Document:
    """Return the document of an architecture."""
    observations: list[Observation] = []
    config = parse_json(
        probe,
        probe.content(limits.JSON_BYTES, "json-limit", "is JSON of").removeprefix(BOM_UTF8),
        "the file",
        observations,
    )
    if not is_serialised(config):
        raise probe.failure(
            "json-not-keras",
            "is JSON, but not a Keras architecture: it lacks class_name and config; "
            "expected the output of model.to_json()",
        )
    return _document(probe.shown, config, observations)


def _document(
    path: str, config: dict[str, Json], observations: Sequence[Observation] = ()
) -> Document:
    return Document(
        path=path,
        format="json",
        parts={_PART: config},
        config_part=_PART,
        writer=writer_of(config),
        observations=tuple(observations),
    )


def file_changes(path: Path, changes: Changes) -> Mapping[str, FileChange]:
    """Return the change to the file: its text is edited."""
    from policytool.formats.writers import text_change  # what writes is imported to write

    return text_change(_PART, path, changes)


def creator() -> Creator:
    """Return the creator of new architecture files."""
    from policytool.formats.writers import Creator

    return Creator(write=_write, document=_new_document)


def _write(draft: Path, content: Content, _values: Values | None) -> Counted:
    """Write an architecture into an empty draft."""
    from policytool.formats.writers import ascii_json
    from policytool.support.files import atomic

    with atomic.open_descriptor(draft, os.O_WRONLY) as descriptor:
        atomic.write_all(descriptor, ascii_json(content.config).encode(), 0)
    return {}


def _new_document(content: Content, path: str) -> Document:
    """Return the document of the written file, without reading it."""
    from policytool.formats.writers import read_back
    from policytool.formats.writing import WriteError

    config = read_back(content.config, _PART)
    if not is_serialised(config):
        raise WriteError("not-rewritable", "the new architecture lacks class_name and config")
    return _document(path, config)


FORMAT: Final = Format(
    package=__name__,
    reader=f"{__name__}:read",
    changes_finder=f"{__name__}:file_changes",
    creator_maker=f"{__name__}:creator",
    document_format="json",
    title="architecture JSON",
    suffixes=(".json",),
    recognise=recognise,
)
