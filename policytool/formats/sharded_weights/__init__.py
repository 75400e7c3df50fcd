"""Keras weights in several HDF5 files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.formats.format import Format
from policytool.formats.sharded_weights import read

if TYPE_CHECKING:
    from policytool.formats.stored_values.base import OpenValues


def _values() -> OpenValues:
    from policytool.formats.sharded_weights import values

    return values.open_values


FORMAT: Final = Format(
    name="sharded-weights",
    document_format="weights",
    title="weights alone",
    recognise=read.recognise,
    read=read.read,
    whole=read.whole,
    parts_are_models=True,
    values=_values,
)
