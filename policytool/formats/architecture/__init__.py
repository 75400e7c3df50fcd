"""Architecture JSON."""

from typing import Final

from policytool.formats.architecture import recognition
from policytool.formats.format import Format

FORMAT: Final = Format(
    package=__name__,
    document_format="json",
    title="architecture JSON",
    suffixes=(".json",),
    recognise=recognition.recognise,
)
