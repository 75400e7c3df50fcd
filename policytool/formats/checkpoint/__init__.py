"""TensorFlow checkpoints."""

from typing import Final

from policytool.formats.checkpoint import read
from policytool.formats.format import Format

FORMAT: Final = Format(
    package=__name__,
    document_format="weights",
    title="weights alone",
    recognise=read.recognise,
    read=read.read,
    whole=read.whole,
)
