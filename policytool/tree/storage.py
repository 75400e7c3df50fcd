"""
Which stored variable belongs to which layer.

Each layout names variables in its own way: legacy HDF5 by the layers' names, ``.keras`` by classes and attributes, a SavedModel by edges of the
object graph. What matches no layer below stays with the deepest layer that does match.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from policytool.document import Layout
from policytool.model import Variable
from policytool.tree._site import LAYERS, Site
from policytool.tree.names import snake_case

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from policytool.document import Document, Tensor

_CONTAINERS: Final = (LAYERS, "_layer_checkpoint_dependencies")
"""What Keras 2.15 on, and 2.12 to 2.14, call the group of a model's layers."""

_VARS: Final = "vars"
_SUFFIX: Final = re.compile(r"(?P<base>.*?)(?:_(?P<number>\d+))?")
_NOT_WEIGHTS: Final = frozenset({"optimizer", "metrics"})
Owned = dict[int, list[Variable]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Placed:
    """Sites with the names that storage revealed, and the variables of each."""

    sites: tuple[Site, ...]
    variables: Mapping[int, tuple[Variable, ...]]


def place(document: Document, sites: tuple[Site, ...]) -> Placed:
    """Return the sites and the stored variables of each, by site index."""
    children: dict[int | None, list[int]] = defaultdict(list)
    for index, site in enumerate(sites):
        children[site.parent].append(index)
    if document.layout is Layout.LEGACY_H5:
        sites = _numbered(sites, children, document.tensors or ())
        owned = _by_names(sites, children, document.tensors or ())
    elif document.layout is Layout.OBJECT_PATHS:
        owned = _by_paths(document, sites, children)
    elif document.layout is Layout.GRAPH:
        owned = _by_edges(document, sites)
    else:
        owned = {}
    return Placed(sites=sites, variables={index: tuple(variables) for index, variables in owned.items()})


def _by_names(sites: tuple[Site, ...], children: Mapping[int | None, list[int]], tensors: Iterable[Tensor]) -> Owned:
    """Legacy HDF5: the first component is a layer of the model, the others lead through scopes, the last is the variable."""
    owned: Owned = defaultdict(list)
    top = {sites[index].given_name or sites[index].name: index for index in children[0]} if sites else {}
    for tensor in tensors:
        group, *scopes, name = tensor.path
        index = top.get(group, 0)
        for scope in scopes:
            index = _below(sites, children, index, lambda site, scope=scope: site.name == scope, index)  # type: ignore[misc]
        owned[_holder(sites, children, index)].append(_variable(tensor, name.removesuffix(":0")))
    return owned


def _below(sites: tuple[Site, ...], children: Mapping[int | None, list[int]], start: int, wanted: Callable[[Site], bool], default: int) -> int:
    """Return the first site below ``start`` that is wanted, breadth first."""
    level = list(children.get(start, ()))
    while level:
        for index in level:
            if wanted(sites[index]):
                return index
        level = [grandchild for index in level for grandchild in children.get(index, ())]
    return default


def _holder(sites: tuple[Site, ...], children: Mapping[int | None, list[int]], index: int) -> int:
    """Return who holds the variables of a site whose scope says no more: an RNN's are its cell's, a TimeDistributed's its layer's."""
    while True:
        inner = [child for child in children.get(index, ()) if sites[child].attribute in {"cell", "layer"}]
        if len(inner) != 1 or (sites[inner[0]].attribute == "layer" and sites[index].class_name != "TimeDistributed"):
            return index
        index = inner[0]


def _numbered(sites: tuple[Site, ...], children: Mapping[int | None, list[int]], tensors: Iterable[Tensor]) -> tuple[Site, ...]:
    """Return the sites with the true names of cells, which carry a number (``lstm_cell_3``) that stands in variable names alone."""
    if not any(site.numbered for site in sites):
        return sites
    scopes: dict[str, list[tuple[str, ...]]] = defaultdict(list)
    for tensor in tensors:
        scopes[tensor.path[0]].append(tensor.path[1:-1])
    renamed = list(sites)
    for top in children.get(0, ()):
        below = scopes.get(sites[top].name, ())
        pending = [top]
        while pending:
            index = pending.pop()
            pending += children.get(index, ())
            site = renamed[index]
            if site.parent is not None:
                parent = renamed[site.parent]
                name = _true_name(site, parent.name, below) if site.numbered else site.name
                renamed[index] = replace(site, names=(*parent.names, name))
    return tuple(renamed)


def _true_name(site: Site, parent: str, scopes: Iterable[tuple[str, ...]]) -> str:
    for scope in scopes:
        if parent in scope:
            for candidate in scope[scope.index(parent) + 1 :]:
                match = _SUFFIX.fullmatch(candidate)
                if match and match["base"] in {site.name, snake_case(site.class_name)}:
                    return candidate
    return site.name


def _by_paths(document: Document, sites: tuple[Site, ...], children: Mapping[int | None, list[int]]) -> Owned:
    """``.keras``: the longest path of a site that a variable's path begins with."""
    owned: Owned = defaultdict(list)
    places = _storage_paths(document, sites, children)
    for tensor in document.tensors or ():
        if tensor.path[0] in _NOT_WEIGHTS:
            continue
        end = len(tensor.path)
        while end and tensor.path[:end] not in places:
            end -= 1
        index = places.get(tensor.path[:end], 0)
        name = "/".join(part for part in tensor.path[end:] if part != _VARS)
        owned[index].append(_variable(tensor, name))
    return owned


def _storage_paths(document: Document, sites: tuple[Site, ...], children: Mapping[int | None, list[int]]) -> dict[tuple[str, ...], int]:
    stored = _stored_names(document)
    places: dict[tuple[str, ...], int] = {}
    pending: list[tuple[int, tuple[str, ...]]] = [(0, ())] if sites else []
    while pending:
        index, path = pending.pop()
        places[path] = index
        listed: dict[str, list[int]] = defaultdict(list)
        for child in children.get(index, ()):
            if sites[child].attribute == LAYERS or sites[child].attribute == "cells":
                listed[snake_case(sites[child].class_name)].append(child)
            else:
                pending.append((child, (*path, sites[child].attribute)))
        containers = ("cells",) if sites[index].class_name == "StackedRNNCells" else _CONTAINERS
        for container in containers:
            pending += _members((*path, container), listed, stored)
    return places


def _stored_names(document: Document) -> dict[tuple[str, ...], set[str]]:
    """Return the names directly below each group that leads to a variable."""
    stored: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for tensor in document.tensors or ():
        for end in range(1, len(tensor.path)):
            stored[tensor.path[:end]].add(tensor.path[end])
    return stored


def _members(container: tuple[str, ...], listed: Mapping[str, list[int]], stored: Mapping[tuple[str, ...], set[str]]) -> list[tuple[int, tuple[str, ...]]]:
    """Pair a container's members with the groups they are stored in: by class, and by count within the class."""
    groups: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for name in stored.get(container, ()):
        match = _SUFFIX.fullmatch(name)
        if match:
            groups[match["base"]].append((int(match["number"] or 0), name))
            groups[name].append((0, name))  # a class whose own name ends in a number, such as Block_2
    found: list[tuple[int, tuple[str, ...]]] = []
    for base, members in listed.items():
        numbers = dict(sorted(groups.get(base, ())))
        if container[-1] != LAYERS and len(numbers) == len(members):  # 2.12 and 2.13 count a layer with weights twice
            found += [(member, (*container, name)) for member, name in zip(members, numbers.values(), strict=True)]
            continue
        found += [(member, (*container, numbers[position])) for position, member in enumerate(members) if position in numbers]
    return found


def _by_edges(document: Document, sites: tuple[Site, ...]) -> Owned:
    """SavedModel: variables that a layer's node holds, directly or in a list, each at the first layer that holds it."""
    owned: Owned = defaultdict(list)
    taken: set[int] = set()
    for index in sorted(range(len(sites)), key=lambda index: -len(sites[index].names)):
        node = document.nodes[sites[index].node or 0]
        for label, number in node.children:
            child = document.nodes.get(number)
            if child is not None and child.variable is not None and number not in taken and not label.startswith("_"):
                taken.add(number)
                owned[index].append(_variable(child.variable, label))
    return owned


def _variable(tensor: Tensor, name: str) -> Variable:
    return Variable(name=name, shape=tensor.shape, dtype=tensor.dtype)
