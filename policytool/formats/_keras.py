"""What a ``.keras`` archive and its unpacked directory have in common: the names of their files, and the document made of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.document import Document, Layout, Observation, Tensor, Writer
from policytool.formats._base import Probe, parse_json

if TYPE_CHECKING:
    from collections.abc import Iterable

    from policytool.formats._hdf5 import Contents
    from policytool.jsontext import Json

CONFIG: Final = "config.json"
METADATA: Final = "metadata.json"
WEIGHTS_SUFFIX: Final = ".weights.h5"
"""``model.weights.h5``, or the shards ``model_00000.weights.h5``, ... that Keras 3.10 on can write."""


def document(probe: Probe, texts: dict[str, bytes], weights: Iterable[Contents], observations: list[Observation]) -> Document:
    """Return the document of one model from its JSON members and the walks through its weights files."""
    if CONFIG not in texts:
        raise probe.failure("no-config", f"has no {CONFIG}: expected a .keras model, which holds {CONFIG}, {METADATA} and model.weights.h5")
    parts: dict[str, Json] = {name: parse_json(probe, text, name, observations) for name, text in texts.items()}
    metadata = parts.get(METADATA)
    version = metadata.get("keras_version") if isinstance(metadata, dict) else None
    tensors: list[Tensor] = []
    for contents in weights:
        tensors += contents.tensors
        observations += contents.observations
    return Document(
        path=probe.shown,
        format="keras",
        parts=parts,
        config_part=CONFIG,
        layout=Layout.OBJECT_PATHS,
        tensors=tuple(tensors),
        writer=Writer(keras=version if isinstance(version, str) else None),
        observations=tuple(observations),
    )
