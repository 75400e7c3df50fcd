"""
The assignment of stored variables to layers.

The names of variables depend on the layout: legacy HDF5 uses the names of layers, ``.keras``
classes and attributes, and a SavedModel the edges of the object graph. A variable belongs to the
deepest layer that matches its name.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from policytool.formats.document import Layout
from policytool.model.model import Variable
from policytool.model.tree.site import BOOKKEEPING, CONTAINERS, LAYERS, Site, children_of
from policytool.releases.keras_objects import USUAL_VARIABLES, snake_case
from policytool.releases.layer_classes import layer_facts
from policytool.support import limits, steps
from policytool.support.errors import LimitError
from policytool.support.grouping import group_pairs

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

    from policytool.formats.document import Document, Tensor

DEPENDENCIES: Final = "_layer_checkpoint_dependencies"
_CONTAINERS: Final = (LAYERS, DEPENDENCIES)
"""The names of the group of a model's layers in Keras 2.15 and later, and in 2.12 to 2.14."""

COUNTED_ONCE: Final = 1
COUNTED_TWICE: Final = 2
"""The step by which TF 2.12 and 2.13 count the layers with weights of a class in that group."""

VARS: Final = "vars"
_SUFFIX: Final = re.compile(r"(?P<base>.*?)(?:_(?P<number>\d+))?")
_ADAPTED: Final = frozenset({"mean", "variance", "count"})
STATE: Final = "optimizer"
"""The group at the root with the variables of the optimizer."""

NOT_WEIGHTS: Final = frozenset({STATE, "metrics"})
"""Groups at the root without variables of layers."""

Owned = dict[int, list[tuple[Variable, "Tensor"]]]
"""By site index, each variable with the stored tensor it was read from."""


@dataclass(frozen=True, kw_only=True)
class Placed:
    """Sites with their names completed from the stored variables, and the variables of each."""

    sites: tuple[Site, ...]
    variables: Mapping[int, tuple[Variable, ...]]
    """The variables of each layer by site index, each once."""

    tensors: Mapping[int, tuple[Tensor, ...]]
    """The tensors of each layer by site index, including all copies for a shared layer."""

    sources: Mapping[int, tuple[Tensor, ...]]
    """The tensor from which each variable in ``variables`` was read, by site index."""

    @cached_property
    def children(self) -> Mapping[int | None, Sequence[int]]:
        """The indices of the sites directly below each site."""
        return children_of(self.sites)

    def named_tensors(self, index: int) -> Iterator[tuple[str, Tensor]]:
        """Yield the name of each variable of a layer, with the stored tensor of its value."""
        pairs = zip(self.variables.get(index, ()), self.sources.get(index, ()), strict=True)
        return ((variable.name, tensor) for variable, tensor in pairs)


NO_VARIABLES: Final = Placed(sites=(), variables={}, tensors={}, sources={})
"""The result for a file without a config."""


def place(document: Document, sites: tuple[Site, ...]) -> Placed:
    """Return the sites and the stored variables of each, by site index."""
    children = children_of(sites)
    if document.layout in {Layout.LEGACY_H5, Layout.SCOPES}:
        sites = _with_cell_names(sites, children, document.tensors or ())
        owned = _by_names(sites, children, document.tensors or ())
    elif document.layout is Layout.VARIABLE_NAMES:
        grouped = tuple(
            replace(tensor, path=(tensor.path[0], *tensor.path))
            for tensor in document.tensors or ()
        )  # HDF5 stores them in the group of a layer
        sites = _with_cell_names(sites, children, grouped)
        pairs_by_site = _by_names(sites, children, grouped)
        owned = {
            index: [(variable, replace(tensor, path=tensor.path[1:])) for variable, tensor in pairs]
            for index, pairs in pairs_by_site.items()
        }
    elif document.layout is Layout.OBJECT_PATHS:
        owned = _by_paths(document, sites, children)
    elif document.layout is Layout.GRAPH:
        owned = _by_edges(document, sites)
    else:
        owned = {}
    tensors = {index: tuple(tensor for _, tensor in pairs) for index, pairs in owned.items()}
    distinct_variables = {
        index: _distinct_variables(pairs, sites[index]) for index, pairs in owned.items()
    }
    return Placed(
        sites=sites,
        variables={
            index: tuple(variable for variable, _ in pairs)
            for index, pairs in distinct_variables.items()
        },
        tensors=tensors,
        sources={
            index: tuple(tensor for _, tensor in pairs)
            for index, pairs in distinct_variables.items()
        },
    )


