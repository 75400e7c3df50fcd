"""A ``keras_metadata.pb`` without the SavedModel around it."""

from typing import Final

from policytool.formats.format import Format
from policytool.formats.keras_metadata import read

FORMAT: Final = Format(
    package=__name__,
    document_format="keras-metadata",
    title="keras_metadata.pb alone",
    suffixes=(".pb",),
    recognise=read.recognise,
    read=read.read,
)
