"""
Every place in a file where a layer's policy stands.

A config says it once. A SavedModel's metadata says it twice in the layer's own node, again in the
configs of the models and wrappers that hold the layer, twice more in the root, and TF 2.5 writes
all of that to two files.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from policytool.formats.document import Address
from policytool.model.tree import configs
from policytool.model.tree.site import LAYERS
from policytool.support.errors import SpellingError
from policytool.support.text.jsontext import pointer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from policytool.formats.document import Document
    from policytool.model.tree.site import Site
    from policytool.support.text.jsontext import Json

Places = dict[Address, tuple[int, ...]]

_OWN: Final = (("dtype",), ("config", "dtype"))
"""Where a node's metadata says its own policy."""

_MODEL_CONFIG: Final = "model_config"
_ANYWHERE: Final = -1


def places(document: Document, sites: Sequence[Site]) -> Mapping[Address, tuple[int, ...]]:
    """
    Return where a policy stands, or would stand, with the sites that have it there; both directions
    of a Bidirectional may share one place.
    """
    if document.nodes:
        return _in_metadata(document, sites)
    found: Places = {}
    for index, site in enumerate(sites):
        if site.address is not None:
            _add(found, site.address, index)
    return found


def _in_metadata(document: Document, sites: Sequence[Site]) -> Places:
    found: Places = {}
    below = _below(sites)
    for index, site in enumerate(sites):
        node = document.nodes.get(site.node) if site.node is not None else None
        for part in (node.part, node.other_part) if node is not None else ():
            for address, inner in _of_node(document, part or "", index, below):
                _add(found, address, inner)
    return found


def _of_node(
    document: Document, part: str, index: int, below: Mapping[int, Mapping[str, int]]
) -> Iterator[tuple[Address, int]]:
    """
    Yield the places in the metadata of one layer, its own and those of the layers in its config.
    """
    metadata = document.parts.get(part)
    if not isinstance(metadata, dict):
        return
    for steps in _OWN:
        if _stands(metadata, steps):
            yield Address(part=part, pointer=pointer(*steps)), index
    yield from _nested_places(part, "", metadata, index, below)
    yield from _nested_places(part, f"/{_MODEL_CONFIG}", metadata.get(_MODEL_CONFIG), index, below)


def _nested_places(
    part: str, prefix: str, holder: Json, index: int, below: Mapping[int, Mapping[str, int]]
) -> Iterator[tuple[Address, int]]:
    """
    Yield the places of the layers that stand in the config of the layer at ``index``, and which
    layers they are.
    """
    try:
        inner = configs.sites(
            Address(part=part, pointer=prefix), holder, {}, keras3=False, each=True
        )
    except SpellingError:
        return  # a layer whose get_config raised, or a class that keeps something else there
    sites = {0: index}
    for position, site in enumerate(inner):
        parent = sites.get(site.parent) if site.parent is not None else None
        found = _child(below.get(parent, {}), site) if parent is not None else None
        if found is None and position:
            found = below.get(_ANYWHERE, {}).get(_kind(site))
        if found is not None:
            sites[position] = found
        if position in sites and site.address is not None and isinstance(site.spelled, str | dict):
            yield site.address, sites[position]


def _child(children: Mapping[str, int], site: Site) -> int | None:
    """
    Return which child of a node's site a site in its config is: by its name, or by its attribute
    where the names differ.

    The input layer of a Sequential stands in its config alone.
    """
    for name in (site.name, site.given_name):
        if name is not None and name in children:
            return children[name]
    return children.get(f"/{site.attribute}") if site.attribute != LAYERS else None


def _below(sites: Sequence[Site]) -> dict[int, dict[str, int]]:
    """
    Return the children of each site by name, and the first by its attribute; a shared layer is a
    child wherever it stands.

    What a lone ``keras_metadata.pb`` tells of a shared layer is its first place alone: it is found
    anywhere, where only one has its name and class.
    """
    found: dict[int, dict[str, int]] = {}
    kinds = Counter(_kind(site) for site in sites)
    found[_ANYWHERE] = {
        _kind(site): index for index, site in enumerate(sites) if kinds[_kind(site)] == 1
    }
    by_names = {
        names: index
        for index, site in reversed(list(enumerate(sites)))
        for names in (site.names, *site.also_at)
    }
    for index, site in enumerate(sites):
        for names in (site.names, *site.also_at):
            parent = by_names.get(names[:-1])
            if parent is not None:
                found.setdefault(parent, {}).setdefault(names[-1], index)
        if site.parent is not None:
            found.setdefault(site.parent, {}).setdefault(f"/{site.attribute}", index)
    return found


def _kind(site: Site) -> str:
    return f"{site.class_name}/{site.given_name or site.name}"


def _stands(metadata: Mapping[str, Json], steps: tuple[str, ...]) -> bool:
    value: Json = dict(metadata)
    for step in steps:
        value = value.get(step) if isinstance(value, dict) else None
    return isinstance(value, str | dict)


def _add(found: Places, address: Address, index: int) -> None:
    known = found.get(address, ())
    if index not in known:
        found[address] = (*known, index)