def _distinct_variables(
    pairs: list[tuple[Variable, Tensor]], site: Site
) -> list[tuple[Variable, Tensor]]:
    """
    Return the variables of a site, each once; legacy HDF5 stores those of a shared layer at each of
    its places.
    """
    if not site.also_at:
        return pairs
    first: dict[Variable, Tensor] = {}
    for variable, tensor in pairs:
        first.setdefault(variable, tensor)
    return list(first.items())


def _by_names(
    sites: tuple[Site, ...], children: Mapping[int | None, Sequence[int]], tensors: Iterable[Tensor]
) -> Owned:
    """
    Assign variables by name, for legacy HDF5 and TF 1 graphs. A path starts with a layer of the
    model, continues with scopes, and ends with the name of the variable.
    """
    owned: Owned = defaultdict(list)
    children = _with_shared(sites, children)
    below = _Below(sites, children)
    top = (
        {tuple(sites[index].name.split("/")): index for index in children[0]} if sites else {}
    )  # a "/" in a name creates a separate group
    longest = min(
        1 + max((site.name.count("/") for site in sites), default=0), limits.SCOPE_DEPTH.value
    )
    for tensor in tensors:
        end = next(
            (
                end
                for end in range(min(longest, len(tensor.path) - 1), 0, -1)
                if tensor.path[:end] in top
            ),
            0,
        )
        index, scopes = top.get(tensor.path[:end], 0), tensor.path[end:-1]
        name = tensor.path[-1].removesuffix(":0")
        index = _deepest(below, index, scopes, longest) if scopes else below.by_prefix(index, name)
        owned[_owner_below(below, index, name)].append((_variable(tensor, name), tensor))
    return owned


def _with_shared(
    sites: tuple[Site, ...], children: Mapping[int | None, Sequence[int]]
) -> dict[int | None, list[int]]:
    """Return the children of each site; a shared layer is a child of each of its parents."""
    by_names = {site.names: index for index, site in enumerate(sites)}
    children_by_parent = defaultdict(
        list, {parent: list(below) for parent, below in children.items()}
    )
    for index, site in enumerate(sites):
        for names in site.also_at:
            parent = by_names.get(names[:-1])
            if parent is not None:
                children_by_parent[parent].append(index)
    return children_by_parent


