"""
What releases restore from a SavedModel: variables from its checkpoint, and layers from traces.

A release creates each object of the graph, also the state of optimizers and metrics if it is loaded
with ``compile=False``, and fails if the checkpoint lacks a value of an object
(``assert_existing_objects_matched`` in tensorflow/python/saved_model/load.py). Measured with
damaged checkpoints in TF 2.3, 2.4, 2.5, 2.9, 2.12, 2.15 and tf_keras 2.21
(tests/compat/test_stored_variables.py).

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

from policytool.formats.saved_model import DAMAGE, MISSING
from policytool.model.compatibility.expected_variables import shape_text
from policytool.model.model import Cause, Obstacle
from policytool.model.tree import path_of
from policytool.model.tree.site import with_sites_above
from policytool.releases.layer_classes import layer_facts
from policytool.releases.releases import releases_in
from policytool.support.grouping import EachOnce

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from policytool.formats.document import Document, ObjectNode, Tensor
    from policytool.model.tree import Site
    from policytool.model.tree.storage import Placed


WITHOUT_GENERATORS: Final = releases_in("tf2.9")
"""
The releases whose random layers do not restore their generators (``BaseRandomLayer`` in
keras/engine/base_layer.py). TF 2.12 and tf_keras 2.21 fail to load the same damaged SavedModel.
"""

_TRACED: Final = frozenset({"_tf_keras_layer", "_tf_keras_model", "_tf_keras_network"})
"""
The identifiers in ``revive_custom_object``, without those of inputs, which have no traces, and of
subclasses of Sequential, of which TF 2.4 does not find the names.
"""

_GRAPHS: Final = frozenset({"_tf_keras_network", "_tf_keras_sequential"})
"""The identifiers of models whose layers are connected in the config."""

_CALL: Final = "call_and_return_conditional_losses"
"""The function that Keras 2 calls instead of the code of the layer."""


def cause(document: Document, placed: Placed, *, has_generators: bool) -> Cause | None:
    """
    Return the cause why releases do not restore a SavedModel from its checkpoint, or None.

    :param has_generators: whether the generators of random layers are restored
    """
    damage = next((item for item in document.observations if item.code in (DAMAGE, MISSING)), None)
    if damage is not None:
        return Cause(kind=Obstacle.VARIABLES, reason=damage.message.partition(";")[0])
    defects = [
        (node, defect)
        for node, stored in document.restored.items()
        if node in document.nodes and (defect := _defect(document.nodes[node], stored)) is not None
    ]
    if defects and not has_generators:
        generators = set(_generator_nodes(document.nodes))
        defects = [(node, defect) for node, defect in defects if node not in generators]
    if not defects:
        return None
    owners = dict(_owners(placed))
    sites = [owners[node][0] for node, _ in defects if node in owners]
    number, defect = min(defects, key=lambda item: item[0] not in owners)
    site, name = owners.get(number, (None, _variable_name(document.nodes[number])))
    owner = f"{name} of {site.class_name} {site.name}" if site is not None else name
    return Cause(
        kind=Obstacle.VARIABLES,
        reason=f"the variable {owner} {defect}",
        layers=tuple(dict.fromkeys(path_of(site.names) for site in sites)),
        class_name=site.class_name if site is not None else None,
    )


def _generator_nodes(nodes: Mapping[int, ObjectNode]) -> Iterator[int]:
    """Yield the objects of the generators of random layers."""
    walk = EachOnce(
        child
        for node in nodes.values()
        for name, child in node.children
        if name == "_random_generator"
    )
    for number in walk:
        if number in nodes:
            yield number
            walk.add(child for _, child in nodes[number].children)


def _owners(placed: Placed) -> Iterator[tuple[int, tuple[Site, str]]]:
    """Yield the node of each variable of a layer, with the layer and the name of the variable."""
    for index, site in enumerate(placed.sites):
        for name, tensor in placed.named_tensors(index):
            if tensor.node is not None:
                yield tensor.node, (site, name)


def _defect(node: ObjectNode, stored: Tensor | None) -> str | None:
    """Return what prevents an object from being restored, as the end of a sentence; or None."""
    if stored is None:
        return "is not stored"
    declared = node.variable
    if declared is None:
        return None
    if declared.shape is not None and not _fits(declared.shape, stored.shape):
        return (
            f"has the shape {shape_text(declared.shape)}, but {shape_text(stored.shape or ())} is "
            "stored"
        )
    if declared.dtype != stored.dtype:
        return f"has the dtype {declared.dtype}, but {stored.dtype} is stored"
    return None


def _fits(declared: tuple[int, ...], stored: tuple[int, ...] | None) -> bool:
    """Return whether a value has the declared shape; a negative size is unknown."""
    return stored is None or (
        len(declared) == len(stored)
        and all(size in (-1, actual) for size, actual in zip(declared, stored, strict=True))
    )


def _variable_name(node: ObjectNode) -> str:
    return "/".join(node.variable.path) if node.variable is not None else f"of object {node.id}"


def traced_paths(document: Document, sites: Sequence[Site]) -> Iterator[str]:
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
