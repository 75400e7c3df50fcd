"""
The layers of a KerasHub preset that its backbone creates, from the names in the weights files.

Keras 3.6 and later store the name of each layer in its group, so that the names above a group give
the path of the layer in Keras, which is also the key in a policy map. A layer without variables is
left out, because its backbone may give it a policy of its own, such as float32 for a softmax.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from policytool.formats.document import Address
from policytool.formats.keras_archive import TASK
from policytool.formats.keras_hub import TASK_GROUP
from policytool.model.tree.site import LAYERS, Site, children_of
from policytool.releases.generations import SubPolicy
from policytool.support import limits
from policytool.support.errors import LimitError
from policytool.support.steps import spend

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from policytool.formats.document import Document

UNKNOWN_CLASS: Final = ""
"""The class name of a layer of which the file stores only the name."""

_NUMBER: Final = re.compile(r"([0-9]{1,9})")
_BACKBONE: Final = "/config/backbone"


def with_stored_layers(document: Document, sites: Sequence[Site]) -> tuple[Site, ...]:
    """
    Return the sites of a config, followed by the layers that only the weights files name, each
    behind its parent.

    :raises LimitError: if there are too many layers.
    """
    known = list(_with_copies(document, sites))
    known[0] = replace(known[0], stored=())
    mapped = _mapped_paths(known[0])
    by_group: dict[tuple[str, ...], int] = {(): 0}
    by_name = {(site.parent, site.name): index for index, site in enumerate(known)}
    for group in sorted(_groups(document), key=_natural):
        parent = next(
            by_group[group[:end]]
            for end in range(len(group) - 1, -1, -1)
            if group[:end] in by_group
        )
        name = document.layer_names.get("/".join(group), group[-1])
        index = by_name.get((parent, name))
        if index is None or known[index].stored is not None:
            index = len(known)
            known.append(_created(known[parent], parent, name, group, mapped))
        else:
            known[index] = replace(known[index], stored=group)
        by_group[group] = index
        if excess := limits.LAYERS.exceeded_message(len(known), counting=True):
            raise LimitError(f"its weights files contain {excess}")
    return _parents_first(known)


def _groups(document: Document) -> set[tuple[str, ...]]:
    """Return the groups of layers with variables, and of the named layers above them."""
    groups: set[tuple[str, ...]] = set()
    for tensor in document.tensors or ():
        path = tensor.path[:-1]
        own = path[:-1] if path[-1:] == ("vars",) else path
        groups.add(own)
        for end in range(1, len(own)):
            spend(1, walk="groups of layers")
            if "/".join(own[:end]) in document.layer_names:
                groups.add(own[:end])
    return groups - {()}


def _mapped_paths(backbone: Site) -> set[str]:
    """Return the paths in the policy map of a backbone, and the paths above them."""
    config = backbone.spelled.get("config") if isinstance(backbone.spelled, dict) else None
    keys = config.get("policy_map") if isinstance(config, dict) else None
    paths: set[str] = set()
    for key in keys if isinstance(keys, dict) else ():
        path = key
        while path and path not in paths:
            spend(1, walk="paths of a policy map")
            paths.add(path)
            path = path.rpartition("/")[0]
    return paths


def _created(parent: Site, index: int, name: str, group: tuple[str, ...], mapped: set[str]) -> Site:
    """
    Return the site of a layer that its parent creates, with the policy of the parent. No file has
    the policies of the layers that a task adds.

    The parent may be a model, which is not in the path of the layer, or a layer with a list.
    """
    path = "/".join((*parent.names[parent.names_above :], name))
    in_model = group[-2:-1] == (LAYERS,) and path not in mapped
    in_task = group[0] == TASK_GROUP
    return Site(
        names=(*parent.names, name),
        class_name=UNKNOWN_CLASS,
        attribute=group[-1],
        parent=index,
        spelled=None if in_task else parent.spelled,
        address=parent.address,
        sub_policy=SubPolicy.OWN,
        stored=group,
        names_above=len(parent.names) if in_model else parent.names_above,
    )


def _with_copies(document: Document, sites: Sequence[Site]) -> Iterable[Site]:
    """Return the sites with their objects in the config of the task."""
    try:
        backbone = document.parts[TASK]["config"]["backbone"]  # type: ignore[index,call-overload]
    except (LookupError, TypeError):
        return sites
    if backbone != document.config:
        return sites
    return [
        replace(site, copies=(Address(part=TASK, pointer=f"{_BACKBONE}{site.entry.pointer}"),))
        if site.entry is not None
        else site
        for site in sites
    ]


def _natural(group: tuple[str, ...]) -> list[list[str | int]]:
    """Return the sort key of a group: numbers in its names, at odd places, count as numbers."""
    return [
        [int(part) if place % 2 else part for place, part in enumerate(_NUMBER.split(name))]
        for name in group
    ]


def _parents_first(sites: Sequence[Site]) -> tuple[Site, ...]:
    """Return the sites in the order of a walk, with their new positions as parents."""
    children = children_of(sites)
    ordered: list[Site] = []
    pending: list[tuple[int, int | None]] = [(0, None)]
    while pending:
        index, parent = pending.pop()
        pending += [(child, len(ordered)) for child in reversed(children.get(index, ()))]
        ordered.append(replace(sites[index], parent=parent))
    return tuple(ordered)
