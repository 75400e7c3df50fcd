"""Groups and the links in them, walked without following those that lead away."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from h5py import h5, h5d, h5g, h5l, h5o, h5p

from policytool.formats.writing.failures import WriteError
from policytool.support import limits

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, kw_only=True, slots=True)
class Link:
    """One link of a group."""

    name: bytes
    kind: int
    cset: int

    @property
    def properties(self) -> h5p.PropLCID:
        """The creation properties of a link like this one."""
        made = h5p.create(h5p.LINK_CREATE)
        made.set_char_encoding(self.cset)
        return made


def links(group: h5g.GroupID) -> list[Link]:
    """Return the links of a group, in the order they were made where the file tells it."""
    found: list[Link] = []
    is_ordered = group.get_create_plist().get_link_creation_order() & h5p.CRT_ORDER_TRACKED
    order = h5.INDEX_CRT_ORDER if is_ordered else h5.INDEX_NAME
    group.links.iterate(
        lambda name, info: found.append(Link(name=name, kind=info.type, cset=info.cset)),
        idx_type=order,
        info=True,
    )
    return found


def address(group: h5g.GroupID, name: bytes = b".") -> int:
    """Return the number of an object in its file: the same for all hard links to it."""
    low, high = h5g.get_objinfo(group, name).objno
    return int(low | high << 64)


def find(root: h5g.GroupID, path: tuple[str, ...]) -> h5d.DatasetID | None:
    """Return the dataset at a path of hard links; None where there is none."""
    here = root
    for index, step in enumerate(path):
        name = step.encode("utf-8", "surrogateescape")
        if (
            not isinstance(here, h5g.GroupID)
            or not here.links.exists(name)
            or here.links.get_info(name).type != h5l.TYPE_HARD
        ):
            return None
        if index > limits.H5_DEPTH.value:
            return None
        here = h5o.open(here, name)
    return here if isinstance(here, h5d.DatasetID) else None


def group_at(root: h5g.GroupID, path: tuple[str, ...]) -> h5g.GroupID | None:
    """Return the group at a path of hard links; None where there is none."""
    here = root
    for step in path:
        name = step.encode("utf-8", "surrogateescape")
        if not here.links.exists(name) or here.links.get_info(name).type != h5l.TYPE_HARD:
            return None
        here = h5o.open(here, name)
        if not isinstance(here, h5g.GroupID):
            return None
    return here


def text(path: tuple[bytes, ...]) -> str:
    """Return a path as messages show it."""
    return b"/".join(path).decode("utf-8", "replace") or "/"


def bound(paths: Iterator[tuple[bytes, ...]]) -> Iterator[tuple[bytes, ...]]:
    """
    Yield paths as long as there are no more, and none deeper, than a model has.

    :raises WriteError: beyond the bounds.
    """
    for count, path in enumerate(paths):
        if beyond := limits.H5_OBJECTS.exceeded_message(
            count, counting=True
        ) or limits.H5_DEPTH.exceeded_message(len(path), counting=True):
            raise WriteError("not-rewritable", f"has groups with {beyond}")
        yield path
