"""Which bytes of a remote file are requested, by what was read before."""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from policytool.support.files.remote_stream import (
    AFTER,
    BEFORE,
    MOST_AHEAD,
    REQUEST,
    Gap,
    RangeWindows,
    best_extent,
    cost,
    new_kinds,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    Part = tuple[int, int]
    """Where bytes start and stop."""

SIZE = 2**40
STRIDE = 2**23
EXTENTS = st.lists(st.integers(0, 100_000), min_size=1, max_size=32)
PLACES = st.builds(
    lambda base, offset: base * 100_000 + offset, st.integers(0, 9), st.integers(0, 99_999)
)
READS = st.lists(st.tuples(PLACES, st.sampled_from([1, 328, 512, 4096, 20_000])), max_size=60)


class FixedWindows(RangeWindows):
    """Windows that do not depend on what was read before."""

    def window(self, start: int, stop: int, gap: Gap) -> Part:
        """Return a few bytes before and after a place."""
        return max(gap.start, start - BEFORE), min(gap.stop, max(stop, start + AFTER))


def requests(windows: RangeWindows, reads: Iterable[Part]) -> list[Part]:
    """Return the requests for reads, which are checked to be possible."""
    held: list[Part] = []
    created: list[Part] = []
    for place, size in reads:
        start = place
        while start < place + size:
            index = bisect.bisect_right(held, (start, SIZE))
            before = held[index - 1] if index else (0, 0)
            if start < before[1]:
                windows.touch(start, place + size)
                start = before[1]
                continue
            after = held[index][0] if index < len(held) else SIZE
            gap = Gap(start=before[1], stop=after, bytes_before=before[1] - before[0])
            window = windows.window(start, place + size, gap)
            assert gap.start <= window[0] <= start
            assert min(gap.stop, place + size) <= window[1] <= gap.stop
            held.insert(index, window)
            created.append(window)
            start = window[1]
    return created


def cluster(number: int, offsets: Sequence[int], size: int = 500) -> list[Part]:
    """Return reads of this size at offsets from a place far from others."""
    return [(number * STRIDE + offset, size) for offset in offsets]


def test_an_unknown_place_has_a_fixed_window() -> None:
    """Nothing predicts anything yet."""
    assert requests(RangeWindows(), [(STRIDE, 500)]) == [(STRIDE - BEFORE, STRIDE + AFTER)]


def test_similar_clusters_need_one_request_each() -> None:
    """
    Each cluster needs one request as soon as two similar ones are known; with a fixed window, each
    needs two.
    """
    reads = [read for number in range(1, 50) for read in cluster(number, (0, 20_000, -1000, 9000))]
    assert len(requests(FixedWindows(), reads)) == 2 * 49
    result = requests(RangeWindows(), reads)
    assert len(result) == 49 + 2
    assert result[-1] == (49 * STRIDE - 1000, 49 * STRIDE + 20_500)


def test_shards_of_one_model_learn_from_each_other() -> None:
    """The first cluster of another file needs one request, too."""
    kinds = new_kinds()
    reads = [read for number in range(1, 50) for read in cluster(number, (0, 20_000, -1000, 9000))]
    requests(RangeWindows(kinds), reads)
    other = cluster(1, (0, 20_000, -1000, 9000))
    assert len(requests(RangeWindows(), other)) == 2
    assert len(requests(RangeWindows(kinds), other)) == 1


def test_small_clusters_need_few_bytes() -> None:
    """No more than is read."""
    reads = [read for number in range(1, 50) for read in cluster(number, (0, 600))]
    assert requests(RangeWindows(), reads)[-1] == (49 * STRIDE, 49 * STRIDE + 1100)


def test_each_kind_of_place_has_a_separate_window() -> None:
    """The size of the first read distinguishes a part of an index from an object header."""
    windows = RangeWindows()
    for number in range(1, 40, 2):
        requests(windows, [*cluster(number, (0, 3000)), *cluster(number + 1, (0, -5000), size=300)])
    first, second = requests(windows, [*cluster(50, (0,)), *cluster(51, (0,), size=300)])
    assert first == (50 * STRIDE, 50 * STRIDE + 3500)
    assert second == (51 * STRIDE - 5000, 51 * STRIDE + 300)


def test_clusters_that_are_not_complete_predict_nothing() -> None:
    """Parts of an index are read first, and what is around them later."""
    windows = RangeWindows()
    requests(windows, [read for number in range(1, 8) for read in cluster(number, (0,))])
    assert requests(windows, cluster(9, (0,))) == [(9 * STRIDE - BEFORE, 9 * STRIDE + AFTER)]


def test_a_window_is_bounded() -> None:
    """Small arrays without large ones between them are one cluster, whatever its size."""
    windows = RangeWindows()
    for number in range(1, 20):
        requests(windows, cluster(number, range(0, 2**20, 5000)))
    (start, stop), *_ = requests(windows, cluster(50, (0,)))
    assert stop - start == 2**17


def test_the_bytes_between_two_parts_of_a_cluster_are_requested() -> None:
    """These bytes cost less than another request."""
    first, second = requests(RangeWindows(), cluster(1, (0, 25_000)))
    assert second == (first[1], STRIDE + 25_000 + AFTER)


def test_sequential_reads_of_a_file_use_growing_requests() -> None:
    """The size of the reads has no effect."""
    result = requests(RangeWindows(), [(place, 4096) for place in range(0, 2**23, 4096)])
    assert len(result) < 20
    assert max(stop - start for start, stop in result) == MOST_AHEAD


def test_no_bytes_after_values_are_requested() -> None:
    """Values are larger than any window."""
    windows = RangeWindows()
    requests(windows, cluster(1, (0,)))
    assert requests(windows, [(3 * STRIDE, 2**22)]) == [(3 * STRIDE - BEFORE, 3 * STRIDE + 2**22)]


@given(READS)
def test_scattered_reads_need_few_more_requests_than_with_fixed_windows(
    reads: list[Part],
) -> None:
    """Each cluster may need two more requests, because its window may be too small."""
    clusters = {place // 100_000 for place, _ in reads}
    fixed = requests(FixedWindows(), reads)
    assert len(requests(RangeWindows(), reads)) <= len(fixed) + 2 * len(clusters)


@given(EXTENTS)
def test_best_extent_has_the_lowest_cost(needed: list[int]) -> None:
    """The candidates are the needed extents, because an extent between two of them wastes bytes."""

    def total(extent: int) -> int:
        return sum(cost(extent, item) for item in needed)

    assert best_extent(needed) in needed
    assert all(total(best_extent(needed)) <= total(item) for item in needed)


def test_missing_bytes_cost_further_requests() -> None:
    """Each fixed window costs one request."""
    assert cost(1000, 900) == cost(1000, 1000) == 1000
    assert cost(1000, 1001) == 1001 + REQUEST
    assert cost(1000, 1000 + AFTER) == 1000 + AFTER + 2 * REQUEST


def test_only_a_common_large_extent_is_requested() -> None:
    """A rare large extent would cost more bytes than it saves requests."""
    assert best_extent([1000] * 31 + [50_000]) == 1000
    assert best_extent([1000] * 10 + [20_000] * 22) == 20_000
