"""
The bytes of a remote file, and the choice of the bytes to request with each read.

The ranges that were read are kept in memory, within a limit for all files of a session.

Formats such as HDF5 scatter metadata over a file, in clusters between large arrays. The clusters of
one file are similar, because its layers are similar, and so are those of the shards of one model. A
request therefore includes as many bytes around an offset as were needed around earlier offsets of
the same kind.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from policytool.support.files.random_access import SeekableStream
from policytool.support.files.remote_requests import changed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from policytool.support.files.remote_path import RemotePath


REQUEST: Final = 48 * 2**10
"""Bytes that cost as much as one more request: 50 milliseconds at 1 MB per second."""

NEAR: Final = 24 * 2**10
"""
Bytes between two places, up to which both belong to one cluster, and are read with one request.

Fewer than :data:`REQUEST`, because a cluster may end after the first place.
"""

BEFORE: Final = 2 * 2**10
AFTER: Final = 14 * 2**10
"""
Bytes that are requested before and after a place of which nothing is known.

HDF5 places metadata in blocks of 2 KiB between values, and meets a block in the middle as often as
at its start.
"""

MOST_AHEAD: Final = 2**20
"""Bytes of one request while a file is read from front to back."""

_MOST: Final = 128 * 2**10
"""Bytes that are requested at most on one side of a place that is not read itself."""

_LEARNED: Final = 32
"""Clusters that predict the extent of the next one."""

_LATEST: Final = 8
"""Clusters of which more is probably still to be read."""

_ENOUGH: Final = 2
"""Clusters that predict anything."""


class Gap(NamedTuple):
    """Bytes that are not in memory, between two parts of a file that are."""

    start: int
    stop: int

    bytes_before: int
    """The number of bytes of the cached part before the gap."""


@dataclass(slots=True)
class Cluster:
    """Places that were read and are close together."""

    place: int
    """The offset that was read first."""

    start: int
    stop: int
    reads: int = 1


Kinds = defaultdict[int, list[Cluster]]
"""Clusters by the size of their first read, which shows the kind of the metadata."""


def new_kinds() -> Kinds:
    """Return a table of clusters without any."""
    return defaultdict(list)


class RangeWindows:
    """The reads of one file, and the prediction of the next reads."""

    def __init__(self, kinds: Kinds | None = None) -> None:
        """:param kinds: the clusters of files like this one, which get those of this file, too"""
        self._clusters: list[Cluster] = []
        self._starts: list[int] = []
        self._kinds = kinds if kinds is not None else new_kinds()

        self._last = 0
        """The end of the latest read."""

        self._front = 0
        """The end of the latest request for values."""

    def touch(self, start: int, stop: int) -> None:
        """Record a read of bytes that are in memory."""
        self._last = stop
        cluster = self._near(start, stop)
        if cluster is not None and stop - start <= AFTER:
            self._extend(cluster, start, stop)

    def window(self, start: int, stop: int, gap: Gap) -> tuple[int, int]:
        """Return the range of a gap to request for a read from ``start`` to ``stop``."""
        has_values = stop - start > AFTER
        is_next = gap.bytes_before and start == gap.start
        if is_next and (has_values or start in {self._last, self._front}):
            bytes_ahead = min(2 * gap.bytes_before, MOST_AHEAD)
            window = start, min(gap.stop, max(stop, start + bytes_ahead))
            self._front = window[1]
        else:
            window = self._around(start, stop, gap)
            self._front = window[1] if has_values else self._front
        self._last = stop
        return window

    def _around(self, start: int, stop: int, gap: Gap) -> tuple[int, int]:
        """Return the range to request around a first read, and record the read."""
        cluster = self._near(start, stop)
        if stop - start <= AFTER:
            if cluster is None:
                before, after = self._expected_extent(stop - start)
                self._add(Cluster(start, start, stop))
                return max(gap.start, start - before), min(gap.stop, max(stop, start + after))
            self._extend(cluster, start, stop)
        return (
            gap.start if start - gap.start <= NEAR else start - BEFORE,
            gap.stop if gap.stop - stop <= NEAR else max(stop, start + AFTER),
        )

    def _expected_extent(self, size: int) -> tuple[int, int]:
        """
        Return the expected numbers of bytes before and after an offset whose first read has this
        size.
        """
        kind = self._kinds[size]
        latest_clusters = (cluster for cluster in kind[-_LATEST:] if cluster.reads > 1)
        known = [*kind[:-_LATEST], *latest_clusters][-_LEARNED:]
        if len(known) < _ENOUGH:
            return BEFORE, AFTER
        before = best_extent([cluster.place - cluster.start for cluster in known])
        after = best_extent([cluster.stop - cluster.place for cluster in known])
        return min(before, _MOST), min(after, _MOST)

    def _near(self, start: int, stop: int) -> Cluster | None:
        """Return the recorded group of reads that is close to a range; None if there is none."""
        index = bisect.bisect_right(self._starts, start)
        for cluster in self._clusters[max(0, index - 1) : index + 1]:
            if cluster.start - NEAR <= stop and start <= cluster.stop + NEAR:
                return cluster
        return None

    def _add(self, cluster: Cluster) -> None:
        """Record a new group of reads."""
        index = bisect.bisect_right(self._starts, cluster.start)
        self._starts.insert(index, cluster.start)
        self._clusters.insert(index, cluster)
        kind = self._kinds[cluster.stop - cluster.start]
        kind.append(cluster)
        del kind[: -_LEARNED - _LATEST]

    def _extend(self, cluster: Cluster, start: int, stop: int) -> None:
        """Extend a group of reads by another read."""
        if start < cluster.start:
            self._starts[bisect.bisect_left(self._starts, cluster.start)] = start
            cluster.start = start
        cluster.stop = max(stop, cluster.stop)
        cluster.reads += 1


def best_extent(needed: Sequence[int]) -> int:
    """
    Return the number of bytes to request on one side of an offset: the number with the lowest cost
    for the bytes that other offsets needed on this side.
    """
    return min(
        sorted(set(needed)),
        key=lambda extent: sum(cost(extent, byte_count) for byte_count in needed),
    )


def cost(extent: int, needed: int) -> int:
    """Return the cost of ``needed`` bytes if the first request has ``extent`` bytes."""
    if needed <= extent:
        return extent
    return needed + REQUEST * (1 + (needed - extent) // AFTER)


_MOST_AT_ONCE: Final = 8 * 2**20
"""Bytes of one request for values."""


class RemoteStream(SeekableStream):
    """A remote file, read by ranges."""

    def __init__(self, source: Source) -> None:
        super().__init__(source.size)
        self._source = source

    def readinto(self, buffer: memoryview, /) -> int:  # type: ignore[override]
        """Fill ``buffer``, up to the end of the file."""
        data = self.pread(len(buffer), self._position)
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)

    def pread(self, count: int, offset: int) -> bytes:
        """
        Return ``count`` bytes at an offset, or fewer at the end of the file.

        :raises ModelFileError: if the server does not deliver them.
        """
        return self._source.read(count, offset)


class Source:
    """The bytes of one file: the pieces in memory, and a function that requests the others."""

    def __init__(
        self,
        path: RemotePath,
        size: int,
        fetch: Callable[[int, int], bytes],
        on_keep: Callable[[Source, int, int], None],
        kinds: Kinds,
    ) -> None:
        """
        :param fetch: returns the bytes between two offsets
        :param on_keep: called with this source and the start and size of each piece that it keeps
        :param kinds: the clusters of the files beside it, such as other shards of one model
        """
        self.size = size
        self._path = path
        self._fetch = fetch
        self._on_keep = on_keep
        self._starts: list[int] = []
        self._pieces: dict[int, bytes] = {}
        self._windows = RangeWindows(kinds)

    def read(self, count: int, offset: int) -> bytes:
        """Return ``count`` bytes at an offset, or fewer at the end of the file."""
        end = min(offset + count, self.size)
        read = []
        while offset < end:
            start, piece = self._piece(offset, end)
            part = piece[offset - start : end - start]
            read.append(part)
            offset += len(part)
        return b"".join(read)

    def drop(self, start: int) -> None:
        """Remove a piece from memory."""
        del self._pieces[start]
        self._starts.remove(start)

    def _piece(self, offset: int, end: int) -> tuple[int, bytes]:
        """Return the start of a piece that contains the byte at ``offset``, and the piece."""
        index = bisect.bisect_right(self._starts, offset)
        before = self._starts[index - 1] if index else 0
        width = len(self._pieces[before]) if index else 0
        if offset < before + width:
            self._windows.touch(offset, end)
            return before, self._pieces[before]
        next_start = self._starts[index] if index < len(self._starts) else self.size
        gap = Gap(start=before + width, stop=next_start, bytes_before=width)
        start, stop = self._windows.window(offset, min(end, offset + _MOST_AT_ONCE), gap)
        data = self._fetch(start, stop)
        if len(data) != stop - start:
            raise changed(self._path)
        if len(data) <= MOST_AHEAD + BEFORE:  # values are read once
            self._keep(start, data)
        return start, data

    def _keep(self, start: int, data: bytes) -> None:
        bisect.insort(self._starts, start)
        self._pieces[start] = data
        self._on_keep(self, start, len(data))
