"""
The page of ``inspect --summary``: how many models there are and how many current releases load,
what another policy would save, and then tables of what the models have in common.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.commands.summary import OTHER
from policytool.formats import TITLES
from policytool.model.model import Outcome
from policytool.releases.releases import CURRENT
from policytool.reports._words import (
    FAILS,
    UNKNOWN,
    bytes_words,
    failure_facts,
    generation_words,
)
from policytool.reports.page import (
    Bar,
    Bars,
    Cell,
    Column,
    Fact,
    Facts,
    Item,
    Listing,
    Page,
    Row,
    Section,
    Sentence,
    Tone,
    Verdict,
    table_section,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from policytool.commands.summary import FleetSummary, ReleaseCount
    from policytool.reports.layout import View
    from policytool.reports.page import Block

_SHOWN: Final = 10
"""Reasons of a release, and policies; JSON and HTML have all."""

_NO_POLICY: Final = "(no policy)"
_WORDS: Final = {Outcome.INCOMPATIBLE: FAILS, Outcome.UNKNOWN: UNKNOWN}
_ASSUMPTION: Final = (
    "Savings assume that each floating-point variable in a dtype wider than the policy's variable "
    "dtype is stored in that dtype. Other variables, optimizer state and file headers do not count."
)


def page(summary: FleetSummary, view: View) -> Page:
    """Return the page; without a model it has failures only."""
    blocks = tuple(_blocks(summary, view)) if summary.models else ()
    return Page(groups=(blocks,) if blocks else (), failures=failure_facts(summary.failures))


def _blocks(summary: FleetSummary, view: View) -> Iterator[Block]:
    yield _verdict(summary)
    yield Facts(facts=tuple(_facts(summary)))
    yield Sentence(text=_ASSUMPTION, tone=Tone.DIM)
    formats = {TITLES.get(name, name): count for name, count in summary.formats.items()}
    written = {generation_words(name): count for name, count in summary.generations.items()}
    most = None if view.is_searchable else _SHOWN
    yield _releases(summary.releases)
    yield _reasons(summary.releases, most)
    yield _counts("Formats", "format", formats)
    yield _counts("Releases that wrote the models", "written by", written)
    yield _policies(summary, most)
    yield _largest(summary)
    if view.is_searchable:
        yield _chart("Models by format", formats)
        yield _chart("Models by the release that wrote them", written)


def _verdict(summary: FleetSummary) -> Verdict:
    loading = [
        f"{count.loads:,} load{'s' * (count.loads == 1)} in {generation_words(count.release)}"
        for count in summary.releases
        if count.release in CURRENT
    ]
    models = _count_words(summary.models, "model")
    return Verdict.whole("; ".join([models, *loading]), Tone.PLAIN)


def _facts(summary: FleetSummary) -> Iterator[Fact]:
    yield Fact(
        label="layers",
        text=f"{summary.layers:,}, with {_count_words(summary.parameters, 'parameter')}",
    )
    dtypes = ", ".join(
        f"{bytes_words(count)} {dtype}" for dtype, count in summary.stored.items() if count
    )
    yield Fact(label="stored", text=bytes_words(summary.bytes) + (f": {dtypes}" if dtypes else ""))
    by: dict[tuple[int, int], list[str]] = {}
    for saving in summary.savings:
        by.setdefault((saving.bytes, saving.models), []).append(saving.policy)
    for (saved, models), policies in by.items():
        share = f" ({saved / summary.bytes:.0%})" if saved else ""
        several = f" in {_count_words(models, 'model')}" if saved else ""
        yield Fact(
            label="saving", text=f"{', '.join(policies)}: {bytes_words(saved)}{share}{several}"
        )


def _chart(title: str, counts: Mapping[str, int]) -> Bars:
    bars = (Bar(label=name, value=count, text=f"{count:,}") for name, count in counts.items())
    return Bars(title=title, bars=tuple(bars))


def _releases(releases: Sequence[ReleaseCount]) -> Section:
    columns = (
        Column(title="release", minimum=12),
        *(Column(title=title) for title in ("loads", "fails", "unknown", "not applicable")),
    )
    rows = [
        Row(
            cells=(
                Cell(text=generation_words(count.release)),
                Cell(text=f"{count.loads:,}", tone=Tone.GOOD if count.loads else Tone.PLAIN),
                Cell(text=f"{count.incompatible:,}"),
                Cell(text=f"{count.unknown:,}"),
                Cell(text=f"{count.not_applicable:,}"),
            )
        )
        for count in releases
    ]
    return table_section("Models by release", columns, rows)


def _reasons(releases: Sequence[ReleaseCount], most: int | None) -> Section:
    items = tuple(item for release in releases for item in _release_reasons(release, most))
    return Section(
        title="Reasons why models fail to load, or may fail",
        blocks=(Listing(items=items),) if items else (Sentence(text="No model fails to load."),),
    )


def _release_reasons(release: ReleaseCount, most: int | None) -> Iterator[Item]:
    """
    Yield the most frequent reasons, those for incompatible models first, and the number of the
    others.
    """
    name = generation_words(release.release)
    frequent, others = release.reasons[:most], release.reasons[len(release.reasons[:most]) :]
    for loading, words in _WORDS.items():
        for reason_count in frequent:
            if reason_count.loading is loading:
                reason = "other reasons" if reason_count.reason == OTHER else reason_count.reason
                yield _reason(f"{words} {name}", reason_count.models, reason)
    if others:
        models = sum(reason_count.models for reason_count in others)
        yield _reason(f"other in {name}", models, _count_words(len(others), "other reason"))


def _reason(label: str, models: int, text: str) -> Item:
    return Item(label=label, text=f"{_count_words(models, 'model')}: {text}", names="")


def _counts(title: str, column: str, counts: Mapping[str, int]) -> Section:
    columns = (Column(title=column, minimum=20), Column(title="models"))
    rows = [Row(cells=(Cell(text=name), Cell(text=f"{count:,}"))) for name, count in counts.items()]
    return table_section(title, columns, rows)


def _policies(summary: FleetSummary, most: int | None) -> Section:
    columns = (
        Column(title="policy", minimum=20, is_name=True),
        Column(title="models"),
        Column(title="layers"),
    )
    rows = [
        Row(
            cells=(
                Cell(
                    text=policy_count.policy or _NO_POLICY,
                    is_code=policy_count.policy not in {None, OTHER},
                ),
                Cell(text=f"{policy_count.models:,}"),
                Cell(text=f"{policy_count.layers:,}"),
            )
        )
        for policy_count in summary.policies[:most]
    ]
    more = len(summary.policies) - len(rows)
    sentences = [f"{more:,} more policies are in the JSON report."] if more else []
    return table_section("Policies", columns, rows, sentences)


def _largest(summary: FleetSummary) -> Section:
    columns = (
        Column(title="model", minimum=20, is_name=True),
        Column(title="format", priority=2),
        Column(title="layers", priority=1),
        Column(title="parameters", priority=3),
        Column(title="stored"),
    )
    rows = [
        Row(
            cells=(
                Cell(text=model.path),
                Cell(text=model.format),
                Cell(text=f"{model.layers:,}"),
                Cell(text=f"{model.parameters:,}"),
                Cell(text=bytes_words(model.bytes)),
            )
        )
        for model in summary.largest
    ]
    return table_section("Largest models", columns, rows)


def _count_words(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' if number != 1 else ''}"
