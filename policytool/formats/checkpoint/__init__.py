"""TensorFlow checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.formats.checkpoint import read
from policytool.formats.format import Format

if TYPE_CHECKING:
    from policytool.formats.stored_values.base import OpenValues


def _values() -> OpenValues:
    from policytool.formats.checkpoint import values

    return values.open_values


FORMAT: Final = Format(
    name="checkpoint",
    document_format="weights",
    title="weights alone",
    recognise=read.recognise,
    read=read.read,
    whole=read.whole,
    values=_values,
)
