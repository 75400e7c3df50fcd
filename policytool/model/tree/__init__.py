"""The layers of a document, each once, with the variables that belong to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from policytool.formats import keras_hub
from policytool.formats.document import Address
from policytool.model.tree import configs, objects, storage, stored_layers
from policytool.model.tree.layer_objects import LayerObject, layer_objects
from policytool.model.tree.site import (
    INPUT_CLASS,
    LAYERS,
    MODEL_CLASSES,
    Site,
    Unspelled,
    children_of,
    path_of,
)
from policytool.model.tree.storage import NOT_WEIGHTS, STATE
from policytool.releases.releases import KERAS3

if TYPE_CHECKING:
    from policytool.formats.document import Document
    from policytool.model.tree.storage import Placed
    from policytool.releases.releases import Release


def build(document: Document, release: Release) -> Placed:
    """
    Return the layers of a document with a config, in model order, and their variables.

    :raises SpellingError: if the config is not a serialised model.
    """
    if document.nodes:
        sites = objects.sites(document)
    else:
        part = document.config_part or ""
        sites = configs.sites(
            Address(part=part, pointer=document.config_pointer),
            document.config,
            release.composites,
            keras3=release.family == KERAS3,
        )
    if document.format == keras_hub.FORMAT.document_format:
        sites = stored_layers.with_stored_layers(document, sites)
    return storage.place(document, sites)


__all__ = [
    "INPUT_CLASS",
    "LAYERS",
    "MODEL_CLASSES",
    "NOT_WEIGHTS",
    "STATE",
    "LayerObject",
    "Site",
    "Unspelled",
    "build",
    "children_of",
    "layer_objects",
    "path_of",
]
