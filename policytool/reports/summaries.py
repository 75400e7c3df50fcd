"""
Reports of ``inspect --summary``: a page for people, a row for each model as CSV and Parquet, and
JSON.

The page has the number of models, the number that current releases load, and the memory that
another policy would save, followed by tables of common properties of the models.
"""

from __future__ import annotations

from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, Final

from policytool.commands.summary import OTHER, POLICIES, saved_bytes
from policytool.formats import TITLES
from policytool.model.model import Obstacle, Outcome
from policytool.releases.releases import CURRENT
from policytool.reports.fields import (
    COUNT,
    OPTIONAL_TEXT,
    POSITIVE,
    SENTENCE,
    TEXT,
    TEXTS,
    CellType,
    Field,
    Record,
    Report,
    Type,
    choice,
    choice_of,
    items,
    nullable,
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
    Section,
    Sentence,
    Tone,
    Verdict,
    fields_section,
)
from policytool.reports.reporter import Reporter, json_reporter, reporters_for_people
from policytool.reports.rows import csv_reporter, parquet_reporter, row_columns, row_values
from policytool.reports.shared_fields import FORMAT, PATH_TEXT, WRITTEN_BY_TEXT, failures_field
from policytool.reports.words import (
    FAILS,
    UNKNOWN,
    bytes_words,
    failure_facts,
    generation_words,
    many,
)
from policytool.support.grouping import group_pairs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from policytool.commands.summary import (
        FleetSummary,
        ModelRecord,
        PolicyCount,
        ReasonCount,
        ReleaseCount,
        Saving,
    )
    from policytool.reports.layout import View
    from policytool.reports.page import Block


_SHOWN: Final = 10
"""The maximum number of reasons per release, and of policies; JSON and HTML have all."""

_NO_POLICY: Final = "(no policy)"
_WORDS: Final = {Outcome.INCOMPATIBLE: FAILS, Outcome.UNKNOWN: UNKNOWN}
_ASSUMPTION: Final = (
    "Savings assume that each floating-point variable in a dtype wider than the policy's variable "
    "dtype is stored in that dtype. Other variables, optimizer state and file headers do not count."
)


def page(summary: FleetSummary, view: View) -> Page:
    """Return the page; if there are no models, it has only failures."""
    blocks = tuple(_blocks(summary, view)) if summary.models else ()
    return Page(groups=(blocks,) if blocks else (), failures=failure_facts(summary.failures))


def _blocks(summary: FleetSummary, view: View) -> Iterator[Block]:
    yield _verdict(summary)
    yield Facts(facts=tuple(_facts(summary)))
    yield Sentence(text=_ASSUMPTION, tone=Tone.DIM)
    formats = {TITLES.get(name, name): count for name, count in summary.formats.items()}
    written = {generation_words(name): count for name, count in summary.generations.items()}
    most = None if view.is_searchable else _SHOWN
    yield fields_section("Models by release", _RELEASE_TABLE, summary.releases)
    yield _reasons(summary.releases, most)
    yield _counts("Formats", "format", formats)
    yield _counts("Releases that wrote the models", "written by", written)
    yield _policies(summary, most)
    yield fields_section("Largest models", _MODEL_TABLE, summary.largest)
    if view.is_searchable:
        yield _chart("Models by format", formats)
        yield _chart("Models by the release that wrote them", written)


def _verdict(summary: FleetSummary) -> Verdict:
    loading = [
        f"{count.loads:,} load{'s' * (count.loads == 1)} in {generation_words(count.release)}"
        for count in summary.releases
        if count.release in CURRENT
    ]
    models = many(summary.models, "model")
    return Verdict.whole("; ".join([models, *loading]), Tone.PLAIN)


def _facts(summary: FleetSummary) -> Iterator[Fact]:
    yield Fact(
        label="layers",
        text=f"{summary.layers:,}, with {many(summary.parameters, 'parameter')}",
    )
    dtypes = ", ".join(
        f"{bytes_words(count)} {dtype}" for dtype, count in summary.stored.items() if count
    )
    yield Fact(label="stored", text=bytes_words(summary.bytes) + (f": {dtypes}" if dtypes else ""))
    savings = group_pairs(
        ((saving.bytes, saving.models), saving.policy) for saving in summary.savings
    )
    for (saved, models), policies in savings.items():
        share = f" ({saved / summary.bytes:.0%})" if saved else ""
        model_words = f" in {many(models, 'model')}" if saved else ""
        yield Fact(
            label="saving", text=f"{', '.join(policies)}: {bytes_words(saved)}{share}{model_words}"
        )


def _chart(title: str, counts: Mapping[str, int]) -> Bars:
    bars = (Bar(label=name, value=count, text=f"{count:,}") for name, count in counts.items())
    return Bars(title=title, bars=tuple(bars))


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
        yield _reason(f"other in {name}", models, many(len(others), "other reason"))


def _reason(label: str, models: int, text: str) -> Item:
    return Item(label=label, text=f"{many(models, 'model')}: {text}")


