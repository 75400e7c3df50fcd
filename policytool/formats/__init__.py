"""
The file formats of models, with one module or package per format.

To add a format, write its module and add one line to :data:`FORMATS`. The module declares
``FORMAT``, says which files are of the format, and names the functions for what the format can do:

- ``read`` returns a document,
- ``file_changes`` returns the files that change in a rewritten model,
- ``creator`` returns how models are written from nothing,
- ``open_values`` opens the values of the variables.

``tests/formats/FORMAT/test_read.py`` tries the format on fixtures. What formats share is in
:mod:`~policytool.formats.rewriting`, :mod:`~policytool.formats.creating` and
:mod:`~policytool.formats.document`. h5py, protobuf, PyYAML and NumPy are imported when a file
needs them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.formats import (
    architecture,
    checkpoint,
    hdf5,
    keras_archive,
    keras_directory,
    keras_hub,
    keras_metadata,
    orbax,
    saved_model,
    sharded_weights,
    tfjs,
    yaml_architecture,
)
from policytool.formats.base import Format, Probe

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMATS: Final[tuple[Format, ...]] = (
    hdf5.FORMAT,
    keras_archive.FORMAT,
    saved_model.FORMAT,
    keras_directory.FORMAT,
    keras_hub.FORMAT,
    architecture.FORMAT,
    sharded_weights.FORMAT,
    checkpoint.FORMAT,
    keras_metadata.FORMAT,
    yaml_architecture.FORMAT,
    tfjs.FORMAT,
    orbax.FORMAT,
)
"""All formats, the most frequent first. At most one recognises a file, so any order works."""

WITHOUT_WEIGHTS: Final = frozenset({"json", "yaml", "keras-metadata"})
"""Document formats without weights."""

REWRITTEN: Final = frozenset(
    file_format.document_format for file_format in FORMATS if file_format.is_rewritten
)
"""The document formats that can be rewritten."""

CONVERTED: Final = REWRITTEN - {keras_hub.FORMAT.document_format} | {orbax.FORMAT.document_format}
"""
The document formats whose models can be converted to another format. Only KerasHub has the layers
of its backbones, and the order in which they are stored.
"""

TITLES: Final[Mapping[str, str]] = {
    file_format.document_format: file_format.title for file_format in FORMATS
}
"""The names of document formats in reports."""

SUFFIXES: Final[Mapping[str, tuple[str, ...]]] = {
    file_format.document_format: file_format.suffixes
    for file_format in FORMATS
    if file_format.suffixes
}
"""The file suffixes of each document format."""

__all__ = [
    "CONVERTED",
    "FORMATS",
    "REWRITTEN",
    "SUFFIXES",
    "TITLES",
    "WITHOUT_WEIGHTS",
    "Format",
    "Probe",
]
