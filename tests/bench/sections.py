"""The sections of ``docs/evidence/benchmarks.md``, which several scripts write."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

_START = "\n## "


def write_section(path: Path, heading: str, text: str) -> None:
    """Write a section of a page in place of its earlier text, or at the end of the page."""
    page = path.read_text(encoding="utf-8")
    before, _, rest = page.partition(f"\n{heading}\n")
    _, start, after = rest.partition(_START)
    parts = [before.rstrip(), text.rstrip(), f"{start}{after}".strip()]
    path.write_text("\n\n".join(part for part in parts if part) + "\n", encoding="utf-8")


def write_table(
    path: Path | None,
    heading: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    about: str,
) -> None:
    """Write a section with a table and the text about it into a page, or print it."""
    lines = [columns, ("---",) * len(columns), *rows]
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    text = f"{heading}\n\n{table}\n\n{about}\n"
    if path is None:
        sys.stdout.write(text)
    else:
        write_section(path, heading, text)


def sections_after(path: Path, heading: str) -> str:
    """Return the sections of a page that follow one; nothing if there are none."""
    page = path.read_text(encoding="utf-8") if path.exists() else ""
    _, start, after = page.partition(f"\n{heading}\n")[2].partition(_START)
    return f"{start}{after}"
