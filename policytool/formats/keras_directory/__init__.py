"""Unpacked ``.keras`` models, which are directories."""

from typing import Final

from policytool.formats.format import Format
from policytool.formats.keras_directory import read

FORMAT: Final = Format(
    package=__name__,
    document_format="keras",
    title=".keras",
    recognise=read.recognise,
    read=read.read,
    owns=read.owns,
    whole=read.whole,
)
