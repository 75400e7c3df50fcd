"""
``python -m tests.structure [--before REVISION]``: measure the structure of the package, of a
revision and of the working tree.

The rules that count are tests in ``tests/test_architecture.py``; these are figures to read.
"""

from __future__ import annotations

import argparse
import io
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.helpers.paths import ROOT
from tests.helpers.source_tree import CHILDREN, PACKAGE, SourceTree, cycles

if TYPE_CHECKING:
    from collections.abc import Iterator

ARRANGED: Final = "41b3188"
"""The last revision before the modules were arranged in twelve packages, at 100 columns."""


def figures(tree: SourceTree) -> Iterator[tuple[str, str]]:
    """Yield each figure's name and value."""
    rooms = {name: below for name, below in tree.rooms.items() if name != "__init__"}
    arrows = sum(len(below - {"__init__"}) for below in rooms.values())
    yield "rooms directly below the package", str(len(rooms))
    yield "of them packages", str(sum((tree.root / PACKAGE / name).is_dir() for name in rooms))
    yield "arrows between rooms", str(arrows)
    yield "floors", str(tree.floors)
    yield "modules", str(len(tree.texts))
    yield "cycles of modules", str(len(cycles(tree.imports)))
    yield "private modules imported across packages", str(len(tree.private_imports))
    yield "lines of code without the child process", f"{tree.code_lines(child=False):,}"
    yield f"lines of code in {' or '.join(sorted(CHILDREN))}", f"{tree.code_lines(child=True):,}"
    yield "functions", f"{len(tree.functions):,}"
    yield "functions named by a lone participle", str(len(tree.lone_participles))
    yield "public class names in several modules", str(len(tree.repeated_classes))
    yield "lines above 100 columns", str(_long_lines(tree.root))


def _long_lines(root: Path) -> int:
    """Return the lines that ruff finds too long: it lets URLs and pragmas pass."""
    command = (sys.executable, "-m", "ruff", "check", "--isolated", "--select", "E501")
    found = subprocess.run(
        [*command, "--line-length", "100", "--output-format", "concise", PACKAGE],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    return sum(": E501" in line for line in found.stdout.splitlines())


def _checked_out(revision: str, place: Path) -> SourceTree:
    archive = subprocess.run(
        ["git", "archive", revision, PACKAGE], cwd=ROOT, capture_output=True, check=True
    )
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as opened:
        opened.extractall(place, filter="data")
    return SourceTree(root=place)


def main() -> None:
    """Print the figures of both as a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", default=ARRANGED, metavar="REVISION")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        before = dict(figures(_checked_out(arguments.before, Path(place))))
    now = dict(figures(SourceTree(root=ROOT)))
    width = max(map(len, now))
    print(f"{'':{width}}  {'before':>8}  {'now':>8}")
    for name, value in now.items():
        print(f"{name:{width}}  {before[name]:>8}  {value:>8}")


if __name__ == "__main__":
    main()
