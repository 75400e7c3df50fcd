"""TensorFlow.js layers models."""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from typing import TYPE_CHECKING, Final

from policytool.formats.base import Format

if TYPE_CHECKING:
    from policytool.formats.base import Probe

_BEGINNING: Final = re.compile(
    rb"""\s*\{\s*"(?:modelTopology|weightsManifest|generatedBy|convertedBy|userDefinedMetadata)"\s*:
       | \s*\{\s*"format"\s*:\s*"(?:layers|graph)-model" """,
    re.VERBOSE,
)
"""The key that any release of the converter, or of TensorFlow.js, writes first."""


def recognise(probe: Probe) -> bool:
    """Return whether the file begins like a ``model.json``."""
    return _BEGINNING.match(probe.head.removeprefix(BOM_UTF8)) is not None


FORMAT: Final = Format(
    package=__name__,
    reader=f"{__name__}.read:read",
    rewriter_maker=f"{__name__}.rewrite:rewriter",
    values_opener=f"{__name__}.values:open_values",
    document_format="tfjs",
    title="TensorFlow.js layers model",
    suffixes=(".json",),
    recognise=recognise,
    names_parts=True,
)
