"""The answers of check on each backend of Keras 3, and the truth, as tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from policytool.releases.releases import BACKENDS
from policytool.reports.markdown import row

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

RECORD: Final = Path(__file__).parent.parent.parent / "tests" / "trained" / "backends.json"
_OPPOSITES: Final = {"harmful": "safe", "harmless": "not-safe"}
"""By the truth, the wrong answer."""


def backends() -> Iterator[str]:
    """Yield the tables of the record."""
    record: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8"))
    names = [name for name in BACKENDS if name in record]
    yield from _counts({name: record[name] for name in names})
    yield ""
    yield "The answers on the streams and trained tasks, each with the truth on the same backend:"
    yield ""
    yield from _answers({name: record[name] for name in names})


def _counts(record: Mapping[str, Any]) -> Iterator[str]:
    """Yield how many answers each backend gave."""
    columns = ("backend", "models", "truth", "pairs", "safe", "undecided", "not safe", "wrong")
    yield row((*columns, "origin"))
    yield row("---" for _ in (*columns, "origin"))
    for backend, found in record.items():
        versions = found["versions"]
        name = f"{BACKENDS[backend]} {versions[backend]}, Keras {versions['keras']}"
        for models in ("planted", "streams", "trained"):
            for truth, opposite in _OPPOSITES.items():
                answers = list(found.get(models, {}).get(truth, {}).values())
                if not answers:
                    continue
                is_named = (models, truth) == ("planted", "harmful")
                named = list(found["origins"].values()) if is_named else []
                origin = f"{sum(named)} of {len(named)}" if named else ""
                counts = [answers.count(answer) for answer in ("safe", "undecided", "not-safe")]
                numbers = (len(answers), *counts, answers.count(opposite))
                yield row(map(str, (name, models, truth, *numbers, origin)))


def _answers(record: Mapping[str, Any]) -> Iterator[str]:
    """Yield the answers on each stream and trained task, with a column for each backend."""
    cells = {
        (models, pair, backend): f"{answer.replace('-', ' ')} ({truth})"
        for backend, found in record.items()
        for models in ("streams", "trained")
        for truth in _OPPOSITES
        for pair, answer in found.get(models, {}).get(truth, {}).items()
    }
    yield row(("model", "policy", *(BACKENDS[backend] for backend in record)))
    yield row("---" for _ in range(2 + len(record)))
    for models, pair in sorted({key[:2] for key in cells}):
        model, _, policy = pair.rpartition("-")
        answers = (cells.get((models, pair, backend), "") for backend in record)
        yield row((model.removesuffix("-keras"), policy, *answers))
