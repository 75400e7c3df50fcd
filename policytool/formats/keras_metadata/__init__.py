"""A ``keras_metadata.pb`` without the SavedModel around it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.formats.base import Format
from policytool.formats.saved_model.files import KERAS_PREFIX

if TYPE_CHECKING:
    from policytool.formats.base import Probe

_NODES_TAG: Final = b"\n"
"""The first byte of the file: field 1 of Keras' SavedMetadata, delimited by its length."""

_ROOT: Final = b"\x1a\x04root"
"""The path of the model's own node, which is the first."""

_NEAR: Final = 64
"""Where the first node's path and identifier stand: before its metadata."""


def recognise(probe: Probe) -> bool:
    """
    Return whether a file begins as Keras' metadata does: with a node that is a Keras object, or
    that lies at the root.
    """
    if probe.is_directory or not probe.head.startswith(_NODES_TAG):
        return False
    near = probe.head[:_NEAR]
    return _ROOT in near or (KERAS_PREFIX.encode() in near and b"\x1a" in near)


FORMAT: Final = Format(
    package=__name__,
    reader=f"{__name__}.read:read",
    rewriter_maker=f"{__name__}.rewrite:rewriter",
    document_format="keras-metadata",
    title="a keras_metadata.pb file",
    suffixes=(".pb",),
    recognise=recognise,
)
