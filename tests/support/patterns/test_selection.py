"""Few patterns that select some names and no others."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policytool.support import limits
from policytool.support.patterns.matching import Matcher
from policytool.support.patterns.selection import selecting_patterns
from tests.helpers.marks import THOROUGH, examples

BLOCKS = [f"block_{block}/{name}" for block in range(24) for name in ("norm", "dense", "add")]
PIECES = ("a", "dense", "blk", "_", "/", "-", ".", "(", "+", "[", "\\", "|", "\n", "é", " ", "٣")


def alone(names: list[str]) -> list[tuple[str, ...]]:
    """Return things with one name each."""
    return [(name,) for name in names]


def selected(patterns: tuple[str, ...], names: list[str]) -> list[str]:
    """Return the names that patterns of ``--set`` select: an equal name, or else the only match."""
    matcher = Matcher()
    exact = [name for name in names if name in patterns]
    expressions = [pattern for pattern in patterns if pattern not in names]
    actual = []
    for name in names:
        matching = [expression for expression in expressions if matcher.fullmatch(expression, name)]
        assert name in exact or len(matching) <= 1, f"{name!r} matches {matching}"
        if name in exact or matching:
            actual.append(name)
    return actual


@pytest.mark.parametrize(
    ("chosen", "others", "patterns"),
    [
        ([f"blk_{number}" for number in range(99)], ["stem", "head"], ("blk.*",)),
        (["blk_a", "blk_b"], ["blk", "blkhead"], ("blk_.*",)),
        ([f"block_{number}/dense" for number in range(24)], ["dense", "x/dense"], (r"block.*",)),
        (
            [item for item in BLOCKS if item.endswith("dense")],
            [*(item for item in BLOCKS if not item.endswith("dense")), "head/dense"],
            (r"block_\d+/dense",),
        ),
        (
            [item for item in BLOCKS if item.endswith("norm")],
            [item for item in BLOCKS if not item.endswith("norm")],
            (".*/norm",),
        ),
        (
            [item for item in BLOCKS if 5 <= int(re.findall(r"\d+", item)[0]) < 17],
            [item for item in BLOCKS if not 5 <= int(re.findall(r"\d+", item)[0]) < 17],
            ("block_([5-9]|1[0-6])/.*",),
        ),
        (
            [f"blk_{number}_{end}" for number in range(40, 60) for end in ("up", "down")],
            [f"blk_{item}_{end}" for item in (*range(40), 60) for end in ("up", "down")],
            (r"blk_[45]\d_.*",),
        ),
        (["dense", "dense_1", "dense_7"], ["dense_out", "conv"], (r"dense(_\d+)?",)),
        (["e/a/query", "e/b/c/query"], ["e/a/key", "d/query"], ("e/.*/query",)),
        (["v1.0/a", "v1.0/b"], ["v1x0/a", "v1.x"], (r"v1\.0/.*",)),
        (["a", "b"], ["c"], ("a", "b")),
        (["a"], ["b"], ("a",)),
        (["b", "a"], [], (".*",)),
        ([], ["a"], ()),
    ],
    ids=lambda value: str(value[0])[:12] if value else "none",
)
def test_patterns_are_short_and_readable(
    chosen: list[str], others: list[str], patterns: tuple[str, ...]
) -> None:
    """A pattern has a common beginning or end, any number, or a range of numbers."""
    result = selecting_patterns(alone(chosen), alone(others))
    assert result == patterns
    assert selected(result, [*chosen, *others]) == chosen


def test_patterns_are_in_the_order_of_the_model() -> None:
    """Patterns are sorted by the first path that each selects."""
    chosen = ["stem", "a_1", "a_2", "mid", "b_1", "b_2"]
    result = selecting_patterns(alone(chosen), alone(["c", "a", "b", "d_1", "d_2"]))
    assert result == ("stem", "a_.*", "mid", "b_.*")


def test_any_of_several_names_is_matched() -> None:
    """A shared layer has several, and none of those that are not chosen may match."""
    chosen = [("a/x", "shared/x"), ("a/y",)]
    assert selecting_patterns(chosen, alone(["b"])) == ("a.*",)
    assert selecting_patterns(alone(["a/x", "a/y"]), [("b", "a/z")]) == ("a/x", "a/y")


def test_a_name_that_reads_as_a_pattern_is_none() -> None:
    """An exact path comes before any expression, so that ``blk.*`` would mean that layer only."""
    result = selecting_patterns(alone(["blk_1", "blk_2"]), alone(["blk.*", "stem"]))
    assert "blk.*" not in result
    assert selected(result, ["blk_1", "blk_2", "blk.*", "stem"]) == ["blk_1", "blk_2"]


def test_names_with_many_parts_are_selected_by_full_name() -> None:
    """A pattern of 70 parts would be unreadable."""
    chosen = ["_".join(["x"] * 40) + end for end in ("1", "2")]
    assert selecting_patterns(alone(chosen), alone(["y"])) == tuple(chosen)


def test_paths_are_returned_if_matching_exceeds_the_step_limit() -> None:
    """The limit applies to patterns of policytool and to those of the user."""
    chosen = [f"blk_{number}" for number in range(9)]
    with limits.override({"pattern-steps": 10}):
        assert selecting_patterns(alone(chosen), alone(["stem"])) == tuple(chosen)


def paths() -> st.SearchStrategy[list[str]]:
    """Return different paths, as models have them and as strangers write them."""
    number = st.integers(0, 130).map(str)
    usual = st.builds(
        "{}_{}/{}".format, st.sampled_from(["blk", "block", "enc"]), number, st.sampled_from("qkv")
    )
    strange = st.lists(st.sampled_from(PIECES) | number, min_size=1, max_size=6).map("".join)
    return st.lists(usual | strange, min_size=1, max_size=40, unique=True)


@THOROUGH
@given(paths(), st.data())
@settings(max_examples=examples(500), deadline=None)
def test_patterns_select_exactly_the_chosen_paths(names: list[str], data: st.DataObject) -> None:
    """The test draws arbitrary paths. The number of patterns is at most that of the paths."""
    inside = set(data.draw(st.lists(st.sampled_from(names))))
    chosen = [name for name in names if name in inside]
    others = [name for name in names if name not in inside]
    result = selecting_patterns(alone(chosen), alone(others))
    assert len(result) <= len(chosen)
    assert selected(result, names) == chosen


@THOROUGH
@given(st.sets(st.integers(0, 1200), min_size=1), st.sets(st.integers(0, 1200)))
@settings(max_examples=examples(200), deadline=None)
def test_ranges_select_exactly_the_chosen_numbers(inside: set[int], outside: set[int]) -> None:
    chosen = [f"blk_{item}" for item in sorted(inside)]
    others = [f"blk_{item}" for item in sorted(outside - inside)]
    result = selecting_patterns(alone(chosen), alone(others))
    assert len(result) <= len(chosen)
    assert selected(result, [*chosen, *others]) == chosen
