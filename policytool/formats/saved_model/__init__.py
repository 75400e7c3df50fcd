"""SavedModels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.formats.format import Format
from policytool.formats.saved_model import files, read

if TYPE_CHECKING:
    from policytool.formats.rewriting.base import Rewriter
    from policytool.formats.stored_values.base import OpenValues


def _rewriter() -> Rewriter:
    from policytool.formats.saved_model import rewrite

    return rewrite.REWRITER


def _values() -> OpenValues:
    from policytool.formats.saved_model import values

    return values.open_values


FORMAT: Final = Format(
    name="savedmodel",
    document_format="savedmodel",
    title="SavedModel",
    recognise=read.recognise,
    read=read.read,
    owns=files.owns,
    whole=files.whole,
    rewriter=_rewriter,
    values=_values,
)
