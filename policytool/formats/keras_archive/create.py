"""
``.keras`` archives: ``metadata.json``, ``config.json`` and ``model.weights.h5``, none of them
compressed.

Source: keras/src/saving/saving_lib.py, ``_save_model_to_fileobj`` and ``H5IOStore``.
"""

from __future__ import annotations

import math
import zipfile
from typing import TYPE_CHECKING, Final

from policytool.formats.document import Document, Layout, Tensor, Writer
from policytool.formats.keras_archive import CONFIG, METADATA, WEIGHTS_SUFFIX
from policytool.formats.keras_archive import read as layout
from policytool.formats.writers import Creator, ascii_json, flat, read_back, walk_order
from policytool.releases import dtypes

if TYPE_CHECKING:
    from pathlib import Path

    from policytool.formats.document import Values
    from policytool.formats.edits import Content, Counted, Placement
    from policytool.formats.hdf5.groups import Attributes
    from policytool.support.text.jsontext import Json

_WEIGHTS: Final = f"model{WEIGHTS_SUFFIX}"
_NO_DATE: Final = "1980-01-01@00:00:00"
"""
The default of ``date_saved``, which Keras' KerasFileEditor requires. It equals the date of the
members, so that the same input gives the same file.
"""


def write(draft: Path, content: Content, values: Values | None) -> Counted:
    """Write a model into an empty draft."""
    from policytool.formats.keras_archive import rewrite as _archive

    with draft.open("r+b") as stream, zipfile.ZipFile(stream, "w") as archive:
        archive.writestr(zipfile.ZipInfo(METADATA), ascii_json(_metadata(content)))
        archive.writestr(zipfile.ZipInfo(CONFIG), ascii_json(content.config))
        with _archive.new_member(
            archive, stream, zipfile.ZipInfo(_WEIGHTS), _value_bytes(content)
        ) as start:
            return _write_weights(draft, content, values, start=start)


def unpack(folder: Path, content: Content, values: Values | None) -> Counted:
    """Write the members of an archive into an empty directory, without their checksums."""
    (folder / METADATA).write_text(ascii_json(_metadata(content)))
    (folder / CONFIG).write_text(ascii_json(content.config))
    weights = folder / _WEIGHTS
    weights.touch()
    return _write_weights(weights, content, values)


def _write_weights(path: Path, content: Content, values: Values | None, start: int = 0) -> Counted:
    from policytool.formats.hdf5 import groups as _hdf5

    placements = (("/", placement) for placement in _placements(content))
    return _hdf5.write_variables(path, _attributes(content), placements, values, start=start)


def _value_bytes(content: Content) -> int:
    """Return the number of bytes of all values."""
    return sum(
        math.prod(placement.shape) * dtypes.itemsize(placement.dtype)
        for placement in _placements(content)
    )


def document(content: Content, path: str) -> Document:
    """Return the document of the new file."""
    parts = {
        CONFIG: read_back(content.config, CONFIG),
        METADATA: read_back(_metadata(content), METADATA),
    }
    names = {
        "/".join(flat(group.path)[:-1]): group.name
        for group in content.groups
        if group.name is not None
    }
    return Document(
        path=path,
        format="keras",
        parts=parts,
        config_part=CONFIG,
        layout=Layout.OBJECT_PATHS,
        tensors=walk_order(
            Tensor(path=flat(placement.path), shape=placement.shape, dtype=placement.dtype)
            for placement in _placements(content)
        ),
        layer_names=names if layout.needs_layer_names(parts) else {},
        writer=Writer(keras=content.keras_version or None),
    )


def check(draft: Path, content: Content) -> None:
    """
    Check the groups of layers, including layers without variables, and the names in the groups.

    :raises WriteError: if they differ from the planned groups and names.
    """
    from policytool.formats.hdf5 import groups as _hdf5
    from policytool.formats.keras_archive import rewrite as _archive

    with (
        _archive.open_archive(draft) as (_, archive),
        _archive.open_weights(archive, draft, archive.getinfo(_WEIGHTS), draft) as opened,
    ):
        _hdf5.check(opened.root, _attributes(content))


def _attributes(content: Content) -> Attributes:
    return [(group.path, {"name": group.name}) for group in content.groups]


def _placements(content: Content) -> tuple[Placement, ...]:
    return (*content.placements, *content.state)


def _metadata(content: Content) -> Json:
    version: dict[str, Json] = (
        {"keras_version": content.keras_version} if content.keras_version else {}
    )
    return version | {"date_saved": _NO_DATE} | dict(content.spelled)


def creator() -> Creator:
    """Return the creator of new models in this format."""
    return Creator(write=write, unpack=unpack, document=document, check=check)
