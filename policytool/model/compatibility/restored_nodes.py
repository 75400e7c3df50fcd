"""
Comparison of the variables that the graph of a SavedModel declares with the entries of its
checkpoint: their presence, shapes and dtypes.

A release creates each object of the graph, also the state of optimizers and metrics if it is loaded
with ``compile=False``, and fails if the checkpoint lacks a value of an object
(``assert_existing_objects_matched`` in tensorflow/python/saved_model/load.py). Measured with
damaged checkpoints in TF 2.3, 2.4, 2.5, 2.9, 2.12, 2.15 and tf_keras 2.21
(tests/compat/test_stored_variables.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.formats.saved_model import DAMAGE, MISSING
from policytool.model.compatibility.expected_variables import shape_text
from policytool.model.model import Cause, Obstacle
from policytool.model.tree import path_of
from policytool.releases.releases import releases_in
from policytool.support.grouping import EachOnce

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from policytool.formats.document import Document, ObjectNode, Tensor
    from policytool.model.tree import Site
    from policytool.model.tree.storage import Placed


WITHOUT_GENERATORS: Final = releases_in("tf2.9")
"""
The releases whose random layers do not restore their generators (``BaseRandomLayer`` in
keras/engine/base_layer.py). TF 2.12 and tf_keras 2.21 fail to load the same damaged SavedModel.
"""


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
