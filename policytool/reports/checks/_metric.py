"""The metric of the model's own task, under both policies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.reports.figures import figure
from policytool.reports.page import Cell, Column, Row, Tone, table_section

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.numerics.check_results.checks import CheckRun
    from policytool.numerics.check_results.task_metrics import OutputMetric, TaskMetric
    from policytool.reports.page import Section

_NUMBER: Final = 9
_DIGITS: Final = 5


def sentence(found: TaskMetric) -> str:
    """Return what becomes of the metric: of the output for which it gets worse by most."""
    worst = found.worst
    of_output = f" of output {worst.output}" if len(found.outputs) > 1 else ""
    text = change_words(f"metric {found.name}{of_output}", worst)
    if worst.drop is None or worst.drop <= 0:
        return text
    better = "" if found.higher_is_better else "; lower is better"
    return f"{text} (allowed {figure(worst.max_drop)}{better})"


def change_words(name: str, found: OutputMetric) -> str:
    """Return how the metric of one output changes."""
    ends = f"from {_value(found.reference)} to {_value(found.candidate)}"
    if found.drop is None:
        return f"{name} cannot be compared: it changes {ends}"
    if not found.drop:
        return f"{name} is {_value(found.reference)} in both models"
    if found.drop < 0:
        return f"{name} gets better, {ends}"
    return f"{name} gets worse by {figure(found.drop)}, {ends}"


def metric(run: CheckRun) -> Iterator[Section]:
    """Yield the metric of each output that has labels."""
    found = run.verdict.metric
    if found is None:
        return
    better = "higher" if found.higher_is_better else "lower"
    yield table_section(
        f"metric {found.name}",
        (
            Column(title="output", minimum=14, is_name=True),
            *(
                Column(title=title, minimum=_NUMBER)
                for title in ("reference", "candidate", "drop", "allowed")
            ),
        ),
        [_row(one) for one in found.outputs],
        [f"{better} values are better"],
    )


def _row(one: OutputMetric) -> Row:
    tone = Tone.PLAIN if one.passed else Tone.BAD
    return Row(
        cells=(
            Cell(text=one.output or "all", tone=tone),
            Cell(text=_value(one.reference)),
            Cell(text=_value(one.candidate), tone=tone),
            Cell(text=figure(one.drop), tone=tone),
            Cell(text=figure(one.max_drop), tone=Tone.DIM if one.passed else Tone.PLAIN),
        ),
        is_missed=not one.passed,
    )


def _value(number: float) -> str:
    return f"{number:.{_DIGITS}g}"
