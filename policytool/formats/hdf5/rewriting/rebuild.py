"""
A new file made of the objects of another: some datasets cast, some texts changed, the optimizer's
state arranged anew.

Everything else is copied by HDF5 as it is stored: chunks are not decompressed, links stay links.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from h5py import h5d, h5g, h5l, h5o

from policytool.formats.hdf5.links import Link, address, dataset_at, group_at, links, text
from policytool.formats.hdf5.rewriting import attributes, tensors
from policytool.formats.writing.failures import WriteError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from policytool.formats.casting import Counts
    from policytool.formats.edits import Cast, StateSlot
    from policytool.formats.hdf5.rewriting.storage import OpenHdf5

STATE: str = "optimizer"
"""The group that holds the optimizer's state where no slot says otherwise."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rebuild:
    """What is different in the new file."""

    casts: Mapping[tuple[str, ...], Cast] = field(default_factory=dict)
    """By the path from the root."""

    texts: Mapping[str, str] = field(default_factory=dict)
    """New values of text attributes of the root."""

    state: tuple[StateSlot, ...] | None = None

    @property
    def new_groups(self) -> frozenset[bytes]:
        """The groups at the root that are made anew from slots."""
        if self.state is None:
            return frozenset()
        return frozenset(slot.tensor[0].encode() for slot in self.state) or frozenset(
            {STATE.encode()}
        )


def by_address(root: h5g.GroupID, casts: Mapping[tuple[str, ...], Cast]) -> dict[int, Cast]:
    """
    Return the casts by the object they are about, so that all hard links to it show the same.

    :raises WriteError: where a dataset is not there, or two casts of one dataset differ.
    """
    found: dict[int, Cast] = {}
    for path, cast in casts.items():
        dataset = dataset_at(root, path)
        if dataset is None:
            raise WriteError(
                "source-changed",
                f"has no tensor {'/'.join(path)}, which the plan casts; run again with --preview",
            )
        tensors.check(dataset, cast)
        other = found.setdefault(address(dataset), cast)
        if (other.after, other.through) != (cast.after, cast.through):
            raise WriteError(
                "not-rewritable",
                f"{'/'.join(other.tensor)} and {'/'.join(cast.tensor)} are the same "
                "dataset, but the plan casts them differently",
            )
    return found


def rebuild(source: OpenHdf5, target: OpenHdf5, changes: Rebuild) -> dict[tuple[str, ...], Counts]:
    """
    Fill an empty file; return what the casts did.

    :raises WriteError: where the source is not what the plan says, or holds what cannot be moved.
    """
    work = _Work(source, target, changes)
    work.copy_all()
    if changes.state is not None:
        work.make_state(changes.state)
    return work.counts


class _Work:
    """The making of one file."""

    def __init__(self, source: OpenHdf5, target: OpenHdf5, changes: Rebuild) -> None:
        self._source, self._target, self._changes = source, target, changes
        self._old, self._new = source.root, target.root
        self._casts = by_address(self._old, changes.casts)
        self._made: dict[int, bytes] = {address(self._old): b"/"}
        """Where an object of the source stands in the new file, for further hard links to it."""
        self.counts: dict[tuple[str, ...], Counts] = {}

    def copy_all(self) -> None:
        """Copy every object but for the groups that are made anew."""
        texts = {
            name.encode(): value.encode("utf-8") for name, value in self._changes.texts.items()
        }
        attributes.copy(self._old, self._new, without=texts)
        for name, value in texts.items():
            attributes.copy_text(self._old, self._new, name, value)
        pending: list[tuple[h5g.GroupID, h5g.GroupID, tuple[bytes, ...]]] = [
            (self._old, self._new, ())
        ]
        while pending:
            old, new, path = pending.pop()
            self._target.storage.check()
            for link in links(old):
                if not path and link.name in self._changes.new_groups:
                    continue
                below = self._copy_link(old, new, link, (*path, link.name))
                if below is not None:
                    pending.append((*below, (*path, link.name)))

    def make_state(self, slots: tuple[StateSlot, ...]) -> None:
        """Make the groups of the optimizer's state from its slots."""
        for slot in slots:
            self._target.storage.check()
            group, name = self._group(slot.tensor[:-1]), slot.tensor[-1].encode()
            if slot.source is None:
                tensors.scalar(group, name, slot.dtype or "float32", slot.value or 0.0)
                continue
            dataset = dataset_at(self._old, slot.source)
            if dataset is None:
                raise WriteError(
                    "source-changed",
                    (
                        f"has no tensor {'/'.join(slot.source)}, which the plan keeps; run "
                        "--preview again"
                    ),
                )
            self._copy_dataset(dataset, group, name)

    def _copy_link(
        self, old: h5g.GroupID, new: h5g.GroupID, link: Link, path: tuple[bytes, ...]
    ) -> tuple[h5g.GroupID, h5g.GroupID] | None:
        """
        Make one link; return the old and the new group where it leads to a group that is yet to be
        filled.
        """
        if link.kind == h5l.TYPE_SOFT:
            new.links.create_soft(link.name, old.links.get_val(link.name), lcpl=link.properties)
        elif link.kind == h5l.TYPE_EXTERNAL:
            new.links.create_external(
                link.name, *old.links.get_val(link.name), lcpl=link.properties
            )
        elif link.kind != h5l.TYPE_HARD:
            raise WriteError(
                "not-rewritable",
                (f"{text(path)} is a user-defined HDF5 link, which cannot be copied to a new file"),
            )
        elif (there := self._made.get(number := address(old, link.name))) is not None:
            new.links.create_hard(link.name, self._new, there, lcpl=link.properties)
        else:
            self._made[number] = b"/" + b"/".join(path)
            return self._copy_object(old, new, link)
        return None

    def _copy_object(
        self, old: h5g.GroupID, new: h5g.GroupID, link: Link
    ) -> tuple[h5g.GroupID, h5g.GroupID] | None:
        item = h5o.open(old, link.name)
        if isinstance(item, h5g.GroupID):
            made = h5g.create(new, link.name, lcpl=link.properties, gcpl=item.get_create_plist())
            attributes.copy(item, made)
            return item, made
        if isinstance(item, h5d.DatasetID):
            self._copy_dataset(item, new, link.name, link)
        else:
            h5o.copy(old, link.name, new, link.name, lcpl=link.properties)
        return None

    def _copy_dataset(
        self, dataset: h5d.DatasetID, group: h5g.GroupID, name: bytes, link: Link | None = None
    ) -> None:
        where = name.decode("utf-8", "replace")
        cast = self._casts.get(address(dataset))
        if cast is not None:
            self.counts[cast.tensor] = tensors.cast_into(dataset, group, name, cast)
            return
        attributes.refuse_references(dataset.get_type(), where)
        h5o.copy(dataset, b".", group, name, **({} if link is None else {"lcpl": link.properties}))

    def _group(self, path: tuple[str, ...]) -> h5g.GroupID:
        """
        Return the group at a path of the new file, made like that of the source where there is one.
        """
        here = self._new
        for depth, step in enumerate(path, start=1):
            name = step.encode()
            if here.links.exists(name):
                here = h5g.open(here, name)
                continue
            like = group_at(self._old, path[:depth])
            made = h5g.create(here, name, gcpl=None if like is None else like.get_create_plist())
            if like is not None:
                attributes.copy(like, made)
            here = made
        return here