@dataclass(slots=True)
class _Below:
    """Finds the sites below a site; results are cached."""

    sites: tuple[Site, ...]
    children: Mapping[int | None, Sequence[int]]
    _names: dict[int, dict[str, int]] = field(default_factory=dict)
    _prefixes: dict[int, dict[str, int]] = field(default_factory=dict)
    _adapted: dict[int, list[int]] = field(default_factory=dict)
    _inner: dict[int, list[int]] = field(default_factory=dict)

    def first(self, start: int, name: str) -> int | None:
        """Return the first site with this name below ``start``, breadth first."""
        if start not in self._names:
            index_by_name: dict[str, int] = {}
            for index in self.all(start):
                index_by_name.setdefault(self.sites[index].name, index)
            self._names[start] = index_by_name
        return self._names[start].get(name)

    def by_prefix(self, start: int, name: str) -> int:
        """
        Return the site below ``start`` with the longest name that is a prefix of the variable name;
        ``start`` if there is none. Keras 1 writes no scopes.
        """
        if start not in self._prefixes:
            index_by_name: dict[str, int] = {}
            pending = list(self.children.get(start, ()))
            while pending:
                index = pending.pop()
                pending += self.children.get(index, ())
                index_by_name.setdefault(self.sites[index].name, index)
            self._prefixes[start] = index_by_name
        known = self._prefixes[start]
        ends = [end for end, character in enumerate(name) if end and character == "_"]
        return next((known[name[:end]] for end in reversed(ends) if name[:end] in known), start)

    def adapting_layers(self, start: int) -> list[int]:
        """Return the layers below a site whose ``adapt`` creates variables without a scope."""
        if start not in self._adapted:
            self._adapted[start] = [
                index
                for index in self.all(start)
                if layer_facts(self.sites[index].class_name).adapts_statistics
            ]
        return self._adapted[start]

    def inner(self, index: int) -> list[int]:
        """Return the layers or cells in a wrapper."""
        if index not in self._inner:
            self._inner[index] = [
                child
                for child in self.children.get(index, ())
                if self.sites[child].attribute in {"cell", "layer"}
            ]
        return self._inner[index]

    def all(self, start: int) -> list[int]:
        """Return all sites below ``start``, each once, breadth first."""
        descendants = dict.fromkeys(self.children.get(start, ()))
        pending = deque(descendants)
        while pending:
            for child in self.children.get(pending.popleft(), ()):
                if child not in descendants:
                    descendants[child] = None
                    pending.append(child)
        steps.spend(1 + len(descendants), walk="layers below layers")
        return list(descendants)


def _deepest(below: _Below, start: int, scopes: tuple[str, ...], longest: int) -> int:
    """
    Return the deepest site below ``start`` in the scopes of a variable. Scopes that are not the
    name of a layer are skipped.
    """
    index, position = start, 0
    while position < len(scopes):
        for length in range(min(longest, len(scopes) - position), 0, -1):
            name = "/".join(scopes[position : position + length])
            child = below.first(index, name)
            if child is not None:
                index = child
                break
        else:
            length = 1
        position += length
    return index


def _owner_below(below: _Below, index: int, name: str) -> int:
    """
    Return the owner of a variable whose deepest scope is the site ``index``.

    A variable of an RNN belongs to its cell, and of a TimeDistributed to its layer. For other
    wrappers, variables with usual names belong to the layer in it, and others, such as ``vector_u``
    of SpectralNormalization, to the wrapper. The variables of ``Normalization.adapt`` have no
    scope: they belong to the only such layer of a model.
    """
    sites = below.sites
    if sites[index].is_model and name in _ADAPTED:
        adapted = below.adapting_layers(index)
        return adapted[0] if len(adapted) == 1 else index
    while True:
        inner = below.inner(index)
        if len(inner) != 1:
            return index
        is_own_variable = (
            sites[inner[0]].attribute == "layer"
            and layer_facts(sites[index].class_name).wraps != "steps"
            and name not in USUAL_VARIABLES
        )
        if is_own_variable:
            return index
        index = inner[0]


def _with_cell_names(
    sites: tuple[Site, ...], children: Mapping[int | None, Sequence[int]], tensors: Iterable[Tensor]
) -> tuple[Site, ...]:
    """
    Return the sites with the actual names of cells, which end in a number (``lstm_cell_3``) that
    only the names of variables contain.
    """
    if not any(site.numbered for site in sites):
        return sites
    scopes = group_pairs((tensor.path[0], tensor.path[1:-1]) for tensor in tensors)
    renamed = list(sites)
    for top in children.get(0, ()):
        numbered = _NumberedNames(scopes.get(sites[top].name, ()))
        pending = [top]
        while pending:
            index = pending.pop()
            pending += children.get(index, ())
            site = renamed[index]
            if site.parent is not None:
                parent = renamed[site.parent]
                name = numbered.of(site, parent.name) if site.numbered else site.name
                renamed[index] = replace(site, names=(*parent.names, name))
    return tuple(renamed)


