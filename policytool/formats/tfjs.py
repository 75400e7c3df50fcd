"""
TensorFlow.js layers models: a ``model.json`` with a Keras config and a manifest of the tensors,
whose values are in shards next to it.

TensorFlow.js ignores policies: it computes and stores variables in float32. The policies apply if
the converter, ``tensorflowjs`` in Python, builds a Keras model from the file. A rewrite edits the
text of ``model.json`` and keeps the tensors unchanged; a copy in another directory includes copies
of the shards. A new model is a directory with ``model.json`` and the shards, as
``tensorflowjs.converters`` writes it.
"""

from __future__ import annotations

import math
import os
import re
from codecs import BOM_UTF8
from collections import Counter
from dataclasses import replace
from functools import cached_property
from itertools import islice
from pathlib import Path, PureWindowsPath
from typing import TYPE_CHECKING, Final, NoReturn

from msgspec import Struct

from policytool.formats.base import Format, Probe, is_serialised, parse_json, writer_of
from policytool.formats.document import (
    BLOCK,
    Document,
    Layout,
    Observation,
    Tensor,
    ValuesError,
    by_number,
)
from policytool.releases import dtypes
from policytool.support import limits
from policytool.support.errors import ModelFileError
from policytool.support.files import opening
from policytool.support.files.remote_path import RemotePath
from policytool.support.text import jsontext

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from contextlib import ExitStack

    from policytool.formats.casting import Counts
    from policytool.formats.document import Array, Values
    from policytool.formats.edits import Cast, Content, Counted
    from policytool.formats.writers import Changes, Creator, FileChange
    from policytool.support.files.remote_path import AnyPath
    from policytool.support.text.jsontext import Json

_BEGINNING: Final = re.compile(
    rb"""\s*\{\s*"(?:modelTopology|weightsManifest|generatedBy|convertedBy|userDefinedMetadata)"\s*:
       | \s*\{\s*"format"\s*:\s*"(?:layers|graph)-model" """,
    re.VERBOSE,
)
"""The keys that releases of the converter, or of TensorFlow.js, write first."""

PART: Final = "model.json"
MANIFEST: Final = "weightsManifest"
_TOPOLOGY: Final = "modelTopology"
_CONFIG: Final = "model_config"
_TRAINING: Final = "training_config"
_VARS: Final = "vars"

QUANTIZED: Final = "tfjs-quantized"
"""The code of the observation about quantized tensors."""

INCOMPLETE: Final = "tfjs-incomplete"
"""The code of the observation that shards are missing or too short."""


def recognise(probe: Probe) -> bool:
    """Return whether the file begins like a ``model.json``."""
    return _BEGINNING.match(probe.head.removeprefix(BOM_UTF8)) is not None


class TensorLocation(Struct, frozen=True, kw_only=True):
    """The location of a tensor's values."""

    tensor: Tensor
    paths: tuple[str, ...]
    """The shards of the tensor's group, whose bytes are contiguous."""

    offset: int | None
    """The offset of the values in bytes; None after text, because the manifest lacks its length."""

    quantised: bool
    """Whether the values are stored in another dtype than that of the loaded tensor."""


def read(probe: Probe) -> Document:
    """Return the document of a model, without reading the shards."""
    observations: list[Observation] = []
    model = _object(probe, observations)
    document = _document(probe, model, observations)
    about_shards = _about_shards(probe, _groups(probe, model), document.tensors or ())
    return replace(document, observations=(*document.observations, *about_shards))


