"""What the scripts in ``tests/bench/`` compute from what they measure."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.bench import short
from tests.bench.compare import FEWEST, Interval, interval
from tests.bench.run import Pairs, Run
from tests.bench.sections import sections_after, write_section
from tests.conftest import run
from tests.helpers.marks import THOROUGH
from tests.helpers.paths import ROOT
from tests.helpers.scripts import run_captured

PAGE = "# Title\n\n## Method\n\nA\n\n## One\n\nB\n\n## Two\n\nC\n"


@pytest.mark.parametrize("count", [FEWEST, 10, 15])
def test_interval_contains_the_median_at_the_stated_rate(count: int) -> None:
    """The interval contains the median in more than 95 of 100 samples of a skewed distribution."""
    draw = random.Random(1)  # noqa: S311  # no secrets
    samples = [interval([draw.lognormvariate(0, 0.5) for _ in range(count)]) for _ in range(2_000)]
    assert sum(item.low <= 1 <= item.high for item in samples) / len(samples) > 0.94


def test_interval_is_as_narrow_as_possible() -> None:
    """With 15 ratios, the interval leaves out three at each end: two tails of 576 in 32,768."""
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


def test_section_is_replaced_in_place(tmp_path: Path) -> None:
    """A new section goes to the end, and other sections stay."""
    page = tmp_path / "page.md"
    page.write_text(PAGE, encoding="utf-8")
    write_section(page, "## One", "## One\n\nD\n")
    assert page.read_text(encoding="utf-8") == PAGE.replace("B", "D")
    write_section(page, "## Three", "## Three\n\nE\n")
    assert page.read_text(encoding="utf-8") == f"{PAGE.replace('B', 'D')}\n## Three\n\nE\n"
    assert sections_after(page, "## Method") == "\n## One\n\nD\n\n## Two\n\nC\n\n## Three\n\nE\n"
    assert not sections_after(tmp_path / "missing.md", "## Method")


def runs(ours: tuple[float, ...], baseline: tuple[float, ...]) -> Pairs:
    """Return pairs of runs that took so many seconds."""
    return Pairs(
        ours=tuple(Run(seconds=name, peak=0) for name in ours),
        baseline=tuple(Run(seconds=item, peak=0) for item in baseline),
    )


START: Final = short.Case(
    "policytool --version", ("a",), short.Baseline('python -c "import click"', ("b",)), 2, 1.25
)
"""With a ceiling of 2."""


def test_one_undisturbed_run_is_enough() -> None:
    """Others may take any time, on either side."""
    assert short.ratio(runs((9.0, 0.4), (0.2, 5.0))) == 2
    assert short.failure(START, runs((9.0, 0.4), (0.2, 5.0))) is None


def test_twice_the_time_is_above_each_ceiling() -> None:
    """One sentence has the ratio, the ceiling, and the ratio when it was set."""
    assert short.failure(START, runs((0.5, 0.6), (0.2, 0.2))) == (
        'error: policytool --version takes 2.50 times as long as python -c "import click", and the '
        "ceiling is 2.00; it was 1.25 when the ceiling was set. Run `make bench-compare REV=main` "
        "to find the change."
    )
    for case in short.cases(Path("large.h5"), Path("models")):
        doubled = runs((2 * case.measured,), (1.0,))
        assert short.failure(case, doubled) is not None
        assert short.failure(case, runs((case.measured,), (1.0,))) is None


def test_ratio_above_its_ceiling_is_measured_again() -> None:
    """The earlier runs count too, so a slow baseline hides nothing."""
    rounds = iter([runs((0.5,), (0.2,)), runs((0.4,), (0.3,)), runs((0.1,), (0.3,))])
    assert short.measure(START, lambda _: next(rounds)) == runs((0.5, 0.4), (0.2, 0.3))
    assert len(list(rounds)) == 1  # which was not needed
    slow = short.measure(START, lambda _: runs((0.5,), (0.2,)))
    assert slow == runs((0.5,) * short.ROUNDS, (0.2,) * short.ROUNDS)


def test_exit_code_is_one_if_a_ratio_is_above_its_ceiling(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """All cases have a line before the first error."""
    slow, fast = runs((0.5,), (0.2,)), runs((0.24,), (0.2,))
    assert short.report([(START, slow), (START, fast)]) == 1
    out, err = capsys.readouterr()
    assert out == (
        f'{"policytool --version":40}    500 ms   2.50 times python -c "import click" (200 ms), '
        "at most 2.00\n"
        f'{"policytool --version":40}    240 ms   1.20 times python -c "import click" (200 ms), '
        "at most 2.00\n"
    )
    assert err.count("error: ") == 1
    assert short.report([(START, fast)]) == 0
    assert not capsys.readouterr().err


@THOROUGH
def test_the_model_of_the_short_form_is_complete(tmp_path: Path) -> None:
    """`inspect` and the script that it is compared with read all of its layers."""
    model = short.large_model(tmp_path / "large.h5")
    shown = json.loads(run("inspect", str(model), "--format", "json").out)
    layers = [layer for layer in shown["models"][0]["layers"] if layer["variables"]]
    assert len(layers) == short.LAYERS
    read = run_captured([sys.executable, str(ROOT / "tests/bench/shortest.py"), str(model)])
    assert len(read.stdout.splitlines()) == 1 + 2 * short.LAYERS
