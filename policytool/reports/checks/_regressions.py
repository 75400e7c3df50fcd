"""What changed since an earlier check."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.numerics.check_results.regressions import Change, Subject
from policytool.reports.checks._shown import NUMBER
from policytool.reports.figures import figure, many
from policytool.reports.page import Cell, Column, Row, Tone, table_section
from policytool.support.errors import short
from policytool.support.shorten import join_first

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.numerics.check_results.checks import Check
    from policytool.numerics.check_results.regressions import Comparison, Difference
    from policytool.reports.page import Section

_ROWS: Final = 10
_DIGITS: Final = 5
_WORDS: Final = {
    Change.EXCEEDS: "larger than rounding explains now",
    Change.GREW: "larger",
    Change.WORSE: "worse",
    Change.WITHIN: "explained by rounding now",
    Change.SHRANK: "smaller",
    Change.BETTER: "better",
}


def sentence(found: Comparison) -> str:
    """Return whether anything is worse than in the earlier check."""
    worse = found.regressions
    if not worse:
        return f"no regression compared with {found.file}"
    first = worse[0]
    ends = f"{_value(first, first.before)} before, {_value(first, first.now)} now"
    which = "" if len(worse) == 1 else "the first one, "
    return (
        f"{many(len(worse), 'regression')} compared with {found.file}: {which}"
        f"{first.about.value} {first.path} ({ends})"
    )


def comparison(check: Check, *, everything: bool) -> Iterator[Section]:
    """Yield what changed, regressions first."""
    found = check.comparison
    if found is None:
        return
    shown = found.differences if everything else found.differences[:_ROWS]
    several = len({(one.device, one.signature) for one in found.differences}) > 1
    titles = [*(["run"] if several else []), "before", "now", "allowed", "change"]
    yield table_section(
        f"compared with {found.file}",
        (
            Column(title="output, layer or metric", minimum=20, is_name=True),
            *(Column(title=title, minimum=NUMBER) for title in titles),
        ),
        [_row(one, several=several) for one in shown],
        [*_sentences(found, len(shown))],
    )


def _row(one: Difference, *, several: bool) -> Row:
    tone = Tone.BAD if one.is_regression else Tone.GOOD
    run = [Cell(text=" ".join([one.device, *([one.signature] if one.signature else [])]))]
    return Row(
        cells=(
            Cell(text=one.path, tone=Tone.BAD if one.is_regression else Tone.PLAIN),
            *(run if several else []),
            Cell(text=_value(one, one.before)),
            Cell(text=_value(one, one.now)),
            Cell(text=figure(one.allowed)),
            Cell(text=_WORDS[one.change], tone=tone),
        ),
        is_missed=one.is_regression,
    )


def _sentences(found: Comparison, shown: int) -> Iterator[str]:
    count = many(found.paired, "error")
    changed = sum(one.about is not Subject.METRIC for one in found.differences)
    yield f"{count} compared, {found.paired - changed:,} without a large change"
    if len(found.differences) > shown:
        more = many(len(found.differences) - shown, "more change")
        yield f"{more} not shown; use --all-layers to show all"
    for names, which in ((found.only_before, "the earlier check"), (found.only_now, "this check")):
        if names:
            listed = join_first([short(name) for name in names])
            yield f"only in {which}: {listed}"
    yield from found.notes


def _value(one: Difference, number: float | None) -> str:
    if number is None:
        return ""
    return f"{number:.{_DIGITS}g}" if one.about is Subject.METRIC else figure(number)
