"""The links of groups, in name order, within the limits on objects, depth and paths."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from h5py import h5

from policytool.support import limits, steps
from policytool.support.files.remote_path import RemotePath

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from h5py import h5g, h5l

    from policytool.formats.base import Probe

    Link = tuple[bytes, int, int]
    """A name, the type of the link, and the address of the object that a hard link leads to."""

_BATCH: Final = 16
"""
The number of links of a remote group in the first batch. Later batches are larger, because the
library starts each search at the first link.
"""


class GroupLinks:
    """The links of the groups in one file, and their number."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._in_batches = isinstance(probe.path, RemotePath)
        self._count = 0
        self._characters = 0
        self._repeated = 0
        self._entered: set[int] = set()
        """The addresses of the groups whose links were read."""

    def of(
        self, group: h5g.GroupID, path: tuple[str, ...], address: int | None = None
    ) -> Iterator[Link]:
        """
        Yield the links of a group in name order.

        Links of a remote file are read in batches, because the parts of a large group's index are
        scattered over the file, close to the objects that they refer to.

        A group with several hard links has a path for each link, as in Keras. Its links are counted
        again for each path, because a few such groups can have more paths than fit in memory.

        :param address: the address of the group in the file

        :raises ModelFileError: if a limit is exceeded.
        """
        repeated = address in self._entered
        if address is not None:
            self._entered.add(address)
        start = 0
        while self._in_batches:
            size = max(_BATCH, start // _BATCH)
            links = self._read(group, path, size, idx=start, order=h5.ITER_NATIVE)
            if not start and links != sorted(links):  # the index is not sorted by name
                break
            self._count_links(links[:size], path, repeated=repeated)
            yield from links[:size]
            if len(links) <= size:
                return
            start += size
        links = self._read(group, path, limits.H5_OBJECTS.value)
        self._count_links(links, path, repeated=repeated)
        yield from links

    def _read(
        self, group: h5g.GroupID, path: tuple[str, ...], most: int, **which: int
    ) -> list[Link]:
        """Return links of a group; one more than ``most`` if there are more."""
        links: list[Link] = []
        most = min(most, limits.H5_OBJECTS.value - self._count)
        group.links.iterate(_collecting(links, most), info=True, **which)
        self._check(self._count + len(links), path)
        return links

    def count_repeated(self, number: int) -> None:
        """
        Count links, or names in attributes, of a group that was already reached by another path.

        :raises ModelFileError: if there are more than the limit.
        """
        self._repeated += number
        self._probe.check_limit(
            limits.H5_REPEATED_LINKS,
            self._repeated,
            "h5-limit",
            "reaches groups again through hard links, with",
            counting=True,
        )

    def _count_links(self, links: list[Link], path: tuple[str, ...], *, repeated: bool) -> None:
        self._count += len(links)
        steps.spend(len(links), walk="links of groups")
        if repeated:
            self.count_repeated(1 + len(links))
        self._characters += len(links) * sum(map(len, path))
        self._probe.check_limit(
            limits.PATH_CHARACTERS, self._characters, "h5-limit", "has paths of", counting=True
        )

    def _check(self, count: int, path: tuple[str, ...]) -> None:
        """Raise an error if there are too many objects or the group is nested too deeply."""
        if excess := limits.H5_OBJECTS.exceeded_message(
            count, counting=True
        ) or limits.H5_DEPTH.exceeded_message(len(path), counting=True):
            raise self._probe.failure("h5-limit", f"has groups with {excess}")


def _collecting(links: list[Link], most: int) -> Callable[[bytes, h5l.LinkInfo], bool | None]:
    """
    Return a callback that collects a group's links and stops after ``most``, because a circular
    index has no end.
    """

    def collect(name: bytes, info: h5l.LinkInfo) -> bool | None:
        links.append((name, info.type, info.u))
        return True if len(links) > most else None

    return collect