def _counts(title: str, column: str, counts: Mapping[str, int]) -> Section:
    name = (Column(title=column, minimum=20), lambda item: Cell(text=item[0]))
    return fields_section(title, (name, _number("models", itemgetter(1))), list(counts.items()))


def _number(
    title: str, value: Callable[[Any], int], priority: int = 0
) -> tuple[Column, Callable[[Any], Cell]]:
    """Return a column of numbers, and the function that returns its cells."""
    return Column(title=title, priority=priority), lambda item: Cell(text=f"{value(item):,}")


_RELEASE_TABLE: Final[Sequence[tuple[Column, Callable[[ReleaseCount], Cell]]]] = (
    (
        Column(title="release", minimum=12),
        lambda count: Cell(text=generation_words(count.release)),
    ),
    (
        Column(title="loads"),
        lambda count: Cell(text=f"{count.loads:,}", tone=Tone.GOOD if count.loads else Tone.PLAIN),
    ),
    _number("fails", attrgetter("incompatible")),
    _number("unknown", attrgetter("unknown")),
    _number("not applicable", attrgetter("not_applicable")),
)
_POLICY_TABLE: Final[Sequence[tuple[Column, Callable[[PolicyCount], Cell]]]] = (
    (
        Column(title="policy", minimum=20, is_name=True),
        lambda count: Cell(
            text=count.policy or _NO_POLICY, is_code=count.policy not in {None, OTHER}
        ),
    ),
    _number("models", attrgetter("models")),
    _number("layers", attrgetter("layers")),
)
_MODEL_TABLE: Final[Sequence[tuple[Column, Callable[[ModelRecord], Cell]]]] = (
    (Column(title="model", minimum=20, is_name=True), lambda model: Cell(text=model.path)),
    (Column(title="format", priority=2), lambda model: Cell(text=model.format)),
    _number("layers", attrgetter("layers"), priority=1),
    _number("parameters", attrgetter("parameters"), priority=3),
    (Column(title="stored"), lambda model: Cell(text=bytes_words(model.bytes))),
)


def _policies(summary: FleetSummary, most: int | None) -> Section:
    hidden_count = len(summary.policies) - len(summary.policies[:most])
    sentences = [f"{hidden_count:,} more policies are in the JSON report."] if hidden_count else []
    return fields_section("Policies", _POLICY_TABLE, summary.policies[:most], sentences)


def _counts_type(key: Field[Any], amount: str, kind: Type) -> Type:
    """Return the type of a list of amounts with their keys; its values are mappings."""
    record = Record[tuple[Any, int]](
        "",
        (
            key._replace(value=itemgetter(0)),
            Field(amount, kind, value=itemgetter(1)),
        ),
    )
    return Type(
        items(record).schema(),
        record,
        encode=lambda counts: list(map(record.values, counts.items())),
    )


_WRITTEN_BY: Final[Field[ModelRecord]] = Field(
    "written_by", OPTIONAL_TEXT, WRITTEN_BY_TEXT, value=attrgetter("generation")
)
_MODEL: Final[Record[ModelRecord]] = Record(
    "",
    (
        Field("path", TEXT, PATH_TEXT),
        Field("format", FORMAT, "The format of the model."),
        Field("layers", COUNT, "The number of layers."),
        Field("parameters", COUNT, "The number of stored parameters."),
        Field("bytes", COUNT, "The size of the stored variables in bytes."),
        _WRITTEN_BY,
    ),
)
_REASON: Final[Record[ReasonCount]] = Record(
    "reason",
    (
        Field(
            "cause",
            nullable(choice_of(Obstacle)),
            "The part of the model that the reason is about; null for reasons beyond the first "
            "1,000 different ones.",
        ),
        Field(
            "reason",
            SENTENCE,
            "The reason without a period; other for reasons beyond the first 1,000 different ones.",
        ),
        Field("models", POSITIVE),
        Field("verdict", choice("incompatible", "unknown"), value=attrgetter("loading")),
    ),
    "The reason why a release fails to load models, or why this is unknown. Each such model counts "
    "once, with its first reason.",
)
_RELEASE: Final[Record[ReleaseCount]] = Record(
    "",
    (
        Field("release", SENTENCE),
        Field("loads", COUNT, "Number of models that the release loads with compile=False."),
        Field("incompatible", COUNT, "Number of models that the release fails to load."),
        Field("unknown", COUNT, "Number of models whose files do not contain enough information."),
        Field(
            "not_applicable", COUNT, "Number of models in formats that load_model does not read."
        ),
        Field("reasons", items(_REASON)),
    ),
)
_POLICY: Final[Record[PolicyCount]] = Record(
    "",
    (Field("policy", OPTIONAL_TEXT), Field("models", POSITIVE), Field("layers", POSITIVE)),
)
_SAVING: Final[Record[Saving]] = Record(
    "",
    (
        Field("policy", choice(*(policy for policy, _ in POLICIES))),
        Field("models", COUNT, "Number of models that become smaller."),
        Field("bytes", COUNT),
    ),
)

