"""
Say whether this tree is slower than another revision: ``python compare.py REVISION [--pairs N]
[--most SHARE]``, or ``make bench-compare REV=REVISION``.

Both run under this interpreter: the start of the command, ``inspect`` of an HDF5 file, a `.keras`
file and a SavedModel, and ``audit`` of 1,000 small models. Runs alternate, and each pair gives a
ratio. A command is slower if the 95% confidence interval of the median ratio, which assumes no
distribution, lies above 1 by more than a share; then the exit code is 1.
"""

from __future__ import annotations

import argparse
import math
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.bench import run as bench

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT: Final = Path(__file__).parents[2]
MANY: Final = 1_000
CONFIDENCE: Final = 0.95
MOST: Final = 0.03
"""What may be due to the place of files on the disk and in memory, and not to the code."""

FEWEST: Final = 6
"""Pairs without which no interval has this confidence."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval:
    """The median of ratios, and its confidence interval."""

    low: float
    median: float
    high: float

    def verdict(self, most: float) -> str:
        """Return what it says about a command."""
        if self.low > 1 + most:
            return "slower"
        return "faster" if self.high < 1 - most else "no difference shown"


def interval(ratios: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """
    Return the narrowest interval of two of the ratios, equally far from the ends, that has the
    median of their distribution with at least this probability.

    The number of ratios below the median is binomial with probability 0.5, whatever the
    distribution.
    """
    count, ordered = len(ratios), sorted(ratios)
    cut, outside = 0, 0.0
    while cut < count // 2:
        outside += 2 * math.comb(count, cut) / 2**count
        if 1 - outside < confidence:
            break
        cut += 1
    first = max(cut - 1, 0)
    return Interval(
        low=ordered[first], median=statistics.median(ordered), high=ordered[count - 1 - first]
    )


def commands(models: Path) -> Mapping[str, tuple[str, ...]]:
    """Return the arguments of what is compared, by name."""
    return {
        "start": ("--version",),
        "inspect .h5": ("inspect", str(bench.FIXTURES / bench.SMALL[0])),
        "inspect .keras": ("inspect", str(bench.FIXTURES / bench.SMALL[1])),
        "inspect SavedModel": ("inspect", str(bench.FIXTURES / bench.SMALL[2])),
        f"audit of {MANY:,} models": ("audit", "--fail-on", "never", str(models)),
    }


def seconds(tree: Path, arguments: Sequence[str]) -> float:
    """Return what a command takes with the code of a tree."""
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, "-P", "-m", "policytool", *arguments],
        env={**bench.ENVIRONMENT, "PYTHONPATH": str(tree)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    return time.perf_counter() - start


def compare(before: Path, arguments: Sequence[str], pairs: int) -> Interval:
    """Return how much longer a command takes than with the code of another tree."""
    for tree in (before, ROOT):  # not counted: byte code and page cache
        seconds(tree, arguments)
    ratios = []
    for number in range(pairs):
        # each goes first as often as the other
        trees = (before, ROOT) if number % 2 == 0 else (ROOT, before)
        took = {tree: seconds(tree, arguments) for tree in trees}
        ratios.append(took[ROOT] / took[before])
    return interval(ratios)


def main() -> int:
    """Run the command line, and return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("revision", metavar="REVISION")
    parser.add_argument(
        "--pairs", type=int, default=15, metavar="N", help="runs of each (default: %(default)s)"
    )
    parser.add_argument(
        "--most",
        type=float,
        default=MOST,
        metavar="SHARE",
        help="a difference that is not reported (default: %(default)s)",
    )
    arguments = parser.parse_args()
    if arguments.pairs < FEWEST:
        parser.error(f"--pairs must be at least {FEWEST}")
    with tempfile.TemporaryDirectory(prefix="policytool-bench-") as name:
        before = Path(name) / "before"
        git = ("git", "-C", str(ROOT), "worktree")
        subprocess.run(
            [*git, "add", "--quiet", "--detach", str(before), arguments.revision], check=True
        )
        try:
            models = bench.make_models(Path(name) / "models", MANY)
            found = {}
            for what, command in commands(models).items():
                found[what] = compare(before, command, arguments.pairs)
                one = found[what]
                sys.stdout.write(
                    f"{what:24} {one.median:.3f} ({one.low:.3f} to {one.high:.3f})  "
                    f"{one.verdict(arguments.most)}\n"
                )
                sys.stdout.flush()
        finally:
            subprocess.run([*git, "remove", "--force", str(before)], check=True)
    return int(any(item.verdict(arguments.most) == "slower" for item in found.values()))


if __name__ == "__main__":
    sys.exit(main())
