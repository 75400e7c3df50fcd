"""The answers of check on each backend of Keras 3, and the truth, as a table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from policytool.releases.releases import BACKENDS
from policytool.reports.markdown import row

if TYPE_CHECKING:
    from collections.abc import Iterator

RECORD: Final = Path(__file__).parent.parent.parent / "tests" / "trained" / "backends.json"


def backends() -> Iterator[str]:
    """Yield the table of the record."""
    record: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8"))
    columns = ("backend", "truth", "pairs", "safe", "undecided", "not safe", "wrong", "origin")
    yield row(columns)
    yield row("---" for _ in columns)
    for backend, found in record.items():
        versions = found["versions"]
        name = f"{BACKENDS[backend]} {versions[backend]}, Keras {versions['keras']}"
        for truth, opposite in (("harmful", "safe"), ("harmless", "not-safe")):
            counts = found[truth]
            origin = "{} of {}".format(*found["origins"]) if truth == "harmful" else ""
            answers = (counts[answer] for answer in ("safe", "undecided", "not-safe"))
            cells = (name, truth, sum(counts.values()), *answers, counts[opposite], origin)
            yield row(map(str, cells))
