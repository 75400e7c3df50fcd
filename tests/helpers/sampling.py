"""
Which of many expensive cases a run tries: others after each committed change of the package or the
tests, and all of them with ``POLICYTOOL_SAMPLE=all``, as ``make test-all`` sets it.

A fault that a sample misses is met some commits later. Runs of the same files draw the same, also
after a rebase or a squash. ``POLICYTOOL_SAMPLE=SAMPLE`` repeats the draw that the head of a run
names.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from typing import TYPE_CHECKING, Final, TypeVar

from policytool.support.project import VERSION
from tests.helpers.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable

Case = TypeVar("Case")

_VARIABLE: Final = "POLICYTOOL_SAMPLE"
_HASH: Final = 12
"""The number of digits of a hash that is used."""


def _trees() -> str:
    """Return the trees of the package and the tests in the commit, or the version without one."""
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        return VERSION
    done = subprocess.run(
        [git, "rev-parse", "HEAD:policytool", "HEAD:tests"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    trees = [tree[:_HASH] for tree in done.stdout.split()]
    return "-".join(trees) if done.returncode == 0 else VERSION


SEED: Final = os.environ.get(_VARIABLE) or _trees()
"""Read before the tests: their own environment has no variable of policytool's."""

RUN_SEED: Final = random.Random(SEED).randrange(2**31)  # noqa: S311  # no secrets
"""For the order of tests and the examples of properties: those of the same files are the same."""

EVERY_CASE: Final = SEED == "all"
"""Whether all cases are tried."""

LIBRARY_SHARE: Final = 5
"""Of so many files that `make test-compat` could give to the newest libraries, it gives one."""


def sampled(name: str, cases: Iterable[Case], *, share: int, seed: str = SEED) -> tuple[Case, ...]:
    """
    Return one of each ``share`` cases in their order, and all for the seed ``all``.

    :param name: what is sampled; samples of different names are independent
    """
    every = tuple(cases)
    if seed == "all" or not every:
        return every
    # Random is seeded with a text in the same way in every process.
    draw = random.Random(f"{seed} {name}")  # noqa: S311  # no secrets
    count = -(-len(every) // share)
    return tuple(every[index] for index in sorted(draw.sample(range(len(every)), count)))


def describe_sample() -> str:
    """Return a line for the head of a test run."""
    if EVERY_CASE:
        return "sample: all cases"
    return f"sample: {SEED} ({_VARIABLE}={SEED} repeats it, {_VARIABLE}=all tries all cases)"
