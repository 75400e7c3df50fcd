"""Keras weights in several HDF5 files."""

from typing import Final

from policytool.formats.format import Format
from policytool.formats.sharded_weights import recognition

FORMAT: Final = Format(
    package=__name__,
    document_format="weights",
    title="a weights file",
    recognise=recognition.recognise,
    names_parts=True,
    whole=recognition.whole,
    parts_are_models=True,
)
