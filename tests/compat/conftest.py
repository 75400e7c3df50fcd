"""
Compatibility tests run where ``POLICYTOOL_COMPAT`` names the interpreter of an environment with the
newest releases.

``environment.py`` makes one; ``make test-compat`` does both. Elsewhere the tests are deselected, so
that a plain ``pytest`` says nothing of them.
"""

from __future__ import annotations

import os
from collections import Counter
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from policytool.numerics.tensorflow_run import TensorFlowTools
from policytool.numerics.workers import Interpreter, Worker
from tests.compat import converting
from tests.compat.asking import ask, run_module
from tests.compat.cases import OTHER, SAMPLE, job, under_another_policy
from tests.helpers.sampling import EVERY_CASE, sampled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.compat.asking import Answers
    from tests.compat.converting import Converted

COMPAT: Final = os.environ.get("POLICYTOOL_COMPAT")
"""Read before the tests: their own environment has no variable of policytool's."""

MODULES: Final = frozenset(
    sampled(
        "modules for the newest libraries", sorted(Path(__file__).parent.glob("test_*.py")), share=2
    )
)
"""
What `make test-compat` runs at this commit: most modules start TensorFlow, which takes as long as
many of their cases.
"""

Tally = dict[tuple[str, str], Counter[str]]
"""By library and format, how many of each column."""

TALLY: Final = pytest.StashKey[Tally]()
COLUMNS: Final = (
    "files",
    "load",
    "refused",
    "agree",
    "open",
    "layers",
    "same dtypes",
    "bit for bit",
    "within 8 eps",
)


CONVERTED: Final = pytest.StashKey[tuple["Converted", ...]]()
"""What came of conversions, for a table of its own."""


def pytest_configure(config: pytest.Config) -> None:
    """Start empty tallies."""
    config.stash[TALLY] = {}
    config.stash[CONVERTED] = ()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the modules of this run, and deselect what asks real releases where there are none."""
    for item in items:
        if item.path in MODULES:
            item.add_marker("sampled")
    unwanted = [] if COMPAT else [item for item in items if item.get_closest_marker("compat")]
    if unwanted:
        config.hook.pytest_deselected(items=unwanted)
        items[:] = [item for item in items if item not in set(unwanted)]


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Show how often the reports and the real libraries agreed, and what came of conversions."""
    conversions = config.stash[CONVERTED]
    if conversions:
        terminalreporter.section("what the newest libraries made of converted fixtures")
        for line in converting.table(conversions):
            terminalreporter.write_line(line)
    tally = config.stash[TALLY]
    if not tally:
        return
    terminalreporter.section("what the newest libraries made of the fixtures")
    terminalreporter.write_line(f"{'':34}" + "".join(f"{column:>13}" for column in COLUMNS))
    for (library, kind), counts in sorted(tally.items()):
        terminalreporter.write_line(
            f"{library:14}{kind:20}" + "".join(f"{counts[column]:13}" for column in COLUMNS)
        )


@pytest.fixture(scope="session")
def compat_python() -> Path:
    """
    Return the interpreter of the environment; not resolved, because a virtual environment's is a
    link out of it.
    """
    assert COMPAT is not None
    return Path(COMPAT).absolute()


@pytest.fixture(scope="session")
def answers(compat_python: Path) -> Callable[[str], Answers]:
    """
    Return a function that gives a library's answers about the fixtures, asking it the first time.
    """

    @cache
    def asked(library: str) -> Answers:
        return ask(
            compat_python,
            library,
            [*map(job, SAMPLE), *(job(case, OTHER) for case in under_another_policy(library))],
        )

    return asked


@pytest.fixture(scope="session")
def conversions(
    compat_python: Path, tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> tuple[Converted, ...]:
    """
    Return what came of the fixtures converted from one of the newest libraries to the other: a
    spread, or all of them.
    """
    result = converting.measured(
        compat_python, tmp_path_factory.mktemp("converted").resolve(), everything=EVERY_CASE
    )
    pytestconfig.stash[CONVERTED] = result
    return result


@pytest.fixture(scope="session")
def models(compat_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of the models that ``check_models.py`` writes."""
    base = tmp_path_factory.mktemp("models")
    run_module(compat_python, "check_models", base)
    return base


@pytest.fixture(scope="session")
def tools(compat_python: Path) -> Iterator[TensorFlowTools]:
    """Return one child for all that is checked, in which both Kerases are imported once."""
    with Worker(Interpreter(python=str(compat_python), timeout=300)) as worker:
        yield TensorFlowTools(worker=worker)


@pytest.fixture
def count(pytestconfig: pytest.Config) -> Callable[..., None]:
    """Return a function that counts for the summary."""

    def add(library: str, kind: str, **columns: int) -> None:
        counts = pytestconfig.stash[TALLY].setdefault((library, kind), Counter())
        counts.update({column.replace("_", " "): number for column, number in columns.items()})

    return add
