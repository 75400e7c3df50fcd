"""
KerasHub presets: the directory that ``save_to_preset`` writes for a backbone or a task.

``config.json`` has the backbone, which creates its layers itself. The weights files have the names
of these layers: ``model.weights.h5``, or shards with the index ``model.weights.json``, and
``task.weights.h5`` for the layers that ``task.json`` adds.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from msgspec import structs

from policytool.formats import sharded_weights
from policytool.formats.base import HEAD_BYTES, Format, Probe, parse_json
from policytool.formats.document import Observation, by_number
from policytool.formats.keras_archive import CONFIG, METADATA, TASK, WEIGHTS_SUFFIX
from policytool.support import limits
from policytool.support.files import opening
from policytool.support.text.phrases import join_first

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import ExitStack
    from pathlib import Path

    from policytool.formats.document import Array, Document, Tensor, Values
    from policytool.formats.hdf5.library import Contents
    from policytool.formats.writers import Changes, FileChange
    from policytool.support.files.remote_path import AnyPath

TASK_GROUP: Final = "task"
"""The first part of the paths of variables that are in the weights of the task."""

_TOKENIZER: Final = "tokenizer.json"
_CONVERTERS: Final = ("image_converter.json", "audio_converter.json", "video_converter.json")
_PARTS: Final = frozenset({CONFIG, METADATA, TASK, _TOKENIZER, "preprocessor.json", *_CONVERTERS})
_WEIGHTS: Final = f"model{WEIGHTS_SUFFIX}"
_INDEX: Final = f"model{sharded_weights.SUFFIX}"
_TASK_WEIGHTS: Final = f"task{WEIGHTS_SUFFIX}"
_MARKS: Final = {
    CONFIG: (b'"keras_hub', b'"keras_nlp'),
    METADATA: (b'"keras_hub_version"', b'"keras_nlp_version"'),
}
"""What the beginning of a file of a preset contains; the backbone may be a model of Keras."""

LEFT_OVER: Final = "preset-left-over"
"""The code of an observation about files and groups of a preset that KerasHub does not read."""

MISSING: Final = "preset-missing"
"""The code of an observation about files of a preset that KerasHub needs."""


def recognise(probe: Probe) -> bool:
    """Return whether the directory contains a config that KerasHub wrote."""
    return CONFIG in probe.names and is_preset(probe.path)


def is_preset(folder: AnyPath) -> bool:
    """Return whether the beginning of a file in the folder names KerasHub, or its old name."""
    return any(
        mark in opening.read_head(folder / name, HEAD_BYTES)
        for name, marks in _MARKS.items()
        if opening.is_reachable_file(folder / name) and not opening.links_out(folder / name, folder)
        for mark in marks
    )


def owns(path: Path) -> bool:
    """Return whether a file is part of a preset."""
    is_file = len(path.parts) == 1 and path.name.endswith((".json", WEIGHTS_SUFFIX))
    return is_file or path.parts[0] == "assets"


def whole(path: AnyPath) -> AnyPath | None:
    """Return the preset that a file is a part of; None for other files."""
    is_part = path.name in {*_PARTS, _INDEX} or path.name.endswith(WEIGHTS_SUFFIX)
    return path.parent if is_part and is_preset(path.parent) else None


def read(probe: Probe) -> Document:
    """Return the document of the directory."""
    from policytool.formats.hdf5 import library as _hdf5  # h5py costs 80 ms at start
    from policytool.formats.keras_archive import read as _keras

    observations: list[Observation] = []
    texts: dict[str, bytes] = {}
    for name in (CONFIG, METADATA, TASK):
        if name in probe.names:
            _check_inside(probe, name)
            texts[name] = probe.content(limits.JSON_BYTES, "json-limit", f"has a {name} of", name)
    parts = _keras.read_parts(probe, texts, observations)
    weights: dict[str, Contents] = {}
    for path in _weights_paths(probe, observations):
        with _hdf5.open_checked(probe, path, path.name) as file:
            weights[path.name] = _hdf5.walk(probe, file, attributes=True)
    if _TASK_WEIGHTS in weights:
        _move_below_task(weights[_TASK_WEIGHTS])
    observations += _about_files(probe, list(weights))
    observations += _about_shards(probe, weights)
    document = _keras.document(probe, parts, list(weights.values()), observations)
    return replace(document, format=FORMAT.document_format, config_file=CONFIG)


def backbone_paths(probe: Probe) -> Iterator[AnyPath]:
    """
    Yield the paths of the files from which KerasHub loads the backbone.

    :raises ModelFileError: as for :func:`read`.
    """
    for name in (CONFIG, METADATA, *(() if _WEIGHTS in probe.names else (_INDEX,))):
        if name in probe.names:
            _check_inside(probe, name)
            yield probe.path / name
    yield from (path for path in _weights_paths(probe, []) if path.name != _TASK_WEIGHTS)


def weights_path(folder: Path) -> Path:
    """Return the weights file of a backbone: one file, or else the index of shards."""
    return path if (path := folder / _WEIGHTS).exists() else folder / _INDEX


def _check_inside(probe: Probe, name: str) -> None:
    """
    Check that a file is in the directory.

    :raises ModelFileError: if it is a link to a path outside the directory.
    """
    if probe.leads_out(probe.path / name):
        raise probe.failure(
            "escaping-link",
            f"contains {name}, a link to a path outside the preset that was not followed; "
            "replace the link with the file",
        )


def _weights_paths(probe: Probe, observations: list[Observation]) -> Iterator[AnyPath]:
    """
    Yield the paths of the weights files that KerasHub reads.

    :raises ModelFileError: if a file is a link to a path outside the directory, or if the index is
        invalid or refers to a missing shard.
    """
    if _WEIGHTS in probe.names:
        _check_inside(probe, _WEIGHTS)
        yield probe.path / _WEIGHTS
    elif _INDEX in probe.names:
        _check_inside(probe, _INDEX)
        index = Probe(probe.path / _INDEX, f"{probe.shown}/{_INDEX}")
        yield from sharded_weights.shards(index, observations)
    if _TASK_WEIGHTS in probe.names and TASK in probe.names:
        _check_inside(probe, _TASK_WEIGHTS)
        yield probe.path / _TASK_WEIGHTS


def _move_below_task(contents: Contents) -> None:
    """Put the layers of the task below a group, without the optimizer, which is not restored."""
    contents.tensors[:] = [
        structs.replace(tensor, path=(TASK_GROUP, *tensor.path))
        for tensor in contents.tensors
        if tensor.path[0] != "optimizer"
    ]
    names = {f"{TASK_GROUP}/{path}".rstrip("/"): name for path, name in contents.names.items()}
    contents.names.clear()
    contents.names.update(names)


def _about_files(probe: Probe, read_names: list[str]) -> Iterator[Observation]:
    """Yield observations about files that are missing or not read."""
    if METADATA not in probe.names:
        yield Observation(code=MISSING, message=f"it has no {METADATA} with its release")
    if _TOKENIZER in probe.names and "assets" not in probe.names:
        yield Observation(
            code=MISSING,
            message=f"it has {_TOKENIZER}, but no assets with the vocabulary of the tokenizer",
        )
    for name in sorted(probe.names - set(read_names)):
        if name == _INDEX and _WEIGHTS in probe.names:
            reason = f"KerasHub reads {_WEIGHTS} instead"
        elif name == _TASK_WEIGHTS:
            reason = f"it has no {TASK}"
        elif name.endswith(WEIGHTS_SUFFIX):
            reason = f"KerasHub reads {_WEIGHTS if _WEIGHTS in probe.names else _INDEX} instead"
        else:
            continue
        yield Observation(code=LEFT_OVER, message=f"{name} is not read, because {reason}")


def _about_shards(probe: Probe, weights: Mapping[str, Contents]) -> Iterator[Observation]:
    """
    Yield observations about variables for which the index names another shard.

    :raises ModelFileError: if the index names two shards that both store a variable, for which
        Keras fails to load.
    """
    if _WEIGHTS in weights or _INDEX not in probe.names:
        return
    text = probe.content(limits.JSON_BYTES, "json-limit", f"has a {_INDEX} of", _INDEX)
    index = parse_json(probe, text, _INDEX, [])
    mapped = index.get(sharded_weights.MAP) if isinstance(index, dict) else None
    listed = {
        f"{group.strip('/')} in {name}": None
        for group, names in (mapped.items() if isinstance(mapped, dict) else ())
        for name in (names if isinstance(names, list) else [names])
    }
    stored: dict[str, None] = {}
    shards: dict[str, str] = {}
    for name, tensor in (
        (name, tensor)
        for name, contents in weights.items()
        if name != _TASK_WEIGHTS
        for tensor in contents.tensors
    ):
        stored[place := f"{'/'.join(tensor.path[:-1])} in {name}"] = None
        variable = "/".join(tensor.path)
        if place in listed and shards.setdefault(variable, name) != name:
            raise probe.failure(
                "shard-duplicate",
                f"stores {variable} in both {shards[variable]} and {name}; save the preset again",
            )
    if unlisted := [place for place in stored if place not in listed]:
        message = f"{_INDEX} does not list variables of its shards ({join_first(unlisted)})"
        yield Observation(code=LEFT_OVER, message=message)
    if missing := [place for place in listed if place not in stored]:
        message = f"{_INDEX} lists variables that its shards lack ({join_first(missing)})"
        yield Observation(code=MISSING, message=message)


def file_changes(path: Path, changes: Changes) -> Mapping[str, FileChange]:
    """Return the changes to the configs of the backbone and the task, by file name."""
    from policytool.formats.keras_archive import rewrite

    return rewrite.text_changes([file.name for file in path.iterdir()], changes)


def open_values(probe: Probe, document: Document, stack: ExitStack) -> Values:
    """
    Open the values of a preset.

    :raises ModelFileError: if a weights file is missing, truncated, or has a damaged beginning.
    """
    from policytool.formats.hdf5.datasets import open_files

    paths = {path.name: path for path in _weights_paths(probe, [])}
    task = paths.pop(_TASK_WEIGHTS, None)
    return _PresetValues(
        open_files(probe, list(paths.values()), document, stack),
        open_files(probe, [] if task is None else [task], document, stack),
    )


class _PresetValues:
    """The values of the weights of the backbone, and of those of the task."""

    def __init__(self, backbone: Values, task: Values) -> None:
        self._backbone = backbone
        self._task = task

    def blocks(self, tensor: Tensor) -> Iterator[Array]:
        """Yield a tensor's values; see :class:`policytool.formats.document.Values`."""
        if tensor.path[0] == TASK_GROUP:
            return self._task.blocks(structs.replace(tensor, path=tensor.path[1:]))
        return self._backbone.blocks(tensor)

    def in_order(self, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return the tensors by path, in which numbers give the order of the layer's variables."""
        return by_number(tensors)


FORMAT: Final = Format(
    package=__name__,
    reader=f"{__name__}:read",
    changes_finder=f"{__name__}:file_changes",
    values_opener=f"{__name__}:open_values",
    document_format="keras-hub",
    title="KerasHub preset",
    recognise=recognise,
    owns=owns,
    whole=whole,
)
