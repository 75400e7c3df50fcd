"""The fields of ``inspect --summary``, of which JSON and the rows of CSV and Parquet consist."""

from __future__ import annotations

from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, Final

from policytool.commands.summary import POLICIES, saved_bytes
from policytool.model.model import Obstacle, Outcome
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
from policytool.reports.rows import row_columns, row_values
from policytool.reports.shared_fields import FORMAT, PATH_TEXT, WRITTEN_BY_TEXT, failures_field

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.commands.summary import (
        FleetSummary,
        ModelRecord,
        PolicyCount,
        ReasonCount,
        ReleaseCount,
        Saving,
    )
    from policytool.reports.layout import View


def _counts_type(key: Field[Any], amount: str, kind: Type) -> Type:
    """Return the type of a list of amounts, each with what has it; its values are mappings."""
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
