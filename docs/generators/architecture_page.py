"""The generated parts of ``ARCHITECTURE.md``: the picture and the table of packages."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

ROOT: Final = Path(__file__).parent.parent.parent
sys.path.append(str(ROOT))

from tests.helpers.source_tree import SourceTree, reachable, room  # noqa: E402  # tests is no installed package
from tests.test_architecture import CHILD, ORDER  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE: Final = ROOT / "ARCHITECTURE.md"


def architecture_page() -> str:
    """Return the page with its generated parts as the code has them now."""
    tree = SourceTree(root=ROOT)
    parts = {"picture": picture(tree), "packages": packages(tree)}

    def generate(found: re.Match[str]) -> str:
        name = found["name"]
        return f"<!-- generated: {name} -->\n{parts[name]}\n<!-- end -->"

    marked = re.compile(r"<!-- generated: (?P<name>\w+) -->\n.*?<!-- end -->", re.DOTALL)
    return marked.sub(generate, PAGE.read_text(encoding="utf-8"))


def picture(tree: SourceTree) -> str:
    """Return a graph of the packages: an arrow for each import that no longer way stands for."""
    return "\n".join(("```mermaid", "graph TD", *_arrows(tree), "```"))


def _arrows(tree: SourceTree) -> Iterator[str]:
    known = [name for line in ORDER for name in line]
    below = {name: tree.rooms[name] & frozenset(known) for name in known}
    for name in known:
        indirect: set[str] = set()
        for other in below[name]:
            indirect |= reachable(other, below)
        yield from (f"    {name} --> {other}" for other in sorted(below[name] - indirect))
    yield f"    numerics -. starts .-> {CHILD}"


def packages(tree: SourceTree) -> str:
    """Return the table of packages, from the top down."""
    rows = ["| package | contents | modules |", "| --- | --- | ---: |"]
    for name in (*(name for line in ORDER for name in line), CHILD):
        count = sum(room(module) == name for module in tree.texts)
        rows.append(f"| [`{name}`](policytool/{name}) | {_summary(tree, name)} | {count} |")
    return "\n".join(rows)


def _summary(tree: SourceTree, name: str) -> str:
    text = ast.get_docstring(tree.trees[name]) or ""
    return " ".join(text.split("\n\n")[0].split()).replace("``", "`")
