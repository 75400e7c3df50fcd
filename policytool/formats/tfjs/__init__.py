"""TensorFlow.js layers models."""

from typing import Final

from policytool.formats.format import Format
from policytool.formats.tfjs import recognition

FORMAT: Final = Format(
    package=__name__,
    document_format="tfjs",
    title="TensorFlow.js layers model",
    suffixes=(".json",),
    recognise=recognition.recognise,
    names_parts=True,
)
