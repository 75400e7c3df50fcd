"""A ``keras_metadata.pb`` without the SavedModel around it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.formats.format import Format
from policytool.formats.keras_metadata import read

if TYPE_CHECKING:
    from policytool.formats.rewriting.base import Rewriter


def _rewriter() -> Rewriter:
    from policytool.formats.keras_metadata import rewrite

    return rewrite.REWRITER


FORMAT: Final = Format(
    name="keras-metadata",
    document_format="keras-metadata",
    title="keras_metadata.pb alone",
    suffixes=(".pb",),
    recognise=read.recognise,
    read=read.read,
    rewriter=_rewriter,
)
