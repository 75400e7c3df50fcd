"""
Keras' weights in shards (3.10 on): ``NAME.weights.json``, which maps variables to shards, and the
HDF5 files ``NAME_00000.weights.h5``, ... next to it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from policytool.formats.base import Format, parse_json
from policytool.formats.document import Document, Layout, Observation, Tensor
from policytool.support import limits, steps
from policytool.support.files import opening

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import ExitStack

    from policytool.formats.base import Probe
    from policytool.formats.document import Values
    from policytool.support.files.remote_path import AnyPath
    from policytool.support.text.jsontext import Json

SUFFIX: Final = ".weights.json"

_HEAD: Final = re.compile(rb'\s*\{\s*("metadata"\s*:\s*\{[^{}]*\}\s*,\s*)?"weight_map"\s*:')
"""The beginning of the file: Keras writes the total size, then the map."""

_SHARD: Final = re.compile(r"(.+)_\d{5,}\.weights\.h5", re.DOTALL)

MAP: Final = "weight_map"
SHARD_SUFFIX: Final = ".weights.h5"


def recognise(probe: Probe) -> bool:
    """Return whether the file is JSON that begins with a map of weights."""
    return _HEAD.match(probe.head) is not None


def map_name(shard: str) -> str | None:
    """Return the name of the weight map from which Keras reads a shard; None for another name."""
    match = _SHARD.fullmatch(shard)
    return match[1] + SUFFIX if match is not None else None


def whole(path: AnyPath) -> AnyPath | None:
    """
    Return the weight map of a shard, if the map is next to the shard; None for any other path.
    """
    name = map_name(path.name)
    if name is None:
        return None
    mapped = path.with_name(name)
    try:
        return mapped if opening.is_file(mapped) else None
    except OSError:  # read the shard itself
        return None


def read(probe: Probe) -> Document:
    """Return the document of all shards together."""
    from policytool.formats.hdf5 import library as _hdf5  # h5py costs 80 ms at start

    observations: list[Observation] = []
    tensors: list[Tensor] = []
    names: dict[str, str] = {}
    for path in shards(probe, observations):
        with _hdf5.open_checked(probe, path, path.name) as file:
            contents = _hdf5.walk(probe, file, attributes=True)
        tensors += contents.tensors
        names.update(contents.names)
        observations += contents.observations
    return Document(
        path=probe.shown,
        format="weights",
        layout=Layout.OBJECT_PATHS,
        tensors=tuple(tensors),
        layer_names=names,
        observations=tuple(observations),
    )


def shards(probe: Probe, observations: list[Observation]) -> Iterator[AnyPath]:
    """
    Yield the paths of the shards, which are files next to the map.

    :raises ModelFileError: if the map is invalid, or if a shard is missing or in another directory.
    """
    for name in _names(
        probe,
        parse_json(
            probe,
            probe.content(limits.JSON_BYTES, "json-limit", "is JSON of"),
            "the file",
            observations,
        ),
    ):
        yield _beside(probe, name)


def _names(probe: Probe, value: Json) -> list[str]:
    """
    Return the names of the shards without duplicates, in the order of the map. The variables of one
    group can be in several shards.
    """
    mapped = value.get(MAP) if isinstance(value, dict) else None
    if not isinstance(mapped, dict):
        raise probe.failure(
            "json-not-keras",
            f"is JSON with a {MAP} that is not an object; expected a file written by "
            f"model.save_weights('NAME{SUFFIX}')",
        )
    steps.spend(len(mapped), walk="shards of weights")
    shard_names: dict[str, None] = {}
    for names in mapped.values():
        for name in names if isinstance(names, list) else [names]:
            if not isinstance(name, str) or not name.endswith(SHARD_SUFFIX):
                raise probe.failure(
                    "json-not-keras",
                    f"is a weight map that does not list Keras shards: it refers to {name!r}; "
                    f"expected names such as NAME_00000{SHARD_SUFFIX}",
                )
            shard_names[name] = None
    probe.check_limit(limits.WEIGHTS_SHARDS, len(shard_names), "h5-limit", "stores its weights in")
    return list(shard_names)


def _beside(probe: Probe, name: str) -> AnyPath:
    """
    Return the path of a shard.

    :raises ModelFileError: unless the shard is a file next to the map, and not a link to another
        directory.
    """
    path = probe.path.with_name(name) if not {"/", "\\"} & set(name) else None
    if path is None or opening.links_beside(path):
        raise probe.failure(
            "escaping-link",
            (f"refers to the shard {name}, which is outside its directory and was not read"),
        )
    if not opening.is_file(path):
        raise probe.failure(
            "shard-missing",
            f"refers to the missing shard {name}; copy it to the same directory",
        )
    return path


def open_values(probe: Probe, document: Document, stack: ExitStack) -> Values:
    """
    Open the values of all shards together.

    :raises ModelFileError: if a shard is missing, in another directory, or has a damaged beginning.
    """
    from policytool.formats.hdf5.datasets import open_files

    return open_files(probe, list(shards(probe, [])), document, stack)


FORMAT: Final = Format(
    package=__name__,
    reader=f"{__name__}:read",
    values_opener=f"{__name__}:open_values",
    document_format="weights",
    title="a weights file",
    recognise=recognise,
    names_parts=True,
    whole=whole,
    parts_are_models=True,
)
