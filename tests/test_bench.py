"""What the scripts in ``tests/bench/`` compute from what they measure."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from tests.bench.compare import FEWEST, Interval, interval
from tests.bench.remote_table import Row, clusters
from tests.bench.sections import sections_after, write_section
from tests.helpers.large_models import LargeModel

if TYPE_CHECKING:
    from pathlib import Path

PAGE = "# Title\n\n## Method\n\nA\n\n## One\n\nB\n\n## Two\n\nC\n"


@pytest.mark.parametrize("count", [FEWEST, 10, 15])
def test_an_interval_has_the_median_as_often_as_it_says(count: int) -> None:
    """In more than 95 of 100 samples of a skewed distribution."""
    draw = random.Random(1)  # noqa: S311  # no secrets
    samples = [interval([draw.lognormvariate(0, 0.5) for _ in range(count)]) for _ in range(2_000)]
    assert sum(one.low <= 1 <= one.high for one in samples) / len(samples) > 0.94


def test_an_interval_is_as_narrow_as_it_can_be() -> None:
    """With 15 ratios, it leaves out three at each end: two tails of 576 in 32,768."""
    assert interval(range(15)) == Interval(low=3, median=7, high=11)


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (Interval(low=1.04, median=1.1, high=1.2), "slower"),
        (Interval(low=1.02, median=1.1, high=1.2), "no difference shown"),
        (Interval(low=0.8, median=0.9, high=0.96), "faster"),
        (Interval(low=0.9, median=1.1, high=1.3), "no difference shown"),
    ],
)
def test_only_an_interval_beside_one_is_a_difference(found: Interval, verdict: str) -> None:
    """The median says nothing without it."""
    assert found.verdict(0.03) == verdict


def test_a_section_is_replaced_where_it_stands(tmp_path: Path) -> None:
    """A new one goes to the end, and the others stay."""
    page = tmp_path / "page.md"
    page.write_text(PAGE, encoding="utf-8")
    write_section(page, "## One", "## One\n\nD\n")
    assert page.read_text(encoding="utf-8") == PAGE.replace("B", "D")
    write_section(page, "## Three", "## Three\n\nE\n")
    assert page.read_text(encoding="utf-8") == f"{PAGE.replace('B', 'D')}\n## Three\n\nE\n"
    assert sections_after(page, "## Method") == "\n## One\n\nD\n\n## Two\n\nC\n\n## Three\n\nE\n"
    assert not sections_after(tmp_path / "missing.md", "## Method")


def test_places_that_are_close_together_are_one_cluster() -> None:
    """In whatever order they are read, and although one is within another."""
    assert clusters([]) == 0
    assert clusters([(0, 100), (80_000, 80_001), (20, 30), (20_000, 60_000)]) == 1
    assert clusters([(100_000, 100_001), (0, 100), (40_000, 40_001)]) == 3


def test_a_row_of_the_table_of_requests_has_units() -> None:
    """And the singular of one vector."""
    model = LargeModel(layers=2, matrix=(3, 4), vectors=1, optimizer=True)
    row = Row(
        layout="`.keras`", model=model, size=2**31, clusters=3, requests=4, transferred=56_000
    )
    assert row.cells() == (
        "| `.keras` | 2.0 GiB | 2 matrices, each followed by 1 vector, each with 2 arrays of the "
        "optimizer | 3 | 4 | 0.1 MB |"
    )
