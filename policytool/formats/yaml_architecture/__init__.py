"""Architecture YAML."""

from typing import Final

from policytool.formats.format import Format
from policytool.formats.yaml_architecture import recognition

FORMAT: Final = Format(
    package=__name__,
    document_format="yaml",
    title="architecture YAML",
    suffixes=(".yaml", ".yml"),
    recognise=recognition.recognise,
)
