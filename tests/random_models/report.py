"""Outcomes as text: a table, refusals by their code, and each failure."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Final

from tests.random_models.outcomes import BAD, GOOD, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_COLUMNS: Final = ("same", "near", "refused", *BAD, "reference failed")


def lines(library: str, target: str, outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Yield the lines about models of one library."""
    yield f"## {library} to {target}"
    built = [outcome for outcome in outcomes if outcome.word != "reference failed"]
    rows = {container: [outcome for outcome in outcomes if outcome.container == container]
            for container in sorted({outcome.container for outcome in outcomes})}  # fmt: skip
    for container, found in [*rows.items(), ("all", list(outcomes))]:
        counts = Counter(_column(item) for item in found)
        yield f"{container:6} {len(found):5}  " + "  ".join(
            f"{name} {counts[name]}" for name in _COLUMNS if counts[name]
        )
    good = sum(item.word in GOOD for item in built)
    rewritten = sum(item.word in GOOD and item.rewritten for item in built)
    yield (
        f"converted {good} of {len(built)} ({100 * good / max(1, len(built)):.1f} %), "
        f"{rewritten} of them with --allow weight-rewrite"
    )
    refusals = Counter(outcome.word for outcome in outcomes if outcome.word.startswith("refused"))
    for word, count in refusals.most_common():
        example = next(outcome for outcome in outcomes if outcome.word == word)
        yield f"  {count:4} {word}, as {example.seed}: {example.reason[:160]}"
    for one in sorted(outcomes, key=lambda one: (one.word, one.seed)):
        if _column(one) in {*BAD, "reference failed"}:
            yield f"  {one.seed} [{one.family}, {one.container}] {one.word}: {one.reason[:300]}"
            if one.own and one.word != "reference failed":
                yield f"      its own library: {one.own[:160]}"


def _column(outcome: Outcome) -> str:
    return "refused" if outcome.word.startswith("refused") else outcome.word.partition(":")[0]


def representatives(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Return a few outcomes for each word and reason, whatever the names and numbers in it."""
    groups: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in outcomes:
        differs = outcome.word == "DIFFERS"  # for as many causes as there are models
        text = str(outcome.seed) if differs else re.sub(r"[\d'\"(\[].*", "", outcome.reason)
        groups.setdefault((outcome.word, text), []).append(outcome)
    return [found[0] for found in groups.values()]