REPORT: Final[Report[FleetSummary]] = Report(
    "inspect --summary",
    1,
    "Totals over many saved models. Lists are sorted by count, in descending order. Additions keep "
    "the version number; any other change increases it.",
    (
        Field("models", COUNT, "Number of models that could be read."),
        Field("layers", COUNT, "Number of layers in all models, including the models themselves."),
        Field("parameters", COUNT, "Number of stored parameters in all models."),
        Field(
            "bytes",
            COUNT,
            "Size of the stored variables of all models, without optimizer state and file headers.",
        ),
        Field(
            "formats",
            _counts_type(Field("format", FORMAT), "models", POSITIVE),
            "Number of models in each format.",
        ),
        Field(
            "written_by",
            _counts_type(Field("written_by", OPTIONAL_TEXT), "models", POSITIVE),
            "Number of models by the narrowest range of releases that could have written them; "
            "null if unknown.",
            value=attrgetter("generations"),
        ),
        Field(
            "policies",
            items(_POLICY),
            "Number of models and layers with each policy. null: layers without a policy. other: "
            "all policies beyond the first 1,000 different ones.",
        ),
        Field(
            "releases",
            items(_RELEASE),
            "The newest tf_keras and Keras, or with --releases all every tested release. The four "
            "numbers of a release add up to the number of models.",
        ),
        Field(
            "stored_dtypes",
            _counts_type(Field("dtype", TEXT), "bytes", COUNT),
            "Size of the stored variables in each dtype. other: all dtypes beyond the first 1,000 "
            "different ones.",
            value=attrgetter("stored"),
        ),
        Field(
            "savings",
            items(_SAVING),
            "Bytes saved if each floating-point variable in a dtype wider than the variable dtype "
            "of the policy is stored in that dtype.",
        ),
        Field(
            "largest",
            items(_MODEL, maxItems=10),
            "The ten models with the largest stored variables.",
        ),
        failures_field(),
        Field(
            "skipped",
            COUNT,
            "Number of files in directories or globs that are not models.",
            value=attrgetter("passed_over"),
        ),
    ),
)


def _releases_with(outcome: Outcome) -> Field[ModelRecord]:
    return Field(
        outcome.value,
        items(TEXT, cell=CellType.WORDS),
        f"The releases with the verdict `{outcome.value}`.",
        value=lambda record: [
            verdict.release for verdict in record.outcomes if verdict.loading is outcome
        ],
    )


def _saving(policy: str, dtype: str) -> Field[ModelRecord]:
    return Field(
        policy,
        COUNT,
        "The bytes that the policy would save.",
        value=lambda record: saved_bytes(record.stored, dtype),
    )


_SAVINGS: Final[Record[ModelRecord]] = Record("", [_saving(*policy) for policy in POLICIES])
_ROW: Final[Record[ModelRecord]] = Record(
    "",
    (
        *_MODEL.fields,
        Field(
            "stored_dtypes",
            items(TEXT, cell=CellType.WORDS),
            "The dtypes of the stored variables.",
            value=lambda record: list(record.stored),
        ),
        Field(
            "policies",
            TEXTS,
            "The policies of the layers.",
            value=lambda record: list(record.policies),
        ),
        *map(_releases_with, Outcome),
        Field(
            "reasons",
            TEXTS,
            "The release and the reason for each release that does not load the model for certain.",
            value=lambda record: [
                f"{verdict.release}: {verdict.reason}"
                for verdict in record.outcomes
                if verdict.reason is not None
            ],
        ),
        Field(
            "savings",
            _SAVINGS,
            value=lambda record: record,
        ),
    ),
)
ROW_COLUMNS: Final = row_columns(
    _ROW,
    (
        *("path", "format", "written_by", "layers", "parameters", "bytes", "stored_dtypes"),
        "policies",
        *(outcome.value for outcome in Outcome),
        "reasons",
        *(f"savings.{policy}" for policy, _ in POLICIES),
    ),
)
"""The columns of CSV and Parquet, one row for each model; later releases add columns at the end."""


def rows(summary: FleetSummary, _view: View) -> Iterator[list[Any]]:
    """Yield the values of each model."""
    for record in summary.records:
        yield row_values(ROW_COLUMNS, _ROW.values(record))


SUMMARY_REPORTERS: Final[tuple[Reporter[FleetSummary], ...]] = (
    *reporters_for_people(page, "policytool inspect --summary"),
    csv_reporter(ROW_COLUMNS, rows),
    json_reporter(REPORT),
)
"""The first is the default."""

PARQUET_REPORTER: Final = parquet_reporter(ROW_COLUMNS, rows)

WITH_ROWS: Final = frozenset({"csv", PARQUET_REPORTER.name})
"""The reports that need the record of each model."""

__all__ = ["PARQUET_REPORTER", "SUMMARY_REPORTERS", "WITH_ROWS", "page"]
