"""What changed since an earlier check."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.numerics.check_results.verdicts import Change, Subject
from policytool.reports.checks._layers import NUMBER
from policytool.reports.checks._metric import metric_value
from policytool.reports.figures import figure, many
from policytool.reports.page import Cell, Column, Row, Tone, table_section
from policytool.support.errors import short
from policytool.support.shorten import join_first

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.numerics.check_results.checks import Check
    from policytool.numerics.check_results.verdicts import Comparison, Difference
    from policytool.reports.page import Section

_ROWS: Final = 10
_WORDS: Final = {
    Change.EXCEEDS: "larger than rounding explains now",
    Change.GREW: "larger",
    Change.WORSE: "worse",
    Change.WITHIN: "explained by rounding now",
    Change.SHRANK: "smaller",
    Change.BETTER: "better",
}


def comparison_sentence(comparison: Comparison) -> str:
    """Return whether anything is worse than in the earlier check."""
    worse = comparison.regressions
    if not worse:
        return f"no regression compared with {comparison.file}"
    first = worse[0]
    before, now = (_difference_value(first, value) for value in (first.before, first.now))
    which = "" if len(worse) == 1 else "the first one, "
    return (
        f"{many(len(worse), 'regression')} compared with {comparison.file}: {which}"
        f"{first.about.value} {first.path} ({before} before, {now} now)"
    )


def comparison_section(check: Check, *, everything: bool) -> Iterator[Section]:
    """Yield what changed, regressions first."""
    earlier_comparison = check.comparison
    if earlier_comparison is None:
        return
    visible_differences = (
        earlier_comparison.differences if everything else earlier_comparison.differences[:_ROWS]
    )
    several = (
        len(
            {
                (difference.device, difference.signature)
                for difference in earlier_comparison.differences
            }
        )
        > 1
    )
    titles = [*(["run"] if several else []), "before", "now", "allowed", "change"]
    yield table_section(
        f"compared with {earlier_comparison.file}",
        (
            Column(title="output, layer or metric", minimum=20, is_name=True),
            *(Column(title=title, minimum=NUMBER) for title in titles),
        ),
        [_difference_row(difference, several=several) for difference in visible_differences],
        [*_sentences(earlier_comparison, len(visible_differences))],
    )


def _difference_row(difference: Difference, *, several: bool) -> Row:
    tone = Tone.BAD if difference.is_regression else Tone.GOOD
    run = [
        Cell(
            text=" ".join(
                [difference.device, *([difference.signature] if difference.signature else [])]
            )
        )
    ]
    return Row(
        cells=(
            Cell(text=difference.path, tone=Tone.BAD if difference.is_regression else Tone.PLAIN),
            *(run if several else []),
            Cell(text=_difference_value(difference, difference.before)),
            Cell(text=_difference_value(difference, difference.now)),
            Cell(text=figure(difference.allowed)),
            Cell(text=_WORDS[difference.change], tone=tone),
        ),
        is_missed=difference.is_regression,
    )


def _sentences(comparison: Comparison, visible_count: int) -> Iterator[str]:
    count = many(comparison.paired, "error")
    changed = sum(difference.about is not Subject.METRIC for difference in comparison.differences)
    yield f"{count} compared, {comparison.paired - changed:,} without a large change"
    if len(comparison.differences) > visible_count:
        more = many(len(comparison.differences) - visible_count, "more change")
        yield f"{more} not shown; use --all-layers to show all"
    for names, which in (
        (comparison.only_before, "the earlier check"),
        (comparison.only_now, "this check"),
    ):
        if names:
            listed = join_first([short(name) for name in names])
            yield f"only in {which}: {listed}"
    yield from comparison.notes


def _difference_value(difference: Difference, number: float | None) -> str:
    if number is None:
        return ""
    return metric_value(number) if difference.about is Subject.METRIC else figure(number)