class _NumberedNames:
    """Finds numbered names in scopes; each scope is searched only once for each parent."""

    def __init__(self, scopes: Iterable[tuple[str, ...]]) -> None:
        self._scopes: dict[str, list[tuple[str, ...]]] = defaultdict(list)
        """The scopes that contain each name."""

        for scope in dict.fromkeys(scopes):
            steps.spend(len(scope), walk="scopes of cells")
            for name in dict.fromkeys(scope):
                self._scopes[name].append(scope)
        self._below: dict[str, dict[str, tuple[int, str]]] = {}

    def of(self, site: Site, parent: str) -> str:
        """Return the first numbered name of a site below a parent, or otherwise the site's name."""
        if parent not in self._below:
            self._below[parent] = self._first_names(parent)
        known = self._below[parent]
        matches = [
            known[base] for base in (site.name, snake_case(site.class_name)) if base in known
        ]
        return min(matches)[1] if matches else site.name

    def _first_names(self, parent: str) -> dict[str, tuple[int, str]]:
        """Return, by name without number, the first name with a number and its position."""
        first_names: dict[str, tuple[int, str]] = {}
        for scope in self._scopes.get(parent, ()):
            steps.spend(len(scope), walk="scopes of cells")
            for name in scope[scope.index(parent) + 1 :]:
                if match := _SUFFIX.fullmatch(name):
                    first_names.setdefault(match["base"], (len(first_names), name))
        return first_names


def _by_paths(
    document: Document, sites: tuple[Site, ...], children: Mapping[int | None, Sequence[int]]
) -> Owned:
    """Assign variables in ``.keras``: to the site with the longest path that is a prefix."""
    owned: Owned = defaultdict(list)
    index_by_path = _storage_paths(document, sites, children)
    for tensor in document.tensors or ():
        if tensor.path[0] in NOT_WEIGHTS:
            continue
        end = len(tensor.path)
        while end and tensor.path[:end] not in index_by_path:
            end -= 1
        index = index_by_path.get(tensor.path[:end], 0)
        name = "/".join(part for part in tensor.path[end:] if part != VARS)
        owned[index].append((_variable(tensor, name), tensor))
    return owned


def _storage_paths(
    document: Document, sites: tuple[Site, ...], children: Mapping[int | None, Sequence[int]]
) -> dict[tuple[str, ...], int]:
    """Return the layer of each place in a ``.keras`` archive at which variables can be stored."""
    named = {site.stored: index for index, site in enumerate(sites) if site.stored is not None}
    if named:
        return named
    stored = _stored_names(document)
    elsewhere = _stored_elsewhere(sites)
    index_by_path: dict[tuple[str, ...], int] = {}
    pending: list[tuple[int, tuple[str, ...]]] = [(0, ())] if sites else []
    while pending:
        index, path = pending.pop()
        index_by_path[path] = index
        listed: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        for child in children.get(index, ()):
            site = sites[child]
            if site.listed:
                listed[site.attribute][snake_case(site.class_name)].append(child)
            elif (*path, site.attribute) in stored or sites[index].parent is not None:
                pending.append((child, (*path, site.attribute)))
            else:
                # Keras 2 stores what a subclassed model's attributes hold by class, below its
                # layers
                listed[LAYERS][snake_case(site.class_name)].append(child)
        for attribute, by_class in listed.items():
            for container in _CONTAINERS if attribute == LAYERS else (attribute,):
                pending += _members(
                    (*path, container), by_class, stored, elsewhere[sites[index].names]
                )
    return index_by_path


def _stored_elsewhere(sites: Iterable[Site]) -> dict[tuple[str, ...], set[str]]:
    """
    Return the classes of shared layers that each model lists, but whose variables another model
    stores: Keras counts them in the names of groups.
    """
    classes: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for site in sites:
        for names in site.also_at:
            classes[names[:-1]].add(snake_case(site.class_name))
    return classes


def _stored_names(document: Document) -> dict[tuple[str, ...], set[str]]:
    """Return the names directly below each group that leads to a variable."""
    stored: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for tensor in document.tensors or ():
        for end in range(1, len(tensor.path)):
            stored[tensor.path[:end]].add(tensor.path[end])
    return stored


