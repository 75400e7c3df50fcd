"""The paths in the file of layers that have other names after loading."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policytool.numerics.verdicts.answers import file_paths

Layers = list[tuple[str, str | None]]

STORED: Layers = [
    ("net", "Net"),
    ("net/dense_2", "Dense"),
    ("net/dense_3", "Dense"),
    ("net/dense_10", "Dense"),
    ("net/block", "Block"),
    ("net/block/out", "Dense"),
]


def test_layers_are_paired_in_numeric_order() -> None:
    """A new name can equal the old name of another layer."""
    running: Layers = [
        ("net_1/dense_10", "Dense"),
        ("net_1/dense_9", "Dense"),
        ("net_1/dense_11", "Dense"),
        ("net_1", "Net"),
    ]
    result = file_paths(running, STORED)
    assert result == {
        "net_1": "net",
        "net_1/dense_9": "net/dense_2",
        "net_1/dense_10": "net/dense_3",
        "net_1/dense_11": "net/dense_10",
    }


def test_layers_in_a_renamed_layer_keep_their_names() -> None:
    """Layers and ops in a renamed layer keep their names."""
    running: Layers = [
        ("net/block_4/out", "Dense"),
        ("net/block_4/log", "Log"),
        ("net/block_4", "Block"),
        ("net", "Net"),
    ]
    assert file_paths(running, STORED) == {
        "net/block_4": "net/block",
        "net/block_4/out": "net/block/out",
        "net/block_4/log": "net/block/log",
    }


@pytest.mark.parametrize(
    "running",
    [
        [("net/dense_2", "Dense"), ("net", "Net")],
        [("net/dense_5", "Dense"), ("net", "Net")],
        [("net/dense_2", "Conv1D"), ("net", "Net")],
        [("net/other", "Dense"), ("net", "Net")],
        [],
    ],
)
def test_ambiguous_layers_are_not_paired(running: Layers) -> None:
    """The pairing is ambiguous if a sibling was not called."""
    assert file_paths(running, STORED) == {}


@given(st.sets(st.integers(0, 99), min_size=1, max_size=6), st.integers(1, 50))
def test_names_that_count_on_are_found_again(numbers: set[int], more: int) -> None:
    """Names with consecutive numbers are paired, for any first number."""
    stored: Layers = [("m", "M"), *((f"m/x_{number}", "X") for number in sorted(numbers))]
    running: Layers = [(f"m/x_{number + more}", "X") for number in numbers]
    result = file_paths([*running, ("m", "M")], stored)
    assert all(
        result.get(f"m/x_{number + more}", f"m/x_{number + more}") == f"m/x_{number}"
        for number in numbers
    )


def test_a_file_without_layers_has_no_names() -> None:
    """A file without layers, such as a graph, has no names to pair."""
    assert file_paths([("net", "Net")], []) == {}
