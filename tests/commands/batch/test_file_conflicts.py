"""Tasks that have to do with the same files are done one after the other, and others at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from policytool.commands.batch import parallel


@pytest.mark.parametrize(
    ("places", "waits"),
    [
        ([], []),
        ([["/a"], ["/b"], ["/c"]], [set(), set(), set()]),
        ([["/a", "/out"], ["/b"], ["/c", "/out"]], [set(), set(), {0}]),
        ([["/out"], ["/out"], ["/out"]], [set(), {0}, {1}]),
        ([["/a", "/b"], ["/b", "/c"], ["/a", "/c"]], [set(), {0}, {0, 1}]),
        ([["/model"], ["/model/assets/x.h5"], ["/model2"]], [set(), {0}, set()]),
        ([["/model/one"], ["/model/two"], ["/model"]], [set(), set(), {0, 1}]),
        ([["/model"], ["/model/one"], ["/model/one/two"]], [set(), {0}, {0, 1}]),
        ([[], ["/a"], []], [set(), set(), set()]),
    ],
)
def test_tasks_wait_for_earlier_ones_with_the_same_files(
    places: list[list[str]], waits: list[set[int]]
) -> None:
    """
    A file in a directory is the directory's too; who waits for the last of a row waits for all of
    it.
    """
    assert parallel.predecessors_of([[Path(place) for place in own] for own in places]) == [
        frozenset(one) for one in waits
    ]