def _document(
    probe: Probe, model: dict[str, Json], observations: Sequence[Observation] = ()
) -> Document:
    """Return the document of a ``model.json``."""
    topology = model.get(_TOPOLOGY)
    if model.get("format") == "graph-model" or (isinstance(topology, dict) and "node" in topology):
        raise probe.failure(
            "tfjs-graph-model",
            "is a TensorFlow.js graph model, which has ops but no layers or policies; "
            "inspect the model that it was converted from",
        )
    groups = _groups(probe, model)
    tensors = tuple(
        _tensor(probe, entry) for group in groups for entry in _list_at(probe, group, "weights")
    )
    observations = (*observations, *_about_storage(groups, tensors))
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
    Return the paths of the files in a model's manifest, without duplicates; empty for an invalid
    manifest.
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
    Return whether the ``model.json`` next to a file lists the file as a shard; False if
    ``model.json`` cannot be read.
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
    Return whether a shard's path is outside the model's directory on any operating system, or is a
    URL.
    """
    windows_path = PureWindowsPath(path)  # accepts both kinds of slash
    return (
        not windows_path.parts
        or bool(windows_path.anchor)
        or ".." in windows_path.parts
        or ":" in path
        or "\0" in path
    )


def _object(probe: Probe, observations: list[Observation]) -> dict[str, Json]:
    """Return the JSON object in ``model.json``."""
    model = parse_json(
        probe,
        probe.content(limits.JSON_BYTES, "json-limit", "is JSON of").removeprefix(BOM_UTF8),
        "the file",
        observations,
    )
    if not isinstance(model, dict):
        raise probe.failure(
            "tfjs-not-keras",
            "is JSON, but not a TensorFlow.js model; expected an object with "
            "modelTopology and weightsManifest",
        )
    return model


def _groups(probe: Probe, model: dict[str, Json]) -> list[dict[str, Json]]:
    """Return the groups of weights in the manifest, after checking their form."""
    manifest = model.get(MANIFEST, [])
    if not isinstance(manifest, list):
        _refuse(probe)
    groups = [group for group in manifest if isinstance(group, dict)]
    if len(groups) != len(manifest) or not all(
        isinstance(path, str) for group in groups for path in _list_at(probe, group, "paths")
    ):
        _refuse(probe)
    return groups


def _list_at(probe: Probe, group: dict[str, Json], key: str) -> list[Json]:
    entries = group.get(key)
    if not isinstance(entries, list):
        _refuse(probe)
    return entries


def _tensor(probe: Probe, entry: Json) -> Tensor:
    """
    Return the stored tensor of a manifest entry, with the quantised dtype if it has one.
    """
    entry = entry if isinstance(entry, dict) else {}
    name, shape, quantization = entry.get("name"), entry.get("shape"), entry.get("quantization")
    dtype = quantization.get("dtype") if isinstance(quantization, dict) else entry.get("dtype")
    if (
        not isinstance(name, str)
        or not name
        or not isinstance(dtype, str)
        or dtype not in dtypes.NAMES
        or not isinstance(shape, list)
    ):
        _refuse(probe)
    probe.check_limit(
        limits.H5_RANK, len(shape), "json-limit", f"has a tensor in its {MANIFEST} with"
    )
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
    """Yield observations about shards outside of the directory, and about quantized weights."""
    escaping_paths = [path for path in shards({MANIFEST: list(groups)}) if escapes(path)]
    if escaping_paths:
        yield Observation(
            code="escaping-shard",
            message=(
                f"{MANIFEST} refers to {escaping_paths[0]!r}, which is outside the model's "
                "directory and was not read; TensorFlow.js would read it"
            ),
            where=MANIFEST,
        )
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
        yield Observation(
            code=QUANTIZED,
            message=(
                f"{sum(quantised.values())} of {len(tensors)} tensors are stored quantized "
                f"({words}); they become floats when the file is loaded"
            ),
            where=MANIFEST,
        )


def _about_shards(
    probe: Probe, groups: Sequence[dict[str, Json]], tensors: Iterable[Tensor]
) -> Iterator[Observation]:
    """
    Yield an observation if shards are missing or contain fewer bytes than the tensors. At a URL,
    the shards are not looked up; text has an unknown length.
    """
    if isinstance(probe.path, RemotePath):
        return
    remaining = iter(tensors)
    for group in groups:
        own = list(islice(remaining, len(_list_at(probe, group, "weights"))))
        paths = [path for path in _list_at(probe, group, "paths") if isinstance(path, str)]
        files = [probe.path.parent / path for path in paths if not escapes(path)]
        if not own or len(files) < len(paths) or any(map(probe.leads_out, files)):
            continue
        lost = next((file.name for file in files if not opening.is_file(file)), None)
        size = sum(map(opening.file_size, files)) if lost is None else 0
        needed = sum(
            dtypes.itemsize(tensor.dtype) * math.prod(tensor.shape or ()) for tensor in own
        )
        if lost is not None or size < needed:
            defect = (
                f"{lost} is missing"
                if lost is not None
                else f"the shards have {size} bytes, but the manifest declares {needed}"
            )
            yield Observation(
                code=INCOMPLETE,
                message=f"{defect}, so TensorFlow.js cannot load the model",
                where=MANIFEST,
            )


def open_values(probe: Probe, _document: Document, _stack: ExitStack) -> Values:
    """Return the values of a model; its files are opened when values are read."""
    return TfjsValues(probe)


class TfjsValues:
    """The values of one model; a shard is opened when one of its tensors is read."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe

    def blocks(self, tensor: Tensor) -> Iterator[Array]:
        """Yield a tensor's values; see :class:`policytool.formats.document.Values`."""
        place = self._places.get(tensor)
        if place is None:
            raise ValuesError("the file contains no values for this variable")
        if place.quantised:
            raise ValuesError("its values are stored quantized")
        if tensor.dtype == "string" or place.offset is None:
            raise ValuesError("text values, and the values stored after them, cannot be read")
        from policytool.formats.casting import arrays_of_chunks, numpy_dtype  # NumPy

        dtype = numpy_dtype(tensor.dtype)
        try:
            yield from arrays_of_chunks(
                self._bytes(
                    place.paths, place.offset, dtype.itemsize * math.prod(tensor.shape or ())
                ),
                dtype,
            )
        except OSError as error:
            raise ValuesError(f"its shards cannot be read: {error.strerror or error}") from error

    def in_order(self, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """
        Return the tensors in the order of the manifest, which is that of the layer, or sorted by
        number if their names are numbers.
        """
        return (
            by_number(tensors)
            if all(tensor.path[-2:-1] == (_VARS,) for tensor in tensors)
            else tensors
        )

    @cached_property
    def _places(self) -> Mapping[Tensor, TensorLocation]:
        try:
            return {place.tensor: place for place in places(self._probe)}
        except ModelFileError as error:  # the file changed since it was read
            raise ValuesError(error.message) from error

    def _bytes(self, paths: tuple[str, ...], start: int, count: int) -> Iterator[bytes]:
        """
        Yield ``count`` bytes of contiguous shards, a block at a time.

        :raises ValuesError: if a shard is missing or outside the model's directory, or if the
            shards contain fewer bytes.
        """
        for path in paths:
            if not count:
                return
            with opening.regular_stream(self._shard(path)) as stream:
                size = stream.seek(0, os.SEEK_END)
                stream.seek(min(start, size))
                start -= min(start, size)
                while count and (data := stream.read(min(BLOCK, count))):
                    count -= len(data)
                    yield data
        if count:
            raise ValuesError("its shards are shorter than the manifest declares")

    def _shard(self, name: str) -> AnyPath:
        """Return the path of a shard, which must be a file in the model's directory."""
        path = self._probe.path.parent / name
        if escapes(name) or self._probe.leads_out(path):
            raise ValuesError("its shard is outside the model's directory and was not read")
        if not opening.is_file(path):
            raise ValuesError("its shard is missing")
        return path


def file_changes(path: Path, changes: Changes) -> Mapping[str, FileChange]:
    """Return the change to ``model.json``."""
    from policytool.formats.writers import text_change

    _refuse_casts(path, changes.casts)
    return text_change(PART, path, changes)


_SHARD_BYTES: Final = 4 * 2**20
"""The size of a shard, which browsers keep in their caches (``write_weights.py``, tensorflowjs)."""


def creator() -> Creator:
    """Return the creator of new models in this format."""
    from policytool.formats.writers import Creator

    return Creator(main=PART, write=_write, document=_created_document)


def _write(directory: Path, content: Content, values: Values | None) -> Counted:
    """Write ``model.json`` and its shards into an empty directory."""
    from policytool.formats import placed_values  # NumPy
    from policytool.formats.writers import ascii_json

    model = _created_model(content)
    (directory / PART).write_text(ascii_json(model), encoding="ascii")
    counts: dict[tuple[str, ...], Counts] = {}

    def chunks() -> Iterator[bytes]:
        for placement in content.placements:
            for block, cast in placed_values.stored_blocks(placement, values):
                if cast is not None:
                    earlier = counts.get(placement.path)
                    counts[placement.path] = cast if earlier is None else earlier + cast
                yield block.tobytes()

    _write_shards([directory / name for name in shards(model)], chunks())
    return counts


def _write_shards(paths: Sequence[Path], chunks: Iterator[bytes]) -> None:
    """Write bytes into files of the size of a shard, one after another."""
    unwritten = b""
    for path in paths:
        with path.open("xb") as stream:
            room = _SHARD_BYTES
            while room and (unwritten := unwritten or next(chunks, b"")):
                stream.write(unwritten[:room])
                room, unwritten = room - len(unwritten[:room]), unwritten[room:]


def _created_document(content: Content, path: str) -> Document:
    """Return the expected document of the new file."""
    from policytool.formats.writers import read_back

    model = read_back(_created_model(content), PART)
    return _document(Probe(Path(path), path), model if isinstance(model, dict) else {})


def _created_model(content: Content) -> dict[str, Json]:
    """Return the complete content of ``model.json``."""
    size = 0
    weights: list[Json] = []
    for placement in content.placements:
        name = "/".join(placement.path)
        size += (dtypes.itemsize(placement.dtype) or 0) * math.prod(placement.shape)
        weights.append({"name": name, "shape": list(placement.shape), "dtype": placement.dtype})
    count = max(1, math.ceil(size / _SHARD_BYTES))
    paths: list[Json] = [f"group1-shard{number}of{count}.bin" for number in range(1, count + 1)]
    return {
        "format": "layers-model",
        "generatedBy": f"keras v{content.keras_version}",
        "convertedBy": "policytool",
        _TOPOLOGY: {
            "keras_version": content.keras_version,
            "backend": "tensorflow",
            _CONFIG: content.config,
        },
        MANIFEST: [{"paths": paths, "weights": weights}],
    }


def _refuse_casts(path: Path, casts: Sequence[Cast]) -> None:
    from policytool.formats.writing import WriteError  # what writes is imported to write

    if casts:
        raise WriteError(
            "not-rewritable",
            f"the tensors of {path.name} cannot be cast in TensorFlow.js files, but the "
            "plan casts some; run again with --preview",
        )


def companions(path: Path) -> tuple[str, ...]:
    """
    Return the shards that a copy needs, relative to the model's directory.

    :raises WriteError: if a shard is outside the model's directory.
    """
    from policytool.formats.writers import whole_text
    from policytool.formats.writing import WriteError

    try:
        model, _ = jsontext.parse(whole_text(path))
    except jsontext.JsonError as error:
        raise WriteError(
            "source-changed", f"{error}, but was valid before; run again with --preview"
        ) from error
    names = shards(model)
    escaping_name = next((name for name in names if escapes(name)), None)
    if escaping_name is not None:
        raise WriteError(
            "not-rewritable",
            f"refers to {escaping_name!r}, a shard outside its directory that cannot be copied; "
            "write the output to the directory of the model",
        )
    return names


FORMAT: Final = Format(
    package=__name__,
    reader=f"{__name__}:read",
    changes_finder=f"{__name__}:file_changes",
    companions_finder=f"{__name__}:companions",
    creator_maker=f"{__name__}:creator",
    values_opener=f"{__name__}:open_values",
    document_format="tfjs",
    title="TensorFlow.js layers model",
    suffixes=(".json",),
    recognise=recognise,
    names_parts=True,
)
