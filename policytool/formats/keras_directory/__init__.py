"""Unpacked ``.keras`` models, which are directories."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.formats.format import Format
from policytool.formats.keras_directory import read

if TYPE_CHECKING:
    from policytool.formats.rewriting.base import Rewriter
    from policytool.formats.stored_values.base import OpenValues


def _rewriter() -> Rewriter:
    from policytool.formats.keras_directory import rewrite

    return rewrite.REWRITER


def _values() -> OpenValues:
    from policytool.formats.keras_directory import values

    return values.open_values


FORMAT: Final = Format(
    name="keras-directory",
    document_format="keras",
    title=".keras",
    recognise=read.recognise,
    read=read.read,
    owns=read.owns,
    whole=read.whole,
    rewriter=_rewriter,
    values=_values,
)
