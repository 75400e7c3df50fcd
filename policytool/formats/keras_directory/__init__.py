"""Unpacked ``.keras`` models, which are directories."""

from typing import Final

from policytool.formats.format import Format
from policytool.formats.keras_directory import recognition

FORMAT: Final = Format(
    package=__name__,
    document_format="keras",
    title=".keras",
    recognise=recognition.recognise,
    owns=recognition.owns,
    whole=recognition.whole,
)
