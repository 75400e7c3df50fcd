"""TensorFlow checkpoints."""

from typing import Final

from policytool.formats.checkpoint import recognition
from policytool.formats.format import Format

FORMAT: Final = Format(
    package=__name__,
    document_format="weights",
    title="a weights file",
    recognise=recognition.recognise,
    whole=recognition.whole,
)
