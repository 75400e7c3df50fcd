"""Outcomes of many random models as JSON: those that are not ``same``, and how many there were."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from tests.random_models.outcomes import Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_SAME: Final = "same"
_REASON: Final = 200
"""Characters of a reason that are kept."""


def write(path: Path, library: str, outcomes: Sequence[Outcome]) -> None:
    """Write the outcomes of models of one library into a record, in place of those that it has."""
    found = _read(path)
    seeds = [outcome.seed for outcome in outcomes]
    found[library] = {
        "first": min(seeds),
        "models": len(seeds),
        "containers": dict(sorted(Counter(outcome.container for outcome in outcomes).items())),
        "families": dict(sorted(Counter(outcome.family for outcome in outcomes).items())),
        "rewritten": sum(outcome.rewritten for outcome in outcomes if outcome.word == _SAME),
        "others": [_entry(outcome) for outcome in outcomes if outcome.word != _SAME],
    }
    _save(path, found)


def others(path: Path, library: str) -> list[Outcome]:
    """Return the recorded outcomes that are not ``same``."""
    recorded = _read(path).get(library, {}).get("others", ())
    return [Outcome(**item) for item in recorded]


def replace(path: Path, library: str, outcomes: Sequence[Outcome]) -> None:
    """Write outcomes of models that were run again into a record."""
    found = _read(path)
    kept = {item["seed"]: item for item in found[library]["others"]}
    for one in outcomes:
        del kept[one.seed]
        if one.word != _SAME:
            kept[one.seed] = _entry(one)
        else:
            found[library]["rewritten"] += one.rewritten
    found[library]["others"] = [kept[seed] for seed in sorted(kept)]
    _save(path, found)


def _read(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return result


def _save(path: Path, found: dict[str, Any]) -> None:
    parts = []
    for library in sorted(found):
        plain = {key: value for key, value in found[library].items() if key != "others"}
        lines = ",\n".join(
            json.dumps(item, ensure_ascii=False) for item in found[library]["others"]
        )
        head = json.dumps(plain, ensure_ascii=False)[:-1]
        parts.append(f'{json.dumps(library)}: {head}, "others": [\n{lines}\n]}}')
    path.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")


def _entry(outcome: Outcome) -> dict[str, Any]:
    entry = {key: value for key, value in asdict(outcome).items() if value}
    return {**entry, "reason": outcome.reason[:_REASON]}