def dependency_steps(document: Document) -> frozenset[int] | None:
    """
    Return the steps in which the names of layers of one class are numbered in the archive layout of
    TF 2.12 to 2.14; None if the document has no variables in this layout.

    TF 2.12 and 2.13 count each layer with weights twice (``dense``, ``dense_2``), and TF 2.14
    counts it once (``dense``, ``dense_1``). The set is empty if no class has several layers.
    """
    if document.layout is not Layout.OBJECT_PATHS:
        return None
    numbers: dict[tuple[tuple[str, ...], str], set[int]] = defaultdict(set)
    for tensor in document.tensors or ():
        for position, name in enumerate(tensor.path[:-1]):
            match = _SUFFIX.fullmatch(tensor.path[position + 1])
            if name == DEPENDENCIES and match:
                key = tensor.path[:position], match["base"]
                numbers[key].add(int(match["number"] or 0))
    if not numbers:
        return None
    ordered = [sorted(known) for known in numbers.values()]
    return frozenset(after - before for known in ordered for before, after in pairwise(known))


def _members(
    container: tuple[str, ...],
    listed: Mapping[str, list[int]],
    stored: Mapping[tuple[str, ...], set[str]],
    elsewhere: Container[str],
) -> list[tuple[int, tuple[str, ...]]]:
    """
    Return the members of a container with their stored groups, which match by class and by the
    number within the class.

    :param elsewhere: the classes that also have members whose groups are in another container
    """
    groups: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for name in stored.get(container, ()):
        match = _SUFFIX.fullmatch(name)
        if match:
            groups[match["base"]].append((int(match["number"] or 0), name))
            groups[name].append(
                (0, name)
            )  # a class whose own name ends in a number, such as Block_2
    pairs: list[tuple[int, tuple[str, ...]]] = []
    for base, members in listed.items():
        numbers = dict(sorted(groups.get(base, ())))
        # TF 2.12 and 2.13 count a layer with weights twice
        are_spaced = container[-1] == DEPENDENCIES or base in elsewhere
        if are_spaced and len(numbers) == len(members):
            pairs += [
                (member, (*container, name))
                for member, name in zip(members, numbers.values(), strict=True)
            ]
            continue
        pairs += [
            (member, (*container, numbers[position]))
            for position, member in enumerate(members)
            if position in numbers
        ]
    return pairs


def _by_edges(document: Document, sites: tuple[Site, ...]) -> Owned:
    """
    Assign variables in a SavedModel: to the deepest layer whose node contains the variable,
    directly or in a list or dict.
    """
    yielded: set[int] = set()
    return group_pairs(
        (index, (_variable(variable, label), variable))
        for index in sorted(range(len(sites)), key=lambda index: -len(sites[index].names))
        for label, variable in _variable_edges(document, sites[index].node or 0, yielded)
    )


def _variable_edges(
    document: Document, start: int, yielded: set[int]
) -> Iterator[tuple[str, Tensor]]:
    """
    Yield the variables of a node with the attribute of each; the bookkeeping lists of Keras are
    skipped.

    :param yielded: the variables, lists and dicts that were already yielded for other nodes; those
        of this node are added
    :raises LimitError: if the total length of the attributes exceeds the limit for paths.
    """
    pending = [
        (label, number)
        for label, number in reversed(document.nodes[start].children)
        if not label.startswith("_") and label not in BOOKKEEPING
    ]
    characters = 0
    while pending:
        label, number = pending.pop()
        node = document.nodes.get(number)
        if node is None or number == start or number in yielded:
            continue
        if node.variable is not None:
            yielded.add(number)
            yield label, node.variable
        elif node.identifier in CONTAINERS:
            yielded.add(number)
            for inner, child in reversed(node.children):
                pending.append((f"{label}/{inner}", child))
                characters += len(pending[-1][0])
            if excess := limits.PATH_CHARACTERS.exceeded_message(characters, counting=True):
                raise LimitError(f"its object graph has attributes of {excess}")


def _variable(tensor: Tensor, name: str) -> Variable:
    return Variable(name=name, shape=tensor.shape, dtype=tensor.dtype)
