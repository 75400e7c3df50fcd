"""``.keras`` archives, and the names of the files in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.formats.base import Format

if TYPE_CHECKING:
    from policytool.formats.base import Probe


SIGNATURES: Final = (b"PK\x03\x04", b"PK\x05\x06")


def recognise(probe: Probe) -> bool:
    """Return whether the file begins like a zip archive."""
    return probe.head.startswith(SIGNATURES)


FORMAT: Final = Format(
    package=__name__,
    reader=f"{__name__}.read:read",
    changes_finder=f"{__name__}.rewrite:file_changes",
    creator_maker=f"{__name__}.create:creator",
    values_opener=f"{__name__}.read:open_values",
    document_format="keras",
    title=".keras",
    suffixes=(".keras",),
    recognise=recognise,
)


CONFIG: Final = "config.json"
METADATA: Final = "metadata.json"
TASK: Final = "task.json"
"""The task of a KerasHub preset, which contains the backbone of its ``config.json`` again."""

WEIGHTS_SUFFIX: Final = ".weights.h5"
"""
``model.weights.h5``, or the shards ``model_00000.weights.h5``, ... that Keras 3.10 on can write.
"""

NPZ_SUFFIX: Final = ".weights.npz"
"""``model.weights.npz``, which Keras reads if there is no ``model.weights.h5``."""
