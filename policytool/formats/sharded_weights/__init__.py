"""Keras weights in several HDF5 files."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from policytool.formats.base import Format
from policytool.support.files import opening

if TYPE_CHECKING:
    from policytool.formats.base import Probe
    from policytool.support.files.remote_path import AnyPath

SUFFIX: Final = ".weights.json"

_HEAD: Final = re.compile(rb'\s*\{\s*("metadata"\s*:\s*\{[^{}]*\}\s*,\s*)?"weight_map"\s*:')
"""How the file begins: Keras writes the total size, then the map."""

_SHARD: Final = re.compile(r"(.+)_\d{5,}\.weights\.h5", re.DOTALL)


def recognise(probe: Probe) -> bool:
    """Return whether the file is JSON that begins with a map of weights."""
    return _HEAD.match(probe.head) is not None


def whole(path: AnyPath) -> AnyPath | None:
    """
    Return the map of the shards that a path is one of, where it lies beside it; None for any other
    path.
    """
    match = _SHARD.fullmatch(path.name)
    if match is None:
        return None
    mapped = path.with_name(match[1] + SUFFIX)
    try:
        return mapped if opening.is_file(mapped) else None
    except OSError:  # the shard stands for itself
        return None


FORMAT: Final = Format(
    package=__name__,
    reader=f"{__name__}.read:read",
    values_opener=f"{__name__}.values:open_values",
    document_format="weights",
    title="a weights file",
    recognise=recognise,
    names_parts=True,
    whole=whole,
    parts_are_models=True,
)
