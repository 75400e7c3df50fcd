"""Unpacked ``.keras`` models, which are directories."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.formats.base import Format
from policytool.formats.keras_archive.file_names import CONFIG, METADATA, WEIGHTS_SUFFIX
from policytool.support.files import opening

if TYPE_CHECKING:
    from pathlib import Path

    from policytool.formats.base import Probe
    from policytool.support.files.remote_path import AnyPath

_JSON_FILES: Final = frozenset({CONFIG, METADATA})
"""Files that make a directory an unpacked model; a path to one of them stands for the directory."""


def recognise(probe: Probe) -> bool:
    """Return whether the directory holds the JSON files of an unpacked model."""
    return probe.names >= _JSON_FILES


def owns(path: Path) -> bool:
    """Return whether a file is the config, the metadata or weights."""
    return len(path.parts) == 1 and path.name.endswith((".json", WEIGHTS_SUFFIX))


def whole(path: AnyPath) -> AnyPath | None:
    """Return the directory that a file is a part of; None for a file that is no part of one."""
    is_part = path.name in _JSON_FILES or path.name.endswith(WEIGHTS_SUFFIX)
    parent = path.parent
    return (
        parent
        if is_part and all(opening.is_reachable_file(parent / name) for name in sorted(_JSON_FILES))
        else None
    )


FORMAT: Final = Format(
    package=__name__,
    reader=f"{__name__}.read:read",
    rewriter_maker=f"{__name__}.rewrite:rewriter",
    values_opener=f"{__name__}.values:open_values",
    document_format="keras",
    title=".keras",
    recognise=recognise,
    owns=owns,
    whole=whole,
)
