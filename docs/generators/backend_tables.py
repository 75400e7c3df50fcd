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
    columns = ("backend", "models", "truth", "pairs", "safe", "undecided", "not safe", "wrong")
    yield row((*columns, "origin"))
    yield row("---" for _ in (*columns, "origin"))
    for backend, found in record.items():
        versions = found["versions"]
        name = f"{BACKENDS[backend]} {versions[backend]}, Keras {versions['keras']}"
        for models in ("planted", "trained"):
            for truth, opposite in (("harmful", "safe"), ("harmless", "not-safe")):
                counts = found[models][truth]
                if not sum(counts.values()):
                    continue
                is_named = (models, truth) == ("planted", "harmful")
                origin = "{} of {}".format(*found["origins"]) if is_named else ""
                answers = (counts[answer] for answer in ("safe", "undecided", "not-safe"))
                numbers = (sum(counts.values()), *answers, counts[opposite])
                yield row(map(str, (name, models, truth, *numbers, origin)))
