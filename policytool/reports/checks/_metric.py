"""The metric of the model's own task, under both policies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.reports.figures import figure
from policytool.reports.page import Cell, Column, Row, Tone, table_section

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.numerics.check_results.checks import CheckRun
    from policytool.numerics.check_results.metrics import OutputMetric, TaskMetric
    from policytool.reports.page import Section

_METRIC_WIDTH: Final = 9
_DIGITS: Final = 5


def metric_sentence(task_metric: TaskMetric) -> str:
    """Return how the metric changes in the output where it gets worse by most."""
    worst = task_metric.worst
    of_output = f" of output {worst.output}" if len(task_metric.outputs) > 1 else ""
    text = change_words(f"metric {task_metric.name}{of_output}", worst)
    if worst.drop is None or worst.drop <= 0:
        return text
    better = "" if task_metric.higher_is_better else "; lower is better"
    return f"{text} (allowed {figure(worst.max_drop)}{better})"


def change_words(name: str, output_metric: OutputMetric) -> str:
    """Return how the metric of one output changes."""
    ends = (
        f"from {metric_value(output_metric.reference)} to {metric_value(output_metric.candidate)}"
    )
    if output_metric.drop is None:
        return f"{name} cannot be compared: it changes {ends}"
    if not output_metric.drop:
        return f"{name} is {metric_value(output_metric.reference)} in both models"
    if output_metric.drop < 0:
        return f"{name} gets better, {ends}"
    return f"{name} gets worse by {figure(output_metric.drop)}, {ends}"


def metric_section(run: CheckRun) -> Iterator[Section]:
    """Yield the metric of each output that has labels."""
    task_metric = run.verdict.metric
    if task_metric is None:
        return
    better = "higher" if task_metric.higher_is_better else "lower"
    yield table_section(
        f"metric {task_metric.name}",
        (
            Column(title="output", minimum=14, is_name=True),
            *(
                Column(title=title, minimum=_METRIC_WIDTH)
                for title in ("reference", "candidate", "drop", "allowed")
            ),
        ),
        [_metric_row(output_metric) for output_metric in task_metric.outputs],
        [f"{better} values are better"],
    )


def _metric_row(output_metric: OutputMetric) -> Row:
    tone = Tone.PLAIN if output_metric.passed else Tone.BAD
    return Row(
        cells=(
            Cell(text=output_metric.output or "all", tone=tone),
            Cell(text=metric_value(output_metric.reference)),
            Cell(text=metric_value(output_metric.candidate), tone=tone),
            Cell(text=figure(output_metric.drop), tone=tone),
            Cell(
                text=figure(output_metric.max_drop),
                tone=Tone.DIM if output_metric.passed else Tone.PLAIN,
            ),
        ),
        is_missed=not output_metric.passed,
    )


def metric_value(number: float) -> str:
    return f"{number:.{_DIGITS}g}"
