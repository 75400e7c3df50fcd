"""``.keras`` archives."""

from typing import Final

from policytool.formats.format import Format
from policytool.formats.keras_archive import recognition

FORMAT: Final = Format(
    package=__name__,
    document_format="keras",
    title=".keras",
    suffixes=(".keras",),
    recognise=recognition.recognise,
)
