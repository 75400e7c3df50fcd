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
"""How TensorFlow 2.14 on can write a graph of more than 2 GiB, which is not read here."""

KERAS: Final = "keras_metadata.pb"
KERAS_PREFIX: Final = "_tf_keras_"
CHECKPOINT: Final = ("variables", "variables")
"""Where the checkpoint of a SavedModel lies: its prefix, below the model's directory."""

_OWN_FILES: Final = frozenset({GRAPH, KERAS, TEXT_GRAPH, "fingerprint.pb"})
_OWN_DIRECTORIES: Final = frozenset({CHECKPOINT[0], ASSETS, "assets.extra"})
_DEEPEST: Final = 2
"""
``variables/variables.index``: a link any deeper stays one, and so no circle of links is followed.
"""


def owns(path: Path) -> bool:
    """
    Return whether it is one of a SavedModel's files, or a file or folder of its variables and
    assets, linked at one level at the most.
    """
    return (len(path.parts) == 1 and path.name in _OWN_FILES) or (
        len(path.parts) <= _DEEPEST and path.parts[0] in _OWN_DIRECTORIES
    )


def is_without_graph(folder: AnyPath, names: frozenset[str]) -> bool:
    """Return whether a directory holds Keras' metadata and a checkpoint, but no graph."""
    return (
        KERAS in names
        and names.isdisjoint({GRAPH, TEXT_GRAPH})
        and opening.is_file(folder / CHECKPOINT[0] / f"{CHECKPOINT[1]}.index")
    )


def whole(path: AnyPath) -> AnyPath | None:
    """Return the SavedModel that a file is a part of; None for a file that is no part of one."""
    parent = path.parent
    if path.name in _OWN_FILES and opening.is_reachable_file(parent / GRAPH):
        return parent
    if parent.name in _OWN_DIRECTORIES and opening.is_reachable_file(parent.parent / GRAPH):
        return parent.parent
    return None


def recognise(probe: Probe) -> bool:
    """Return whether the directory holds a SavedModel's graph, or all but that."""
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
