"""SavedModels: the names of their files, and which of them are the model's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.formats.base import ASSETS, Format
from policytool.support.files import opening

if TYPE_CHECKING:
    from pathlib import Path

    from policytool.formats.base import Probe
    from policytool.support.files.remote_path import AnyPath


GRAPH: Final = "saved_model.pb"
TEXT_GRAPH: Final = "saved_model.pbtxt"
SPLIT_GRAPH: Final = "saved_model.cpb"
"""The format of graphs over 2 GiB, from TensorFlow 2.14 on, which is not supported."""

KERAS: Final = "keras_metadata.pb"
KERAS_PREFIX: Final = "_tf_keras_"
CHECKPOINT: Final = ("variables", "variables")
"""The prefix of a SavedModel's checkpoint, below the model's directory."""

DAMAGE: Final = "damaged-checkpoint"
"""The code of the observation about a checkpoint that no release can read."""

MISSING: Final = "missing-shard"
"""The code of the observation that the checkpoint is incomplete."""

SLOTS: Final = "optimizer-slots"
"""The code of the observation that an optimizer has slot variables."""

_OWN_FILES: Final = frozenset({GRAPH, KERAS, TEXT_GRAPH, "fingerprint.pb"})
_OWN_DIRECTORIES: Final = frozenset({CHECKPOINT[0], ASSETS, "assets.extra"})
_DEEPEST: Final = 2
"""
The depth of ``variables/variables.index``. Deeper links stay links, so that no circular link is
followed.
"""


def owns(path: Path) -> bool:
    """
    Return whether a path is a file of a SavedModel, or a file or folder of its variables and
    assets, at most one level deep.
    """
    return (len(path.parts) == 1 and path.name in _OWN_FILES) or (
        len(path.parts) <= _DEEPEST and path.parts[0] in _OWN_DIRECTORIES
    )


def is_without_graph(folder: AnyPath, names: frozenset[str]) -> bool:
    """Return whether a directory contains Keras' metadata and a checkpoint, but no graph."""
    return (
        KERAS in names
        and names.isdisjoint({GRAPH, TEXT_GRAPH})
        and opening.is_file(folder / CHECKPOINT[0] / f"{CHECKPOINT[1]}.index")
    )


def whole(path: AnyPath) -> AnyPath | None:
    """Return the SavedModel that a file is a part of; None for other files."""
    parent = path.parent
    if path.name in _OWN_FILES and opening.is_reachable_file(parent / GRAPH):
        return parent
    if parent.name in _OWN_DIRECTORIES and opening.is_reachable_file(parent.parent / GRAPH):
        return parent.parent
    return None


def recognise(probe: Probe) -> bool:
    """Return whether the directory contains a SavedModel, with or without its graph."""
    return bool({GRAPH, TEXT_GRAPH} & probe.names) or is_without_graph(probe.path, probe.names)


FORMAT: Final = Format(
    package=__name__,
    reader=f"{__name__}.read:read",
    changes_finder=f"{__name__}.rewrite:file_changes",
    values_opener=f"{__name__}.values:open_values",
    document_format="savedmodel",
    title="SavedModel",
    recognise=recognise,
    owns=owns,
    whole=whole,
)
