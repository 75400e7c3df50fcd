"""
An unpacked ``.keras`` model: the directory that Keras 3.4's ``save(path, zipped=False)`` writes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from policytool.formats.base import ASSETS, escaping_asset
from policytool.formats.keras_archive import file_names
from policytool.formats.keras_archive import parts as _keras
from policytool.support import limits
from policytool.support.files import opening
from policytool.support.files.remote_path import RemotePath

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.formats.base import Probe
    from policytool.formats.document import Document, Observation
    from policytool.formats.keras_archive.npz import Arrays


def read(probe: Probe) -> Document:
    """Return the document of the directory."""
    from policytool.formats.hdf5 import library as _hdf5  # h5py costs 80 ms at start

    texts = {
        name: probe.content(limits.JSON_BYTES, "json-limit", f"has a {name} of", name)
        for name in (file_names.CONFIG, file_names.METADATA)
    }
    observations: list[Observation] = []
    parts = _keras.read_parts(probe, texts, observations)
    named = _keras.needs_layer_names(parts)
    weights = []
    for name in sorted(name for name in probe.names if name.endswith(file_names.WEIGHTS_SUFFIX)):
        with _hdf5.open_checked(probe, probe.path / name, name) as file:
            weights.append(_hdf5.walk(probe, file, attributes=named))
    document = _keras.document(
        probe,
        parts,
        weights,
        [*_assets(probe), *observations],
        [
            (name, _arrays(probe, name))
            for name in sorted(probe.names)
            if name.endswith(file_names.NPZ_SUFFIX)
        ],
    )
    return replace(document, config_file=file_names.CONFIG)


def _arrays(probe: Probe, name: str) -> Arrays:
    from policytool.formats.keras_archive import npz
    from policytool.formats.keras_archive import read as keras_zip

    with keras_zip.zip_failures(probe), opening.regular_stream(probe.path / name) as stream:
        return npz.arrays(probe, stream, name)


def _assets(probe: Probe) -> Iterator[Observation]:
    """
    Yield links among the assets that lead out of the directory: Keras reads vocabularies there.
    """
    if isinstance(probe.path, RemotePath):  # which has no links
        return
    folder = probe.path / ASSETS
    for path in (folder, *sorted(folder.rglob("*"))):
        if path.is_symlink() and probe.leads_out(path):
            name = path.relative_to(probe.path).as_posix()
            yield escaping_asset(name, "is a link to a path outside the model")
