"""Architecture JSON, which ``model_from_json`` reads: the config alone, without variables."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from policytool.formats.architecture import read as layout
from policytool.formats.base import is_serialised, writer_of
from policytool.formats.document import Document
from policytool.formats.writers import Creator, ascii_json, read_back
from policytool.formats.writing import WriteError
from policytool.support.files import atomic

if TYPE_CHECKING:
    from pathlib import Path

    from policytool.formats.edits import Content, Counted
    from policytool.formats.stored_values import Values


def write(draft: Path, content: Content, values: Values | None) -> Counted:
    """Write an architecture into an empty draft."""
    del values
    with atomic.open_descriptor(draft, os.O_WRONLY) as descriptor:
        atomic.write_all(descriptor, ascii_json(content.config).encode(), 0)
    return {}


def document(content: Content, path: str) -> Document:
    """Return the document that reading the file gives."""
    config = read_back(content.config, layout.PART)
    if not is_serialised(config):
        raise WriteError("not-rewritable", "the new architecture lacks class_name and config")
    return Document(
        path=path,
        format="json",
        parts={layout.PART: config},
        config_part=layout.PART,
        writer=writer_of(config),
    )


def check(draft: Path, content: Content) -> None:
    """Do nothing: all that an architecture says is in its document."""
    del draft, content


def creator() -> Creator:
    """Return how models of this format are written from nothing."""
    return Creator(write=write, document=document, check=check)
