"""SavedModels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.formats.base import Format
from policytool.formats.saved_model import files
from policytool.formats.saved_model.files import (
    GRAPH,
    TEXT_GRAPH,
    is_without_graph,
)

if TYPE_CHECKING:
    from policytool.formats.base import Probe


def recognise(probe: Probe) -> bool:
    """Return whether the directory holds a SavedModel's graph, or all but that."""
    return bool({GRAPH, TEXT_GRAPH} & probe.names) or is_without_graph(probe.path, probe.names)


FORMAT: Final = Format(
    package=__name__,
    reader=f"{__name__}.read:read",
    rewriter_maker=f"{__name__}.rewrite:rewriter",
    values_opener=f"{__name__}.values:open_values",
    document_format="savedmodel",
    title="SavedModel",
    recognise=recognise,
    owns=files.owns,
    whole=files.whole,
)
