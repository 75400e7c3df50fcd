"""Tasks that use the same files run in sequence, and others at the same time."""

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
    A task waits for all earlier tasks that use the same files, directly or through other tasks; a
    file in a directory counts as the directory.
    """
    assert parallel.predecessors_of([[Path(place) for place in own] for own in places]) == [
        frozenset(item) for item in waits
    ]
