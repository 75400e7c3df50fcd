"""
TensorFlow.js layers models: a ``model.json`` with a Keras config and a manifest of the tensors,
whose values lie in shards beside it.

TensorFlow.js itself computes in float32 and keeps its variables so, whatever the policies say. They
count again where the converter, ``tensorflowjs`` in Python, builds a Keras model of the file.
"""

from __future__ import annotations

import math
from codecs import BOM_UTF8
from collections import Counter
from dataclasses import dataclass
from pathlib import PureWindowsPath
from typing import TYPE_CHECKING, Final, NoReturn

from policytool.formats.base import Probe, is_serialised, parse_json, writer_of
from policytool.formats.document import Document, Layout, Observation, Tensor
from policytool.formats.tfjs import recognise
from policytool.releases import dtypes
from policytool.support import limits
from policytool.support.errors import ModelFileError
from policytool.support.files import opening

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.support.files.remote_path import AnyPath
    from policytool.support.text.jsontext import Json

PART: Final = "model.json"
MANIFEST: Final = "weightsManifest"
_TOPOLOGY: Final = "modelTopology"
_CONFIG: Final = "model_config"
_TRAINING: Final = "training_config"
_VARS: Final = "vars"
_GRAPH: Final = "graph-model"


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorLocation:
    """Where the values of a tensor lie."""

    tensor: Tensor
    paths: tuple[str, ...]
    """The shards of its group, whose bytes are one after another's continuation."""

    offset: int | None
    """Where its bytes begin in them; None behind text, whose length only the shards know."""

    quantised: bool
    """Whether the values are stored in another dtype than the one whoever loads the file gets."""


def read(probe: Probe) -> Document:
    """Return the document of a model; its shards are not looked at."""
    observations: list[Observation] = []
    model = _object(probe, observations)
    topology = model.get(_TOPOLOGY)
    if model.get("format") == _GRAPH or (isinstance(topology, dict) and "node" in topology):
        raise probe.failure(
            "tfjs-graph-model",
            "is a TensorFlow.js graph model, which has ops but no layers or policies; "
            "inspect the model that it was converted from",
        )
    groups = _groups(probe, model)
    tensors = tuple(
        _tensor(probe, entry) for group in groups for entry in _list_at(probe, group, "weights")
    )
    observations += _about_storage(groups, tensors)
    config = topology.get(_CONFIG, topology) if isinstance(topology, dict) else None
    if topology is not None and not is_serialised(config):
        raise probe.failure(
            "tfjs-not-keras",
            "has a modelTopology without class_name and config; expected a file written by "
            "tensorflowjs.converters.save_keras_model",
        )
    layout = (
        Layout.OBJECT_PATHS
        if any(tensor.path[-2:-1] == (_VARS,) for tensor in tensors)
        else Layout.VARIABLE_NAMES
    )
    if not isinstance(topology, dict):
        return Document(
            path=probe.shown,
            format="weights",
            layout=layout,
            tensors=tensors,
            observations=tuple(observations),
        )
    return Document(
        path=probe.shown,
        format="tfjs",
        parts={PART: model},
        config_part=PART,
        config_pointer=f"/{_TOPOLOGY}/{_CONFIG}" if _CONFIG in topology else f"/{_TOPOLOGY}",
        training_part=PART if _TRAINING in topology else None,
        training_pointer=f"/{_TOPOLOGY}/{_TRAINING}",
        layout=layout,
        tensors=tensors,
        writer=writer_of(topology),
        observations=tuple(observations),
    )


def shards(model: Json) -> tuple[str, ...]:
    """
    Return the paths of the files that a model's manifest names, each once; what is no manifest
    names none.
    """
    groups = model.get(MANIFEST) if isinstance(model, dict) else None
    listed = (
        [group.get("paths") for group in groups if isinstance(group, dict)]
        if isinstance(groups, list)
        else []
    )
    return tuple(
        dict.fromkeys(
            path
            for paths in listed
            if isinstance(paths, list)
            for path in paths
            if isinstance(path, str)
        )
    )


def places(probe: Probe) -> tuple[TensorLocation, ...]:
    """
    Return the location of each tensor's values, in the order of the manifest.

    :raises ModelFileError: for an invalid manifest.
    """
    locations = []
    for group in _groups(probe, _object(probe, [])):
        paths = tuple(path for path in _list_at(probe, group, "paths") if isinstance(path, str))
        offset: int | None = 0
        for entry in _list_at(probe, group, "weights"):
            tensor = _tensor(probe, entry)
            locations.append(
                TensorLocation(
                    tensor=tensor,
                    paths=paths,
                    offset=offset,
                    quantised=isinstance(entry, dict)
                    and isinstance(entry.get("quantization"), dict),
                )
            )
            width = dtypes.itemsize(tensor.dtype)
            offset = (
                offset + width * math.prod(tensor.shape or ())
                if offset is not None and width
                else None
            )
    return tuple(locations)


