"""
Architectures and weights in separate files, read as one model.

Variables of HDF5 weights belong to the layers with the same names, in the same order. If the names
differ, layers are matched by position, as ``load_weights`` of Keras does. Other weights have paths
from which their layers follow. In any case, each stored variable must belong to a layer, and each
layer must have the variables of its class.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from msgspec import structs

from policytool.formats import TITLES, WITHOUT_WEIGHTS, orbax
from policytool.formats.document import Layout, SeparateWeights, Tensor
from policytool.formats.hdf5.read import TOP_LEVEL
from policytool.model import custom_classes, reading, writer_version
from policytool.model.model import Obstacle
from policytool.model.tree import LAYERS
from policytool.releases.releases import LOADERS
from policytool.support import steps
from policytool.support.errors import ModelFileError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from policytool.formats.document import Document, Writer
    from policytool.model.loaded_model import LoadedModel
    from policytool.support.files.remote_path import AnyPath

MISMATCH: Final = "weights-mismatch"
"""The code of weights that do not fit an architecture."""

_FORMATS: Final = {
    Layout.LEGACY_H5: "h5",
    Layout.OBJECT_PATHS: "keras",
    Layout.SCOPES: "h5",
}
"""The format of a model whose variables have the names of a layout."""

_ARCHITECTURES: Final = frozenset({"json", "yaml", "tfjs"})
"""The formats of architectures; a TensorFlow.js model may lack weights."""


def load_model(architecture: Document, weights: Document, path: AnyPath) -> LoadedModel:
    """
    Return the model of an architecture with the weights at ``path``.

    :raises UsageError: if the architecture has its own weights.
    :raises ModelFileError: if a file is not of the expected kind, or if the weights do not fit the
        architecture.
    """
    _check_kinds(architecture, weights)
    return _joined(architecture, weights, path)


def fits(architecture: Document, weights: Document, path: AnyPath) -> LoadedModel | None:
    """
    Return the model of an architecture with the weights at ``path``; None if they do not fit. If
    the architecture has its own weights, they are ignored.

    :raises ModelFileError: if the budget of steps is spent.
    """
    if weights.layout not in _FORMATS or not weights.tensors:
        return None
    try:
        return _joined(architecture, weights, path)
    except ModelFileError as error:
        if error.code == steps.CODE:
            raise
        return None


def _joined(architecture: Document, weights: Document, path: AnyPath) -> LoadedModel:
    """
    Return the model of an architecture with the weights at ``path``.

    :raises ModelFileError: if the weights do not fit the architecture.
    """
    renamed = _with_names_of_layers(architecture, weights)
    joined_document = replace(
        architecture,
        format=_FORMATS[weights.layout or Layout.SCOPES],
        layout=weights.layout,
        local_path=None,
        tensors=tuple(tensor for tensor, _ in renamed),
        state=(),
        unlisted=weights.unlisted,
        listed_layers=(),
        missing=weights.missing,
        weights=SeparateWeights(
            path=path,
            document=weights,
            architecture=architecture.format,
            originals={tensor.path: original for tensor, original in renamed},
        ),
        adapted={
            tensor: weights.adapted[original]
            for tensor, original in renamed
            if original in weights.adapted
        },
        writer=_writer(architecture, weights),
        observations=(*architecture.observations, *weights.observations),
    )
    loaded = reading.load_model(joined_document)
    _check_fit(loaded, weights)
    return loaded


def is_bare(architecture: Document) -> bool:
    """Return whether a document is an architecture without weights of its own."""
    return architecture.format in _ARCHITECTURES and not architecture.tensors


def _check_kinds(architecture: Document, weights: Document) -> None:
    """
    Check that the files are an architecture and weights.

    :raises UsageError: if the architecture has its own weights.
    :raises ModelFileError: if the weights have no variables of layers, or belong to a SavedModel.
    """
    if not is_bare(architecture):
        raise UsageError(
            "separate weights are only for architectures (JSON, YAML), but "
            f"{architecture.path} has its own weights"
        )
    if weights.format in WITHOUT_WEIGHTS:
        raise ModelFileError(
            weights.path,
            "no-weights",
            f"is {TITLES[weights.format]}, which contains no weights",
        )
    if weights.layout not in _FORMATS:
        raise ModelFileError(
            weights.path,
            "not-migratable",
            "contains weights that cannot be joined with an architecture; specify HDF5, a .keras "
            "file or a checkpoint",
        )
    if weights.tensors is None:
        raise ModelFileError(weights.path, "no-weights", "contains no weights of layers")


def _writer(architecture: Document, weights: Document) -> Writer:
    """
    Return the versions that the architecture records, or otherwise those of the weights, if such
    releases write the architecture.
    """
    if architecture.writer.keras is not None:
        return architecture.writer
    traits = writer_version.of(architecture.config, architecture.training, ())
    _, contradiction = writer_version.candidates(weights.writer, traits)
    return architecture.writer if contradiction else weights.writer


def _with_names_of_layers(
    architecture: Document, weights: Document
) -> tuple[tuple[Tensor, Tensor], ...]:
    """
    Return the stored variables, each with the names of the architecture's layers and unchanged.

    :raises ModelFileError: if the layers cannot be matched.
    """
    tensors = weights.tensors or ()
    if weights.layout is not Layout.LEGACY_H5:
        return tuple(
            (tensor, tensor) for tensor in tensors if not _is_seed_of_scopes(tensor, weights)
        )
    listed = _filled_layers(weights)
    model = reading.load_model(architecture)
    top = [index for index in model.children[0] if model.sites[index].attribute == LAYERS]
    names = [model.sites[index].name for index in top]
    if set(listed) <= set(names):
        _check_order(listed, [name for name in names if name in set(listed)], weights)
        return tuple((tensor, tensor) for tensor in tensors)
    expected = model.stored.layers_with_variables()
    if expected is None or len(expected) != len(listed):
        other = next(name for name in listed if name not in names)
        raise ModelFileError(
            weights.path,
            MISMATCH,
            f"contains the variables of the layer {other}, which the architecture lacks",
        )
    new_names = {
        tuple(old.split("/")): tuple(model.sites[index].name.split("/"))
        for old, index in zip(listed, expected, strict=True)
    }
    return tuple((_renamed(tensor, new_names), tensor) for tensor in tensors)


def _is_seed_of_scopes(tensor: Tensor, weights: Document) -> bool:
    """
    Return whether a variable is the state of a random generator in an Orbax checkpoint, whose name
    does not contain that of its layer.
    """
    return weights.layout is Layout.SCOPES and tensor.path[-1] == orbax.SEED


def _filled_layers(weights: Document) -> list[str]:
    """Return the layers that HDF5 weights list and for which they store variables, in order."""
    longest = max((name.count("/") + 1 for name in weights.listed_layers), default=1)
    starts = {
        tensor.path[:end] for tensor in weights.tensors or () for end in range(1, longest + 1)
    }
    return [name for name in weights.listed_layers if tuple(name.split("/")) in starts]


def _check_order(listed: Sequence[str], expected: Sequence[str], weights: Document) -> None:
    """
    Check that layers have the same order in both files, in which Keras restores them.

    :raises ModelFileError: if they have not.
    """
    for stored, name in zip(listed, expected, strict=True):
        if stored != name:
            raise ModelFileError(
                weights.path,
                MISMATCH,
                f"lists the layer {stored} in the place of {name}: the weights belong to a model "
                "with another order of layers",
            )


def _renamed(tensor: Tensor, new_names: Mapping[tuple[str, ...], tuple[str, ...]]) -> Tensor:
    """Return a variable with the new name of its layer."""
    for end in range(len(tensor.path), 0, -1):
        new = new_names.get(tensor.path[:end])
        if new is not None:
            return structs.replace(tensor, path=(*new, *tensor.path[end:]))
    return tensor


def _check_fit(loaded: LoadedModel, weights: Document) -> None:
    """
    Check that each variable belongs to a layer, and that each layer has its variables.

    :raises ModelFileError: if the weights do not fit.
    """
    path, root = loaded.document.path, loaded.sites[0]
    if custom_classes.is_opaque(root):
        raise ModelFileError(
            path,
            "not-migratable",
            f"has the custom class {root.class_name}, whose config lists no layers to which the "
            "weights can belong; build the model in Python, and call load_weights",
        )
    unplaced = [
        tensor
        for tensor in loaded.placed.tensors.get(0, ())
        if tensor.path not in weights.unlisted and tensor.path[0] != TOP_LEVEL
    ]
    if unplaced:
        raise ModelFileError(
            weights.path,
            MISMATCH,
            f"stores the variable {'/'.join(unplaced[0].path)}, which belongs to no layer of "
            f"{path}",
        )
    causes = [loaded.stored.cause(loader) for loader in LOADERS]  # also if they fail anyway
    reasons = [cause.reason for cause in causes if cause and cause.kind is Obstacle.VARIABLES]
    if len(reasons) == len(causes):
        raise ModelFileError(weights.path, MISMATCH, f"does not fit {path}: {reasons[-1]}")
