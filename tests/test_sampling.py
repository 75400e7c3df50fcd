"""Samples of expensive cases are the same in all processes of a run, and meet all in time."""

from __future__ import annotations

import subprocess
import sys

from tests.helpers.paths import ROOT
from tests.helpers.sampling import sampled

CASES = tuple(range(100))


def test_a_sample_is_a_share_in_the_order_of_the_cases() -> None:
    """Rounded up, so that no test is without a case."""
    sample = sampled("numbers", CASES, share=3, seed="a")
    assert len(sample) == 34
    assert list(sample) == sorted(set(sample))
    assert len(sampled("numbers", CASES[:1], share=3, seed="a")) == 1
    assert sampled("numbers", (), share=3, seed="a") == ()


def test_all_cases_can_be_tried() -> None:
    assert sampled("numbers", CASES, share=3, seed="all") == CASES


def test_commits_and_names_draw_others() -> None:
    """After thirty commits, a quarter of the cases has met each case."""
    drawn = [sampled("numbers", CASES, share=4, seed=f"commit {number}") for number in range(30)]
    assert set().union(*drawn) == set(CASES)
    assert len(set(drawn)) == len(drawn)
    assert sampled("letters", CASES, share=4, seed="commit 0") != drawn[0]


def test_every_process_draws_the_same() -> None:
    """pytest-xdist refuses workers that collect different tests."""
    code = (
        "from tests.helpers.sampling import sampled; "
        "print(sampled('numbers', range(100), share=3, seed='a'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str(sampled("numbers", CASES, share=3, seed="a"))