def is_shard(path: AnyPath) -> bool:
    """
    Return whether a file is one that the ``model.json`` beside it names; one that cannot be read
    names none.
    """
    probe = Probe(path.with_name(PART), PART)
    try:
        return (
            opening.is_file(probe.path)
            and recognise(probe)
            and path.name in shards(_object(probe, []))
        )
    except (ModelFileError, OSError):
        return False


def escapes(path: str) -> bool:
    """
    Return whether a shard's path leads outside the model's directory on any operating system, or is
    a URL.
    """
    windows_path = PureWindowsPath(path)  # takes both kinds of slash
    return (
        not windows_path.parts
        or bool(windows_path.anchor)
        or ".." in windows_path.parts
        or ":" in path
        or "\0" in path
    )


def _object(probe: Probe, observations: list[Observation]) -> dict[str, Json]:
    data = probe.content(limits.JSON_BYTES, "json-limit", "is JSON of")
    model = parse_json(probe, data.removeprefix(BOM_UTF8), "the file", observations)
    if not isinstance(model, dict):
        raise probe.failure(
            "tfjs-not-keras",
            "is JSON, but not a TensorFlow.js model; expected an object with "
            "modelTopology and weightsManifest",
        )
    return model


def _groups(probe: Probe, model: dict[str, Json]) -> list[dict[str, Json]]:
    manifest = model.get(MANIFEST, [])
    if not isinstance(manifest, list):
        _refuse(probe)
    groups = [group for group in manifest if isinstance(group, dict)]
    if len(groups) != len(manifest):
        _refuse(probe)
    for group in groups:
        if not all(isinstance(path, str) for path in _list_at(probe, group, "paths")):
            _refuse(probe)
    return groups


def _list_at(probe: Probe, group: dict[str, Json], key: str) -> list[Json]:
    entries = group.get(key)
    if not isinstance(entries, list):
        _refuse(probe)
    return entries


def _tensor(probe: Probe, entry: Json) -> Tensor:
    """
    Return the tensor of a manifest entry as it is stored: with the quantised dtype if there is one.
    """
    entry = entry if isinstance(entry, dict) else {}
    name, shape, quantization = entry.get("name"), entry.get("shape"), entry.get("quantization")
    dtype = quantization.get("dtype") if isinstance(quantization, dict) else entry.get("dtype")
    if (
        not isinstance(name, str)
        or not name
        or not isinstance(dtype, str)
        or dtype not in dtypes.NAMES
    ):
        _refuse(probe)
    if not isinstance(shape, list):
        _refuse(probe)
    if excess := limits.H5_RANK.exceeded_message(len(shape)):
        raise probe.failure("json-limit", f"has a tensor in its {MANIFEST} with {excess}")
    sizes = [
        size for size in shape if isinstance(size, int) and not isinstance(size, bool) and size >= 0
    ]
    if len(sizes) != len(shape):
        _refuse(probe)
    return Tensor(path=probe.tensor_path(name, "json-limit"), shape=tuple(sizes), dtype=dtype)


def _refuse(probe: Probe) -> NoReturn:
    raise probe.failure(
        "tfjs-manifest",
        f"has an invalid {MANIFEST}; expected groups with paths, and weights with a "
        "name, a shape and a dtype",
    )


def _about_storage(
    groups: list[dict[str, Json]], tensors: tuple[Tensor, ...]
) -> Iterator[Observation]:
    outside = [path for path in shards({MANIFEST: list(groups)}) if escapes(path)]
    if outside:
        message = (
            f"{MANIFEST} refers to {outside[0]!r}, which is outside the model's directory "
            "and was not read; TensorFlow.js would read it"
        )
        yield Observation(code="escaping-shard", message=message, where=MANIFEST)
    entries = [
        entry
        for group in groups
        if isinstance(group_entries := group["weights"], list)
        for entry in group_entries
    ]
    quantised = Counter(
        tensor.dtype
        for entry, tensor in zip(entries, tensors, strict=True)
        if isinstance(entry, dict) and isinstance(entry.get("quantization"), dict)
    )
    if quantised:
        words = ", ".join(f"{count} as {dtype}" for dtype, count in quantised.items())
        message = (
            f"{sum(quantised.values())} of {len(tensors)} tensors are stored quantized "
            f"({words}); they become floats when the file is loaded"
        )
        yield Observation(code="tfjs-quantized", message=message, where=MANIFEST)
