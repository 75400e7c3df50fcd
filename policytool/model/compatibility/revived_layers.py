"""
The layers of a SavedModel that Keras 2 restores without their classes.

If a config names a class or a function that the release does not find, Keras 2 restores the layer
from its traces (``_revive_layer_or_model_from_config`` and ``revive_custom_object`` in
keras/saving/saved_model/load.py, in keras/saving/legacy since TF 2.12). It does so for layers and
models, but not for recurrent layers, and the config of a recurrent layer contains those of its
cells. Models of connected layers are always rebuilt from their configs, which calls their layers: a
traced layer that is called with a mask may have no trace for it. Measured in TF 2.3, 2.4, 2.5, 2.9,
2.12, 2.15 and tf_keras 2.21.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.model.tree import path_of
from policytool.model.tree.site import with_sites_above
from policytool.releases.layer_classes import layer_facts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from policytool.formats.document import Document
    from policytool.model.tree import Site

_TRACED: Final = frozenset({"_tf_keras_layer", "_tf_keras_model", "_tf_keras_network"})
"""
The identifiers in ``revive_custom_object``, without those of inputs, which have no traces, and of
subclasses of Sequential, of which TF 2.4 does not find the names.
"""

_GRAPHS: Final = frozenset({"_tf_keras_network", "_tf_keras_sequential"})
"""The identifiers of models whose layers are connected in the config."""

_CALL: Final = "call_and_return_conditional_losses"
"""The function that Keras 2 calls instead of the code of the layer."""


def paths(document: Document, sites: Sequence[Site]) -> Iterator[str]:
    """Yield the paths of the layers that releases restore from their traces if necessary."""
    graphs = [_identifier(document, site) in _GRAPHS for site in sites]
    in_graph = [site.parent is not None and graphs[site.parent] for site in sites]
    has_masks = any(
        is_called and layer_facts(site.class_name).masks_values(site.config or {})
        for site, is_called in zip(sites, in_graph, strict=True)
    )
    for index, site in enumerate(sites):
        if (has_masks and in_graph[index]) or not _is_traced(document, site):
            continue
        above = [other for other in with_sites_above(sites, index) if not graphs[other]]
        if all(_is_traced(document, sites[other]) for other in above):
            yield path_of(site.names)


def are_called(document: Document, sites: Sequence[Site]) -> Sequence[bool]:
    """
    Return for each layer whether releases call it while they load a SavedModel, as models of
    connected layers do, and the wrappers in them.
    """
    called: list[bool] = []
    for site in sites:
        above = sites[site.parent] if site.parent is not None else None
        called.append(
            above is not None
            and (
                _identifier(document, above) in _GRAPHS
                or (layer_facts(above.class_name).wraps is not None and called[site.parent or 0])
            )
        )
    return called


def has_graphs(document: Document) -> bool:
    """Return whether a SavedModel is or contains a model of connected layers."""
    return any(node.identifier in _GRAPHS for node in document.nodes.values())


def _is_traced(document: Document, site: Site) -> bool:
    """Return whether a layer has traces from which it can be restored."""
    node = document.nodes.get(site.node) if site.node is not None else None
    if node is None or node.identifier not in _TRACED:
        return False
    metadata = document.parts.get(node.part or "")
    functions = {
        function
        for name, keras_api in node.children
        if name == "keras_api" and keras_api in document.nodes
        for function, _ in document.nodes[keras_api].children
    }
    return _CALL in functions and not (
        isinstance(metadata, dict) and metadata.get("must_restore_from_config")
    )


def _identifier(document: Document, site: Site) -> str | None:
    """Return the kind of the object of a layer."""
    node = document.nodes.get(site.node) if site.node is not None else None
    return node.identifier if node is not None else None
