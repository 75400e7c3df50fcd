"""
Check that start-up, ``inspect`` and ``audit`` are not slower than they were, in less than two
minutes: ``make bench-short``.

Runs of each command and of its baseline alternate, so that the figures are ratios and depend little
on the machine. A ratio compares the fastest runs, because other processes only make a run slower.
If it is above its ceiling, more runs are added before it counts. ``make bench-compare`` finds
smaller differences.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import h5py
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.bench import run as bench
from tests.helpers.small_models import dense, sequential

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

LAYERS: Final = 1_000
MANY: Final = 1_000
ROUNDS: Final = 3
"""How often a ratio above its ceiling is measured."""

ROOM: Final = 1.6
"""
A ceiling is this many times the ratio when it was set: more than the noise of a machine that others
use too, and less than twice the time.
"""


class Baseline(NamedTuple):
    """What a command is compared with."""

    name: str
    command: bench.Command


class Case(NamedTuple):
    """A command, and how long it may take compared with its baseline."""

    what: str
    command: bench.Command
    baseline: Baseline
    runs: int
    """Of each command in one round."""

    measured: float
    """The ratio when the ceiling was set, with Python 3.11 on two idle cores."""

    @property
    def ceiling(self) -> float:
        """The ratio from which on the command is too slow."""
        return self.measured * ROOM


def cases(large: Path, models: Path) -> tuple[Case, ...]:
    """
    Return all cases.

    Click is the only library that `--version` and `--help` import. ``shortest.py`` reads the same
    files as policytool with the same libraries, so its time depends as much on the disk, on h5py
    and on the number of files. Two jobs have the same baseline as one, so that work that no longer
    runs in parallel shows.
    """
    policytool, shortest = bench.POLICYTOOL, (sys.executable, str(bench.HERE / "shortest.py"))
    audit = (policytool, "audit", "--fail-on", "never", str(models), "--jobs")
    click = Baseline(
        name='python -c "import click"', command=(sys.executable, "-c", "import click")
    )
    one = Baseline(name="shortest.py", command=(*shortest, str(large)))
    all_files = Baseline(name="shortest.py", command=(*shortest, str(models)))
    return (
        Case("policytool --version", (policytool, "--version"), click, 20, 1.3),
        Case("policytool --help", (policytool, "--help"), click, 20, 1.35),
        Case("policytool inspect of one model", (policytool, "inspect", str(large)), one, 5, 3.6),
        Case(f"policytool audit --jobs 1 of {MANY:,} models", (*audit, "1"), all_files, 2, 9.4),
        Case(f"policytool audit --jobs 2 of {MANY:,} models", (*audit, "2"), all_files, 2, 5.6),
    )


def large_model(path: Path) -> Path:
    """Write an HDF5 model with many layers, each with a kernel and a bias."""
    names = [f"dense_{number}" for number in range(LAYERS)]
    with h5py.File(path, "w") as file:
        file.attrs["model_config"] = json.dumps(sequential(*map(dense, names)))
        file.attrs["keras_version"] = "2.4.0"
        file.attrs["backend"] = "tensorflow"
        weights = file.create_group("model_weights")
        weights.attrs["layer_names"] = [name.encode() for name in names]
        for name in names:
            group = weights.create_group(name)
            variables = {f"{name}/kernel:0": (2, 2), f"{name}/bias:0": (2,)}
            group.attrs["weight_names"] = [variable.encode() for variable in variables]
            for variable, shape in variables.items():
                group[variable] = np.zeros(shape, "float32")
    return path


def ratio(found: bench.Pairs) -> float:
    """Return how many times as long as the fastest run of the baseline our fastest run takes."""
    return min(name.seconds for name in found.ours) / min(item.seconds for item in found.baseline)


def measure(case: Case, alternate: Callable[[Case], bench.Pairs]) -> bench.Pairs:
    """Return the runs of a case, of more than one round if it is above its ceiling."""
    result = bench.Pairs(baseline=(), ours=())
    for _ in range(ROUNDS):
        more = alternate(case)
        result = bench.Pairs(baseline=result.baseline + more.baseline, ours=result.ours + more.ours)
        if ratio(result) <= case.ceiling:
            break
    return result


def line(case: Case, found: bench.Pairs) -> str:
    """Return a line with the result of a case."""
    ours, baseline = (
        min(run.seconds for run in runs) * 1000 for runs in (found.ours, found.baseline)
    )
    return (
        f"{case.what:40} {ours:6,.0f} ms  {ratio(found):5.2f} times {case.baseline.name} "
        f"({baseline:,.0f} ms), at most {case.ceiling:.2f}"
    )


def failure(case: Case, found: bench.Pairs) -> str | None:
    """Return a sentence about a case that is above its ceiling; None if it is not."""
    if ratio(found) <= case.ceiling:
        return None
    return (
        f"error: {case.what} takes {ratio(found):.2f} times as long as {case.baseline.name}, and "
        f"the ceiling is {case.ceiling:.2f}; it was {case.measured:.2f} when the ceiling was set. "
        "Run `make bench-compare REV=main` to find the change."
    )


def report(checked: Iterable[tuple[Case, bench.Pairs]]) -> int:
    """Print a line for each case, then what is above a ceiling, and return the exit code."""
    failures = []
    for case, found in checked:
        sys.stdout.write(f"{line(case, found)}\n")
        sys.stdout.flush()
        failures += [sentence for sentence in (failure(case, found),) if sentence is not None]
    for sentence in failures:
        sys.stderr.write(f"{sentence}\n")
    return int(bool(failures))


def alternate(case: Case) -> bench.Pairs:
    """Return one round of runs of a case."""
    return bench.alternate(case.baseline.command, case.command, case.runs)


def main() -> int:
    """Measure all cases, and return the exit code."""
    with tempfile.TemporaryDirectory(prefix="policytool-bench-") as name:
        large = large_model(Path(name) / "large.h5")
        every = cases(large, bench.make_models(Path(name) / "models", MANY))
        return report((case, measure(case, alternate)) for case in every)


if __name__ == "__main__":
    sys.exit(main())
