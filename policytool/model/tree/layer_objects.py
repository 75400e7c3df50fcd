"""
All objects in a file that serialize a layer.

A config has an object for each layer, and additional objects for a shared layer. The metadata of a
SavedModel has an object in the node of the layer, one in the config of each model and wrapper that
contains the layer, and two in the root. TF 2.5 writes all of them to two files.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from policytool.formats.document import Address
from policytool.model.tree import configs
from policytool.model.tree.site import LAYERS
from policytool.support.errors import SpellingError
from policytool.support.text.jsontext import pointer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from policytool.formats.document import Document
    from policytool.model.tree.site import Site
    from policytool.support.text.jsontext import Json

_OWN: Final = (("dtype",), ("config", "dtype"))
"""The steps to a layer's policy in the metadata of its node."""

_MODEL_CONFIG: Final = "model_config"


class LayerObject(Struct, frozen=True, kw_only=True):
    """An object that serializes a layer."""

    entry: Address | None
    """The address of the object; None for a layer that its parent creates."""

    site: int
    policies: tuple[Address, ...] = ()
    """The addresses of the layer's policy; in a config, also if no policy is stored."""


def layer_objects(document: Document, sites: Sequence[Site]) -> Iterator[LayerObject]:
    """
    Yield the objects that serialize layers. If both directions of a Bidirectional are built from
    one config, two objects have its address.
    """
    if document.nodes:
        yield from _in_metadata(document, sites)
        return
    for index, site in enumerate(sites):
        policies = (site.address,) if site.address is not None else ()
        yield LayerObject(entry=site.entry, site=index, policies=policies)
        for copy in site.copies:
            in_task = site.entry is not None and copy.part != site.entry.part  # KerasHub
            policies = (Address.below(copy, "config", "dtype"),) if in_task else ()
            yield LayerObject(entry=copy, site=index, policies=policies)


def entries_of(objects: Iterable[LayerObject]) -> dict[Address, int]:
    """Return the site of each object that serializes a layer, by the object's address."""
    entries: dict[Address, int] = {}
    for item in objects:
        if item.entry is not None:
            entries.setdefault(item.entry, item.site)
    return entries


def _in_metadata(document: Document, sites: Sequence[Site]) -> Iterator[LayerObject]:
    below = _Below(sites)
    for index, site in enumerate(sites):
        node = document.nodes.get(site.node) if site.node is not None else None
        for part in (node.part, node.other_part) if node is not None else ():
            yield from _node_objects(document, part or "", index, below)


def _node_objects(
    document: Document, part: str, index: int, below: _Below
) -> Iterator[LayerObject]:
    """Yield the metadata of one layer, and the objects of the layers in its config."""
    metadata = document.parts.get(part)
    if not isinstance(metadata, dict):
        return
    yield LayerObject(
        entry=Address(part=part, pointer=""),
        site=index,
        policies=tuple(
            Address(part=part, pointer=pointer(*steps))
            for steps in _OWN
            if _stands(metadata, steps)
        ),
    )
    yield from _config_objects(Address(part=part, pointer=""), metadata, index, below)
    yield from _config_objects(
        Address(part=part, pointer=f"/{_MODEL_CONFIG}"), metadata.get(_MODEL_CONFIG), index, below
    )


def _config_objects(
    root: Address, holder: Json, index: int, below: _Below
) -> Iterator[LayerObject]:
    """
    Yield the objects of a layer and of the layers in its config, whose address is ``root``.

    Objects and nodes match by name, as in Keras, which puts the layers of a SavedModel's graph into
    a model that it builds from a config (``_reconstruct_model`` in
    keras/saving/saved_model/load.py).
    """
    try:
        inner = configs.sites(root, holder, {}, keras3=False, each=True)
    except SpellingError:
        return  # get_config failed, or a class stores other data at this key
    sites = {0: index}
    places: Counter[tuple[int | None, str, str]] = Counter()
    for position, site in enumerate(inner):
        if position:
            key = site.parent, site.name, site.attribute
            parent = sites.get(site.parent) if site.parent is not None else None
            child = below.child(parent, site, places[key])
            places[key] += 1
            if child is None:
                continue
            sites[position] = child
        has_dtype = site.address is not None and isinstance(site.spelled, str | dict)
        yield LayerObject(
            entry=site.entry,
            site=sites[position],
            policies=(site.address,) if has_dtype and site.address is not None else (),
        )


class _Below:
    """Finds the layers of a SavedModel's graph for the objects in configs of layers above them."""

    def __init__(self, sites: Sequence[Site]) -> None:
        self._named: dict[tuple[int, str, str | None], list[int]] = defaultdict(list)
        self._held: dict[tuple[int, str], int] = {}
        by_names = {
            names: index
            for index, site in reversed(list(enumerate(sites)))
            for names in (site.names, *site.also_at)
        }
        for index, site in enumerate(sites):
            if site.parent is not None:
                self._add(site.parent, site.name, site.attribute, index)
                self._held.setdefault((site.parent, site.attribute), index)
            for names in site.also_at:  # a shared layer is a child at each of its places
                if (parent := by_names.get(names[:-1])) is not None:
                    self._add(parent, names[-1], site.attribute, index)
        kinds = Counter(map(_kind, sites))
        self._only = {
            _kind(site): index for index, site in enumerate(sites) if kinds[_kind(site)] == 1
        }

    def _add(self, parent: int, name: str, attribute: str, index: int) -> None:
        for held_by in (attribute.partition("/")[0], None):
            children = self._named[parent, name, held_by]
            if children[-1:] != [index]:  # a layer may have several places in another layer
                children.append(index)

    def child(self, parent: int | None, site: Site, place: int) -> int | None:
        """
        Return the layer of an object in a config below ``parent``; None if the graph lacks it.

        Only the config has the input layer of a Sequential. A ``keras_metadata.pb`` without its
        SavedModel has only the first place of a shared layer. At other places, a layer matches if
        no other layer in the file has its name and class.

        :param site: the site of the object in the config without a graph
        :param place: the number of objects with the same name and attribute before it
        """
        if parent is not None:
            for name in (site.name, site.given_name):
                for attribute in (site.attribute, None):
                    if children := self._named.get((parent, name or "", attribute)):
                        return children[place] if place < len(children) else children[0]
            if site.attribute != LAYERS and (parent, site.attribute) in self._held:
                return self._held[parent, site.attribute]
        return self._only.get(_kind(site))


def _kind(site: Site) -> str:
    return f"{site.class_name}/{site.given_name or site.name}"


def _stands(metadata: Mapping[str, Json], steps: tuple[str, ...]) -> bool:
    """Return whether the metadata has a policy at these steps."""
    value: Json = dict(metadata)
    for step in steps:
        value = value.get(step) if isinstance(value, dict) else None
    return isinstance(value, str | dict)
