"""
The record of fuzzing: what was run, for how long, and what came of it; ``docs/evidence/fuzzing.md``
is written from it.

A row is one target in one call of ``python -m tests.fuzz``. Rows of the same code, kind and target,
of one day, are added together.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.helpers.scripts import run_captured

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.fuzz.processes import Runs
    from tests.fuzz.volume import Tally

FILE: Final = Path(__file__).with_name("record.json")
FINDINGS: Final = Path(__file__).with_name("findings.json")
_SAME: Final = ("date", "tree", "kind", "target")
_ADDED: Final = ("executions", "seconds", "crashes", "hangs", "limits", "traced")
_MOST: Final = ("slowest", "memory")

Row = dict[str, Any]


def row(kind: str, target: str, tally: Tally | Runs) -> Row:
    """Return what a run of a target comes to."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "tree": tree(),
        "kind": kind,
        "target": target,
        **{key: getattr(tally, key, 0) for key in (*_ADDED, *_MOST)},
    }


def tree() -> str:
    """
    Return what git calls the package's content, which a rebase leaves as it is; with a mark where
    files differ from what is committed.
    """
    root = FILE.parent.parent.parent
    head = run_captured(
        ["git", "rev-parse", "--short=10", "HEAD:policytool"], cwd=root
    ).stdout.strip()
    changed = run_captured(["git", "status", "--porcelain", "policytool"], cwd=root).stdout.strip()
    return f"{head}+" if changed else head


def add(rows: Iterable[Row]) -> None:
    """Add rows to the record."""
    held = {tuple(item[key] for key in _SAME): item for item in read()}
    for new in rows:
        name = tuple(new[key] for key in _SAME)
        old = held.get(name)
        if old is None:
            held[name] = {
                **new,
                "seconds": round(new["seconds"], 1),
                "slowest": round(new["slowest"], 2),
            }
            continue
        old.update(
            {
                key: round(old[key] + new[key], 1) if key == "seconds" else old[key] + new[key]
                for key in _ADDED
            }
        )
        old.update({key: round(max(old[key], new[key]), 2) for key in _MOST})
    lines = ",\n".join(json.dumps(one) for _, one in sorted(held.items()))
    FILE.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def read() -> list[Row]:
    """Return the rows."""
    result: list[Row] = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else []
    return result
