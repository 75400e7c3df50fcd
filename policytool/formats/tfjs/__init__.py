"""TensorFlow.js layers models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.formats.format import Format
from policytool.formats.tfjs import read

if TYPE_CHECKING:
    from policytool.formats.rewriting.base import Rewriter
    from policytool.formats.stored_values.base import OpenValues


def _rewriter() -> Rewriter:
    from policytool.formats.tfjs import rewrite

    return rewrite.REWRITER


def _values() -> OpenValues:
    from policytool.formats.tfjs import values

    return values.open_values


FORMAT: Final = Format(
    name="tfjs",
    document_format="tfjs",
    title="TensorFlow.js layers model",
    suffixes=(".json",),
    recognise=read.recognise,
    read=read.read,
    rewriter=_rewriter,
    values=_values,
)
