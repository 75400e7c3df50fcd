"""
An unpacked ``.keras`` model: the directory that Keras 3.4's ``save(path, zipped=False)`` writes.

Its weights are in one file or in several shards. Each file is rewritten separately.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from policytool.formats import keras_hub
from policytool.formats.base import ASSETS, Format, escaping_asset
from policytool.formats.keras_archive import CONFIG, METADATA, NPZ_SUFFIX, WEIGHTS_SUFFIX
from policytool.support import limits
from policytool.support.files import opening
from policytool.support.files.remote_path import RemotePath

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import ExitStack
    from pathlib import Path

    from policytool.formats.base import Probe
    from policytool.formats.document import Document, Observation, Values
    from policytool.formats.hdf5.rebuild import Rebuild
    from policytool.formats.keras_archive.npz import Arrays
    from policytool.formats.writers import Changes, FileChange
    from policytool.support.files.remote_path import AnyPath

_JSON_FILES: Final = frozenset({CONFIG, METADATA})
"""Files that make a directory an unpacked model. A path to such a file leads to the directory."""


def is_loaded_by(keras_version: str) -> bool:
    """Return whether a version of Keras loads these directories, as Keras 3.4 and later do."""
    parts = keras_version.split(".")[:2]
    return [int(part) for part in parts if part.isdigit()] >= [3, 4]


def recognise(probe: Probe) -> bool:
    """Return whether the directory contains the JSON files of an unpacked model."""
    return probe.names >= _JSON_FILES and not keras_hub.is_preset(probe.path)


def owns(path: Path) -> bool:
    """Return whether a file contains the config, the metadata or weights."""
    return len(path.parts) == 1 and path.name.endswith((".json", WEIGHTS_SUFFIX))


def whole(path: AnyPath) -> AnyPath | None:
    """Return the directory of the model that a file is a part of; None for other files."""
    is_part = path.name in _JSON_FILES or path.name.endswith(WEIGHTS_SUFFIX)
    parent = path.parent
    return (
        parent
        if is_part and all(opening.is_reachable_file(parent / name) for name in sorted(_JSON_FILES))
        else None
    )


def read(probe: Probe) -> Document:
    """Return the document of the directory."""
    from policytool.formats.hdf5 import library as _hdf5  # h5py costs 80 ms at start
    from policytool.formats.keras_archive import read as _keras

    texts = {
        name: probe.content(limits.JSON_BYTES, "json-limit", f"has a {name} of", name)
        for name in (CONFIG, METADATA)
    }
    observations: list[Observation] = []
    parts = _keras.read_parts(probe, texts, observations)
    named = _keras.needs_layer_names(parts)
    weights = []
    for name in sorted(name for name in probe.names if name.endswith(WEIGHTS_SUFFIX)):
        with _hdf5.open_checked(probe, probe.path / name, name) as file:
            weights.append(_hdf5.walk(probe, file, attributes=named))
    return replace(
        _keras.document(
            probe,
            parts,
            weights,
            [*_assets(probe), *observations],
            [
                (name, _arrays(probe, name))
                for name in sorted(probe.names)
                if name.endswith(NPZ_SUFFIX)
            ],
        ),
        config_file=CONFIG,
    )


def _arrays(probe: Probe, name: str) -> Arrays:
    from policytool.formats.keras_archive import npz
    from policytool.formats.keras_archive import read as keras_zip

    with keras_zip.zip_failures(probe), opening.regular_stream(probe.path / name) as stream:
        return npz.read_arrays(probe, stream, name)


def _assets(probe: Probe) -> Iterator[Observation]:
    """
    Yield observations about links from the assets, where Keras reads vocabularies, to paths outside
    the directory.
    """
    if isinstance(probe.path, RemotePath):  # remote paths have no links
        return
    folder = probe.path / ASSETS
    for path in (folder, *sorted(folder.rglob("*"))):
        if path.is_symlink() and probe.leads_out(path):
            yield escaping_asset(
                path.relative_to(probe.path).as_posix(), "is a link to a path outside the model"
            )


def file_changes(path: Path, changes: Changes) -> Mapping[str, FileChange]:
    """Return the changes to files of the directory, JSON and weights, by file name."""
    from policytool.formats.hdf5 import storage
    from policytool.formats.hdf5.rewrite import Hdf5Change
    from policytool.formats.keras_archive import rewrite as _members

    names = [file.name for file in path.iterdir() if file.is_file()]
    texts = _members.text_changes(names, changes)
    rebuilds = _members.member_rebuilds(names, lambda name: storage.reading(path / name), changes)

    def weights_change(rebuild: Rebuild) -> Hdf5Change:
        return Hdf5Change(rebuild=lambda _: rebuild)

    return texts | {name: weights_change(rebuild) for name, rebuild in rebuilds.items()}


def open_values(probe: Probe, document: Document, stack: ExitStack) -> Values:
    """
    Open the values of a directory.

    :raises ModelFileError: if a file of weights is truncated or has a damaged beginning.
    """
    from policytool.formats.hdf5.datasets import open_files

    return open_files(
        probe,
        [
            probe.path / name
            for name in sorted(name for name in probe.names if name.endswith(WEIGHTS_SUFFIX))
        ],
        document,
        stack,
    )


FORMAT: Final = Format(
    package=__name__,
    reader=f"{__name__}:read",
    changes_finder=f"{__name__}:file_changes",
    values_opener=f"{__name__}:open_values",
    document_format="keras",
    title=".keras",
    recognise=recognise,
    owns=owns,
    whole=whole,
)
