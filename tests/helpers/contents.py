"""Contents for tests: those of files that are there already, and small ones."""

from __future__ import annotations

import io
import zipfile
from typing import TYPE_CHECKING, Any

import h5py

from policytool.formats import format_detection
from policytool.formats.edits import Content, Placement, StoredGroup
from policytool.formats.hdf5.library import attribute_names

if TYPE_CHECKING:
    from pathlib import Path

    from policytool.formats.document import Document, Tensor


def placed(tensor: Tensor, below: int = 0, **more: Any) -> Placement:
    """Return the placement of a tensor where it is, its path without the first ``below`` steps."""
    return Placement(
        **{
            "path": tensor.path[below:],
            "shape": tensor.shape or (),
            "dtype": tensor.dtype,
            "source": tensor,
            **more,
        }
    )


def copy_of(path: Path) -> tuple[Document, Content]:
    """Return the document of a file, and the content of which the same file is made."""
    document = format_detection.document(path, path.name)
    match document.format:
        case "h5":
            return document, _hdf5(path, document)
        case "keras":
            return document, _keras(path, document)
        case _:
            return document, Content(container="json", config=document.config)


def _hdf5(path: Path, document: Document) -> Content:
    with h5py.File(path) as file:
        weights = file["model_weights"]
        names = [
            *attribute_names(weights.id, "layer_names"),
            *(["top_level_model_weights"] if "top_level_model_weights" in weights else []),
        ]
        groups = tuple(
            StoredGroup(path=(name,), names=attribute_names(weights[name].id, "weight_names"))
            for name in names
        )
        state_names = (
            attribute_names(file["optimizer_weights"].id, "weight_names")
            if "optimizer_weights" in file
            else ()
        )
    return Content(
        container="h5",
        config=document.config,
        training=document.training,
        keras_version=document.writer.keras or "",
        groups=groups,
        placements=tuple(placed(tensor) for tensor in document.tensors or ()),
        state=tuple(placed(tensor, 1) for tensor in document.state),
        state_names=state_names,
    )


def _keras(path: Path, document: Document) -> Content:
    groups: list[StoredGroup] = []
    with (
        zipfile.ZipFile(path) as archive,
        h5py.File(io.BytesIO(archive.read("model.weights.h5"))) as file,
    ):
        file.visititems(
            lambda name, item: (
                groups.append(StoredGroup(path=(name,), name=item.attrs.get("name")))
                if isinstance(item, h5py.Group)
                else None
            )
        )
    metadata: Any = document.parts["metadata.json"]
    return Content(
        container="keras",
        config=document.config,
        keras_version=document.writer.keras or "",
        groups=tuple(groups),
        placements=tuple(placed(tensor) for tensor in document.tensors or ()),
        spelled={key: value for key, value in metadata.items() if key != "keras_version"},
    )
