"""Groups and the links in them, walked without following those that lead away."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from h5py import h5, h5d, h5g, h5l, h5o, h5p

from policytool.support import limits

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, kw_only=True, slots=True)
class Link:
    """One link of a group."""

    name: bytes
    kind: int
    cset: int

    @property
    def properties(self) -> h5p.PropLCID:
        """The creation properties for a copy of this link."""
        link_properties = h5p.create(h5p.LINK_CREATE)
        link_properties.set_char_encoding(self.cset)
        return link_properties


def links_of(group: h5g.GroupID) -> list[Link]:
    """Return the links of a group in creation order if the file tracks it, else by name."""
    group_links: list[Link] = []
    is_ordered = group.get_create_plist().get_link_creation_order() & h5p.CRT_ORDER_TRACKED
    order = h5.INDEX_CRT_ORDER if is_ordered else h5.INDEX_NAME
    group.links.iterate(
        lambda name, info: group_links.append(Link(name=name, kind=info.type, cset=info.cset)),
        idx_type=order,
        info=True,
    )
    return group_links


def object_address(group: h5g.GroupID, name: bytes = b".") -> int:
    """Return the number of an object in its file: the same for all hard links to it."""
    low, high = h5g.get_objinfo(group, name).objno
    return int(low | high << 64)


def object_at(root: h5g.GroupID, path: Sequence[str]) -> h5g.GroupID | h5d.DatasetID | None:
    """
    Return the group or dataset at a path of hard links; None where there is none, and beyond the
    depth of a model.
    """
    item: object = root
    if len(path) > limits.H5_DEPTH.value + 1:
        return None
    for step in path:
        name = step.encode("utf-8", "surrogateescape")
        if (
            not isinstance(item, h5g.GroupID)
            or not item.links.exists(name)
            or item.links.get_info(name).type != h5l.TYPE_HARD
        ):
            return None
        item = h5o.open(item, name)
    return item if isinstance(item, h5g.GroupID | h5d.DatasetID) else None


def dataset_at(root: h5g.GroupID, path: Sequence[str]) -> h5d.DatasetID | None:
    """Return the dataset at a path of hard links; None where there is none."""
    item = object_at(root, path)
    return item if isinstance(item, h5d.DatasetID) else None


def group_at(root: h5g.GroupID, path: Sequence[str]) -> h5g.GroupID | None:
    """Return the group at a path of hard links; None where there is none."""
    item = object_at(root, path)
    return item if isinstance(item, h5g.GroupID) else None


def path_text(path: tuple[bytes, ...]) -> str:
    """Return a path as messages show it."""
    return b"/".join(path).decode("utf-8", "replace") or "/"
