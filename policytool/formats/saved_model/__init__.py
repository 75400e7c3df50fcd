"""SavedModels."""

from typing import Final

from policytool.formats.format import Format
from policytool.formats.saved_model import files, recognition

FORMAT: Final = Format(
    package=__name__,
    document_format="savedmodel",
    title="SavedModel",
    recognise=recognition.recognise,
    owns=files.owns,
    whole=files.whole,
)
