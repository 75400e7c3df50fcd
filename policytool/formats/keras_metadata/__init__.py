"""A ``keras_metadata.pb`` without the SavedModel around it."""

from typing import Final

from policytool.formats.format import Format
from policytool.formats.keras_metadata import recognition

FORMAT: Final = Format(
    package=__name__,
    document_format="keras-metadata",
    title="a keras_metadata.pb file",
    suffixes=(".pb",),
    recognise=recognition.recognise,
)
