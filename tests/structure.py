"""
``python -m tests.structure [--before REVISION]``: measure the structure of the package, of a
revision and of the working tree.

The rules that count are tests in ``tests/test_architecture.py``; these are figures to read.
"""

from __future__ import annotations

import argparse
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.helpers.paths import FIXTURES, ROOT
from tests.helpers.source_tree import CHILDREN, PACKAGE, SourceTree, cycles

if TYPE_CHECKING:
    from collections.abc import Iterator

BEFORE: Final = "0a2d4d6b"
"""The last revision before each fact got one place."""


def figures(tree: SourceTree) -> Iterator[tuple[str, str]]:
    """Yield each figure's name and value."""
    rooms = {name: below for name, below in tree.rooms.items() if name != "__init__"}
    arrows = sum(len(below - {"__init__"}) for below in rooms.values())
    yield "rooms directly below the package", str(len(rooms))
    yield "of them packages", str(sum((tree.root / PACKAGE / name).is_dir() for name in rooms))
    yield "arrows between rooms", str(arrows)
    yield "floors", str(tree.floors)
    yield "modules", str(len(tree.texts))
    yield "code statements", f"{tree.code_statements:,}"
    yield "vague words per 1,000 identifiers", f"{tree.vague_words:.1f}"
    yield "modules naming layer classes", str(len(tree.modules_naming_layer_classes))
    yield "modules reading class_name", str(len(tree.modules_reading_class_name))
    yield "lines of tests", f"{_test_lines(tree.root):,}"
    yield "cycles of modules", str(len(cycles(tree.imports)))
    yield "private modules imported across packages", str(len(tree.private_imports))
    yield "lines of code without the child process", f"{tree.code_lines(child=False):,}"
    yield f"lines of code in {' or '.join(sorted(CHILDREN))}", f"{tree.code_lines(child=True):,}"
    yield "functions", f"{len(tree.functions):,}"
    yield "functions named by a lone participle", str(len(tree.lone_participles))
    yield "public class names in several modules", str(len(tree.repeated_classes))
    yield "lines above 100 columns", str(_long_lines(tree.root))
    yield from _reads_and_analyses(tree.root)


_COUNT: Final = """
import importlib, io, sys
from collections import Counter
from contextlib import redirect_stderr, redirect_stdout
def one_of(*names):
    for name in names:
        module, function = name.split(":")
        try:
            found = importlib.import_module("policytool." + module)
        except ImportError:
            continue
        if hasattr(found, function):
            return found, function
counts = Counter()
def count(what, module, name):
    inner = getattr(module, name)
    def counted(*arguments, **options):
        counts[what] += 1
        return inner(*arguments, **options)
    setattr(module, name, counted)
count("reads", *one_of("formats.format_detection:document", "recognition:document"))
count("analyses", *one_of("model.reading:load_model", "reading:analysed"))
from policytool.cli.main import run
nowhere = io.TextIOWrapper(io.BytesIO())
with redirect_stdout(nowhere), redirect_stderr(nowhere):
    run(sys.argv[1:])
sys.__stdout__.write(f"{counts['reads']} / {counts['analyses']}")
"""
"""Runs a command in the checkout on the path, and writes how often it read and analysed a file."""

COMMANDS: Final = {
    "inspect": ("inspect",),
    "audit": ("audit",),
    "audit, two targets": ("audit", "--target", "tf2.4", "--target", "keras3"),
    "migrate": ("migrate", "--to", "float32", "-o", "{place}/new.h5"),
    "migrate --target": ("migrate", "--target", "keras3", "-o", "{place}/target.keras"),
    "audit --fix": ("audit", "--fix", "--backup"),
    "diff": ("diff", "{model}"),
}


def _reads_and_analyses(root: Path) -> Iterator[tuple[str, str]]:
    for name, words in COMMANDS.items():
        with tempfile.TemporaryDirectory() as place:
            model = Path(place, "model.h5")
            shutil.copy(FIXTURES / "tf2.3/exp_mf16_fixed128.h5", model)
            arguments = [word.format(place=place, model=model) for word in (*words, str(model))]
            done = subprocess.run(
                [sys.executable, "-c", _COUNT, *arguments],
                env={**os.environ, "PYTHONPATH": str(root), "POLICYTOOL_JOBS": "1"},
                cwd=place,
                capture_output=True,
                text=True,
                check=True,
            )
            yield f"reads / analyses: {name}", done.stdout


def _test_lines(root: Path) -> int:
    return sum(
        len(file.read_text(encoding="utf-8").splitlines())
        for file in (root / "tests").rglob("*.py")
    )


def _long_lines(root: Path) -> int:
    """Return the lines that ruff finds too long: it lets URLs and pragmas pass."""
    command = (sys.executable, "-m", "ruff", "check", "--isolated", "--select", "E501")
    result = subprocess.run(
        [*command, "--line-length", "100", "--output-format", "concise", PACKAGE],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    return sum(": E501" in line for line in result.stdout.splitlines())


def _checked_out(revision: str, place: Path) -> SourceTree:
    archive = subprocess.run(
        ["git", "archive", revision, PACKAGE, "tests"], cwd=ROOT, capture_output=True, check=True
    )
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as opened:
        opened.extractall(place, filter="data")
    return SourceTree(root=place)


def main() -> None:
    """Print the figures of both as a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", default=BEFORE, metavar="REVISION")
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
