"""
Compares the rule with the truth, on predictions that were made before: ``python -m
tests.trained.rule DIRECTORY [--labelled FILE] ROWS...``.

It prints each pair, and the rows of the table in ``docs/evidence/safe-rule.md``. With the file of
``tests.trained.labelled``, the labels decide as in ``policytool check --labels --metric``, and only
models with such a metric for each of their outputs count.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from policytool.formats import format_detection
from policytool.model.optimizer_config import configuration
from policytool.numerics.check_results import metrics
from policytool.numerics.check_results.metrics import CheckedOutput
from policytool.numerics.check_results.verdicts import Answer, OutputAnswer, worst
from policytool.numerics.verdicts import safety
from policytool.numerics.verdicts.output_kinds import losses_by_output
from policytool.numerics.verdicts.task_metric import metric_from_json
from policytool.runtime.engine.output_changes import OutputChanges
from policytool.support.text import codec
from tests.trained import truth
from tests.trained.pairs import POLICIES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

BATCH: Final = 256


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """A model with a candidate, and what its first rows say."""

    name: str
    rows: int
    harm: tuple[str, ...]
    """What is worse on all rows; empty for a harmless candidate."""

    answer: Answer
    outputs: tuple[OutputAnswer, ...]

    @property
    def is_wrong(self) -> bool:
        """Whether the rule says the opposite of the truth."""
        return self.answer is (Answer.SAFE if self.harm else Answer.NOT_SAFE)


def recorded_losses(place: Path, names: Sequence[str]) -> Mapping[str, str]:
    """Return the losses that the file records, by output."""
    about = json.loads((place / "about.json").read_text(encoding="utf-8"))
    path = place / about["model"]
    config = configuration(format_detection.document(path, path.name))
    loss = config.get("loss") if isinstance(config, dict) else None
    return losses_by_output(loss, names)


def checked_output(fact: Mapping[str, Any], before: Any, after: Any) -> CheckedOutput:
    """Return an output as a check measures it."""
    changes = OutputChanges()
    for start in range(0, len(before), BATCH):
        changes.update(before[start : start + BATCH], after[start : start + BATCH])
    return CheckedOutput(
        shape=tuple(fact["shape"]),
        dtype_reference="float32",
        dtype_candidate="float32",
        accumulated=None,
        name=fact["name"],
        activation=fact["activation"],
        changes=codec.read(metrics.OutputChanges, changes.to_json()),
    )


def answers(
    place: Path, policy: str, rows: int, labelled: Mapping[str, Any] | None
) -> tuple[OutputAnswer, ...] | None:
    """Return what the first rows say of each output; None if an output has no measured metric."""
    facts = json.loads((place / "facts.json").read_text(encoding="utf-8"))
    losses = recorded_losses(place, [fact["name"] for fact in facts])
    reference, candidate = (dict(np.load(place / f"{name}.npz")) for name in ("reference", policy))
    found: list[OutputAnswer] = []
    for fact in facts:
        name = fact["name"]
        output = checked_output(fact, *(side[name][:rows] for side in (reference, candidate)))
        metric = None
        if labelled is not None:
            result = labelled.get(f"{place.name} {policy} {rows} {name}")
            if result is None and np.isfinite(candidate[name]).all():
                return None
            metric = metric_from_json(result, None)
        rule = safety.SafetyRule(loss={name: losses.get(name)})
        found += safety.answer_outputs([output], rule, metric)
    return tuple(found)


def read_pairs(
    directory: Path, counts: Sequence[int], labelled: Mapping[str, Any] | None
) -> Iterator[Pair]:
    """Yield each candidate that was made, for each number of rows."""
    for place in sorted(directory.iterdir()):
        about = json.loads((place / "about.json").read_text(encoding="utf-8"))
        for policy in POLICIES:
            if not (place / f"{policy}.npz").exists():
                continue
            reference, candidate, labels = (
                dict(np.load(place / f"{name}.npz")) for name in ("reference", policy, "labels")
            )
            harm = tuple(truth.harms(reference, candidate, labels, about["metrics"]))
            for rows in counts:
                outputs = answers(place, policy, rows, labelled)
                if outputs is not None:
                    yield Pair(
                        name=f"{place.name} {policy}",
                        rows=rows,
                        harm=harm,
                        answer=worst(output.answer for output in outputs),
                        outputs=outputs,
                    )


def described(output: OutputAnswer) -> str:
    """Return what decides of an output, in one phrase."""
    if output.labels is not None:
        lower, upper = output.labels.bounds or (float("nan"), float("nan"))
        drop = float("nan") if output.labels.drop is None else output.labels.drop
        return f"labels {drop:.4g} [{lower:.4g}, {upper:.4g}] of {output.labels.max_drop:.4g}"
    if output.deciding is None:
        return f"{output.why} {output.spoiled}"
    change = output.deciding.change
    text = f"{output.deciding.kind.value} {change.value:.4f} "
    return text + f"[{change.lower:.4f}, {change.upper:.4f}]"


def table_rows(pairs: Sequence[Pair], rows: int, title: str) -> list[str]:
    """
    Return the rows of the table: harmful, harmless and all pairs by answer, and how often the rule
    may be wrong of them, at 95 % confidence.

    Of all pairs, only a false "safe" is counted as wrong.
    """
    counts = Counter((bool(pair.harm), pair.answer) for pair in pairs if pair.rows == rows)
    false_safe = counts[True, Answer.SAFE]
    kinds = (
        ("harmful", (True,), false_safe),
        ("harmless", (False,), counts[False, Answer.NOT_SAFE]),
        ("all", (True, False), false_safe),
    )
    lines = []
    for text, harms, wrong in kinds:
        cells = [
            sum(counts[harm, answer] for harm in harms)
            for answer in (Answer.SAFE, Answer.UNDECIDED, Answer.NOT_SAFE)
        ]
        upper = safety.share_bounds(wrong, sum(cells)).upper
        numbers = " | ".join(map(str, [sum(cells), *cells]))
        lines.append(f"| {title} | {rows:,} | {text} | {numbers} | {wrong} (at most {upper:.1%}) |")
    return lines


def main() -> None:
    """Print the pairs and the tables."""
    parser = argparse.ArgumentParser(description="Compare the rule with the truth.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("rows", type=int, nargs="+")
    parser.add_argument("--labelled", type=Path, help="the file of tests.trained.labelled")
    parser.add_argument("--title", default="", help="the first cell of the rows of the table")
    given = parser.parse_args()
    labelled = None if given.labelled is None else json.loads(given.labelled.read_text("utf-8"))
    pairs = list(read_pairs(given.directory, given.rows, labelled))
    for pair in pairs:
        print(
            f"{'WRONG ' if pair.is_wrong else ''}{pair.name} {pair.rows}: {pair.answer.value}; "
            f"{'; '.join(map(described, pair.outputs))}; truth: "
            f"{', '.join(pair.harm) or 'no harm'}"
        )
    for rows in given.rows:
        print("\n".join(table_rows(pairs, rows, given.title)))


if __name__ == "__main__":
    main()
