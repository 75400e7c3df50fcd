"""What a ``.keras`` archive and its unpacked directory have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

from policytool.formats.base import Probe, parse_json
from policytool.formats.document import Document, Layout, Observation, Tensor, Writer
from policytool.formats.keras_archive.file_names import CONFIG, METADATA
from policytool.releases import keras_objects
from policytool.releases.layer_classes import layer_facts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from policytool.formats.hdf5.library import Contents
    from policytool.formats.keras_archive.npz import Arrays
    from policytool.support.text.jsontext import Json


def read_parts(
    probe: Probe, texts: dict[str, bytes], observations: list[Observation]
) -> dict[str, Json]:
    """Return the JSON of a model's members by their names."""
    if CONFIG not in texts:
        raise probe.failure(
            "no-config",
            f"has no {CONFIG}; expected a .keras model, which contains {CONFIG}, {METADATA} "
            "and model.weights.h5",
        )
    return {name: parse_json(probe, text, name, observations) for name, text in texts.items()}


def needs_layer_names(parts: Mapping[str, Json]) -> bool:
    """Return whether the config does not list the layers of the model."""
    config = parts[CONFIG]
    return (
        isinstance(config, dict) and not layer_facts(str(keras_objects.class_of(config))).is_model
    )


def document(
    probe: Probe,
    parts: Mapping[str, Json],
    weights: Sequence[Contents],
    observations: list[Observation],
    arrays: Sequence[tuple[str, Arrays]] = (),
) -> Document:
    """
    Return the document of one model.

    :param parts: its JSON parts by name
    :param weights: the contents of its HDF5 weights files
    :param arrays: its weights in NumPy's format, with the names of the files
    """
    metadata = parts.get(METADATA)
    version = metadata.get("keras_version") if isinstance(metadata, dict) else None
    tensors: list[Tensor] = []
    names: dict[str, str] = {}
    for contents in weights:
        tensors += contents.tensors
        names |= contents.names
        observations += contents.observations
    if arrays:
        from policytool.formats.keras_archive import npz  # NumPy costs 60 ms at start

        observations += npz.observations(arrays, read_by_keras=not weights)
        tensors += (
            ()
            if weights
            else [tensor for _, file_arrays in arrays for tensor in file_arrays.tensors]
        )
    known = bool(weights) or not any(file_arrays.pickles for _, file_arrays in arrays)
    return Document(
        path=probe.shown,
        format="keras",
        parts=parts,
        config_part=CONFIG,
        layout=Layout.OBJECT_PATHS,
        tensors=tuple(tensors) if known else None,
        layer_names=names,
        writer=Writer(keras=version if isinstance(version, str) else None),
        observations=tuple(observations),
    )
