"""Keras weights in several HDF5 files."""

from typing import Final

from policytool.formats.format import Format
from policytool.formats.sharded_weights import read

FORMAT: Final = Format(
    package=__name__,
    document_format="weights",
    title="weights alone",
    recognise=read.recognise,
    read=read.read,
    whole=read.whole,
    parts_are_models=True,
)
