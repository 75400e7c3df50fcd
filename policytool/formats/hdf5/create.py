"""
Creation of complete models in HDF5, in the layout of Keras 2's ``save_model_to_hdf5``, which all
releases read.

Source: tensorflow/python/keras/saving/hdf5_format.py (TF 2.4),
keras/src/legacy/saving/legacy_h5_format.py (Keras 3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.formats.document import Document, Layout, Tensor, Writer
from policytool.formats.hdf5 import read as layout
from policytool.formats.hdf5.library import Contents
from policytool.formats.writers import Creator, ascii_json, flat, read_back
from policytool.formats.writing import WriteError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from policytool.formats.document import Values
    from policytool.formats.edits import Content, Counted, Placement
    from policytool.formats.hdf5.groups import Attributes

_BACKEND: Final = "backend"
_TENSORFLOW: Final = "tensorflow"
_WEIGHT_NAMES: Final = "weight_names"
_TOP_LEVEL: Final = "top_level_model_weights"
"""The group of variables that belong to the model and not to a layer (Keras 2.9 on)."""


def write(draft: Path, content: Content, values: Values | None) -> Counted:
    """Write a model into an empty draft."""
    from policytool.formats.hdf5 import groups as _hdf5  # NumPy dtypes, which no document needs

    _refuse_unreadable(content)
    return _hdf5.write_variables(draft, _attributes(content), _placements(content), values)


def document(content: Content, path: str) -> Document:
    """Return the expected document of the new file."""
    parts = {layout.CONFIG: read_back(content.config, layout.CONFIG)}
    if content.training is not None:
        parts[layout.TRAINING] = read_back(content.training, layout.TRAINING)
    tensors = [
        Tensor(path=(prefix, *flat(placement.path)), shape=placement.shape, dtype=placement.dtype)
        for prefix, placement in _placements(content)
    ]
    orders = {(layout.WEIGHTS, *flat(group.path)): tuple(group.names) for group in content.groups}
    if content.state_names:
        orders[layout.OPTIMIZER,] = tuple(content.state_names)
    contents = Contents(tensors=tensors, orders=orders)
    return Document(
        path=path,
        format="h5",
        parts=parts,
        config_part=layout.CONFIG,
        training_part=layout.TRAINING if content.training is not None else None,
        layout=Layout.LEGACY_H5,
        tensors=layout.legacy_tensors(contents, (layout.WEIGHTS,)),
        state=layout.stored_state(contents),
        writer=Writer(keras=content.keras_version or None, backend=_TENSORFLOW),
    )


def check(draft: Path, content: Content) -> None:
    """
    Check the names by which releases find layers and their variables, and the writer in the groups.

    :raises WriteError: if they differ from the planned names and writer.
    """
    from policytool.formats.hdf5 import groups as _hdf5
    from policytool.formats.hdf5 import storage

    with storage.reading(draft) as opened:
        _hdf5.check(opened.root, _attributes(content))


def _attributes(content: Content) -> Attributes:
    """Return the groups with their attributes, including the writer, which releases check."""
    writer: dict[str, bytes | tuple[str, ...]] = {_BACKEND: _TENSORFLOW.encode()}
    if content.keras_version:
        writer = {"keras_version": content.keras_version.encode("ascii"), **writer}
    root = {**writer, layout.CONFIG: ascii_json(content.config).encode()}
    if content.training is not None:
        root[layout.TRAINING] = ascii_json(content.training).encode()
    weights = {**writer, layout.LAYER_NAMES: _layer_names(content)}
    state = [((layout.OPTIMIZER,), {_WEIGHT_NAMES: content.state_names})]
    return [
        ((), root),
        ((layout.WEIGHTS,), weights),
        *(
            ((layout.WEIGHTS, *group.path), {_WEIGHT_NAMES: group.names})
            for group in content.groups
        ),
        *(state if content.state or content.state_names else ()),
    ]


def _layer_names(content: Content) -> tuple[str, ...]:
    return tuple("/".join(group.path) for group in content.groups if group.path != (_TOP_LEVEL,))


def _placements(content: Content) -> Iterator[tuple[str, Placement]]:
    yield from ((layout.WEIGHTS, placement) for placement in content.placements)
    yield from ((layout.OPTIMIZER, placement) for placement in content.state)


def _refuse_unreadable(content: Content) -> None:
    """Reject content with dtypes that no release reads from HDF5."""
    from policytool.formats.hdf5 import groups as _hdf5

    for _, placement in _placements(content):
        if placement.dtype in _hdf5.OPAQUE:
            raise WriteError(
                "not-rewritable",
                f"{'/'.join(placement.path)} cannot be stored as {placement.dtype}: no "
                "release can read this dtype from HDF5",
            )


def creator() -> Creator:
    """Return the creator of new models in this format."""
    return Creator(state_group=(layout.OPTIMIZER,), write=write, document=document, check=check)
