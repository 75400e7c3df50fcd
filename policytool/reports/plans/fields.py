"""
The fields of the JSON report of ``migrate``, which ``--plan`` reads.

The result of comparing predictions is a part of the first line for people, and an object in JSON;
its functions come first.
"""

from __future__ import annotations

from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import Struct

from policytool.commands.migrate import Status
from policytool.formats import REWRITTEN, TITLES, keras_hub
from policytool.formats.discovery import display_path
from policytool.formats.edits import EditKind
from policytool.migration.plan import NoteSeverity
from policytool.numerics.workers import gibibytes_text
from policytool.releases.releases import BACKENDS, library_and_version
from policytool.reports.fields import (
    AMOUNT,
    ANY,
    CODE,
    COUNT,
    FINITE,
    FLAG,
    OPTIONAL_COUNT,
    OPTIONAL_TEXT,
    POSITIVE,
    SENTENCE,
    TEXT,
    TEXTS,
    Field,
    Record,
    Report,
    Type,
    choice,
    choice_of,
    fields_of,
    items,
    mapping,
    nullable,
    pair,
    streamed_list,
)
from policytool.reports.shared_fields import RELEASE_VERDICT, failures_field

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from policytool.commands.inspect import Failure
    from policytool.commands.migrate import Migration
    from policytool.formats.edits import Cast, Counts, Edit, StateSlot
    from policytool.migration.plan import ConversionChange, Kept, Note, Plan, Refusal
    from policytool.numerics.predictions import PredictedCall, PredictedOutput, PredictionComparison
    from policytool.numerics.tensorflow_run import Reexport


_PRESET: Final = keras_hub.FORMAT.document_format
_LIBRARIES: Final = {"keras": "Keras", "tf": "TensorFlow", "tf_keras": "tf_keras"}


def verification_words(migration: Migration) -> list[str]:
    """
    Return the result of comparing predictions as a part of a sentence; empty if there is none.
    """
    comparison = migration.comparison
    if comparison is not None and migration.status is Status.WRITTEN:
        limit = (
            f" (memory limit {gibibytes_text(migration.memory_limit)})"
            if migration.memory_limit is not None
            else ""
        )
        # a task is not run
        part = " for the backbone" if migration.plan.format == _PRESET else ""
        return [f"verified{part}: {_agreement(comparison)}{limit}"]
    if migration.not_verified is not None:
        return [f"not verified: {migration.not_verified}"]
    return []


class Verified(NamedTuple):
    """Whether predictions were compared, or why not, for JSON."""

    outcome: str
    reason: str | None
    releases: list[str]
    samples: int
    memory_limit: int | None


def compared_predictions(migration: Migration) -> Verified | None:
    """Return the result of comparing predictions for JSON; None if there is none."""
    comparison = migration.comparison
    if comparison is None and migration.not_verified is None:
        return None
    missed = comparison.missed if comparison is not None else ()
    return Verified(
        outcome="not-verified" if comparison is None else "missed" if missed else "verified",
        reason=migration.not_verified or "; ".join(missed) or None,
        releases=_releases(comparison) if comparison is not None else [],
        samples=comparison.samples if comparison is not None else 0,
        memory_limit=migration.memory_limit,
    )


def _agreement(comparison: PredictionComparison) -> str:
    releases = _releases(comparison)
    both = len(releases) > 1
    rows = f"{comparison.samples} row{'' if comparison.samples == 1 else 's'}"
    release_words = " and ".join(releases)
    if comparison.tolerance and not comparison.keeps_dtypes:  # dtypes change on purpose
        return f"predictions of {release_words} agree within the tolerance for {rows}"
    verb, files = ("make", "") if both else ("makes", " with both files")
    is_equal = all(output.equal for call in comparison.calls for output in call.outputs)
    rounding = "" if is_equal else ", except for rounding,"
    return f"{release_words} {verb} the same predictions{files}{rounding} for {rows}"


def _releases(comparison: PredictionComparison) -> list[str]:
    """Return the releases that ran, each once, beginning with that of the source."""
    sides = (comparison.versions, comparison.versions_after or comparison.versions)
    return list(dict.fromkeys(map(_release, sides)))


def _release(versions: Mapping[str, str]) -> str:
    """Return the release that ran, with its backend if that is not TensorFlow."""
    library, version = library_and_version(versions)
    others = [f" on {BACKENDS[key]}" for key in BACKENDS.keys() & versions if key != "tensorflow"]
    return f"{_LIBRARIES[library]} {version}{''.join(others)}"


_DTYPE: Final = choice(
    "float16", "bfloat16", "float32", "float64", name="float", text="A floating-point dtype."
)
_NAMES: Final = items(TEXT, minItems=1)
_VERSIONS: Final = Type(
    {
        "description": "The library that ran, and the versions of its packages.",
        **mapping(TEXT).schema(),
    },
    name="versions",
)

_EDIT: Final[Record[Edit]] = Record(
    "edit",
    (
        Field("kind", choice_of(EditKind)),
        Field("part", TEXT, "The JSON document in the file.", value=attrgetter("address.part")),
        Field(
            "pointer",
            TEXT,
            "A JSON Pointer (RFC 6901) into that document.",
            value=attrgetter("address.pointer"),
        ),
        Field("path", OPTIONAL_TEXT, "The layer; null for the optimizer and for operations."),
        Field("before", ANY, is_optional=True),
        Field("after", ANY, is_optional=True),
        Field("reason", SENTENCE),
    ),
    "A changed JSON value. An added value has no before; a removed value has no after.",
)


class CountedCast(NamedTuple):
    """A cast, with its effect on the values if it was applied."""

    cast: Cast
    counts: Counts | None


def _count(name: str, text: str) -> Field[CountedCast]:
    return Field(
        name, OPTIONAL_COUNT, text, value=lambda counted: getattr(counted.counts, name, None)
    )


_CAST: Final[Record[CountedCast]] = Record(
    "cast",
    (
        *fields_of(
            "cast",
            (
                Field("tensor", _NAMES),
                Field("path", OPTIONAL_TEXT),
                Field("before", _DTYPE),
                Field("after", _DTYPE),
                Field(
                    "through",
                    nullable(_DTYPE),
                    "An intermediate dtype to which the values are rounded; null if there is none.",
                ),
                Field("reason", SENTENCE),
            ),
        ),
        _count("values", "Number of values of the tensor."),
        _count("overflow", "Number of values that become infinite."),
        _count("subnormal", "Number of values that become subnormal."),
        _count("flushed", "Number of values that become zero."),
    ),
    "A stored tensor that is cast to another dtype, and the effect on its values.",
)
_SLOT: Final[Record[StateSlot]] = Record(
    "slot",
    (
        Field("tensor", _NAMES),
        Field("source", nullable(_NAMES)),
        Field("dtype", OPTIONAL_TEXT),
        Field("value", nullable(FINITE)),
    ),
    "An optimizer variable: its location in the result, and the source of its values.",
)
_KEPT: Final[Record[Kept]] = Record(
    "", (Field("path", TEXT), Field("policy", TEXT), Field("reason", SENTENCE))
)
_CAUSE_FIELDS: Final[tuple[Field[Any], ...]] = (
    Field("code", CODE),
    Field("message", SENTENCE),
    Field("path", OPTIONAL_TEXT),
)
_NOTE: Final[Record[Note]] = Record(
    "", (Field("severity", choice_of(NoteSeverity)), *_CAUSE_FIELDS)
)
_BLOCKER: Final[Record[Refusal]] = Record("", _CAUSE_FIELDS)
_RELEASES: Final[Record[Plan]] = Record(
    "",
    (
        Field("before", items(RELEASE_VERDICT), value=attrgetter("loaders_before")),
        Field("after", items(RELEASE_VERDICT), value=attrgetter("loaders_after")),
    ),
)
_CONVERSION_CHANGE: Final[Record[ConversionChange]] = Record(
    "", (Field("code", CODE), Field("path", OPTIONAL_TEXT), Field("text", SENTENCE))
)
_PROOF: Final[Record[tuple[str, str]]] = Record(
    "",
    (
        Field("class_name", TEXT, value=itemgetter(0)),
        Field("proof", choice("proven", "untested"), value=itemgetter(1)),
    ),
)
_CONVERSION: Final[Record[Plan]] = Record(
    "conversion",
    (
        *fields_of(
            "conversion",
            (
                Field("target", SENTENCE, "The release that the model is converted for."),
                Field(
                    "container",
                    choice("h5", "keras", "json"),
                    value=attrgetter("content.container"),
                ),
                Field(
                    "variables",
                    COUNT,
                    "Number of stored variables in the result.",
                    value=lambda conversion: len(conversion.content.placements),
                ),
                Field(
                    "optimizer_variables",
                    COUNT,
                    "Number of stored optimizer variables in the result.",
                    value=lambda conversion: len(conversion.content.state),
                ),
                Field(
                    "changes",
                    items(_CONVERSION_CHANGE),
                    "Changes from the source. The path is null for changes to the whole model or "
                    "file.",
                ),
                Field(
                    "proofs",
                    items(_PROOF),
                    "For each class, whether layers with the same arguments were measured and "
                    "returned the same results in both libraries.",
                ),
            ),
        ),
        Field(
            "matching_releases",
            items(SENTENCE),
            "Releases that load the result and were measured to return the same predictions as the "
            "target; empty if a layer was not measured.",
        ),
    ),
)
_OPTIMIZER_STATE: Final[Record[Mapping[str, int]]] = Record(
    "",
    (
        Field("restored", COUNT, value=itemgetter("restored")),
        Field("lost", COUNT, value=itemgetter("lost")),
    ),
)
_REEXPORT: Final[Record[Reexport]] = Record(
    "reexport",
    (
        Field("versions", _VERSIONS),
        Field(
            "traces",
            FLAG,
            "False if the file has no traced functions; the result then has none either.",
        ),
        Field("signatures", TEXTS),
        Field(
            "variables",
            COUNT,
            "Number of layer variables that were compared with the original.",
            value=attrgetter("held.variables"),
        ),
        Field(
            "identical",
            COUNT,
            "Number of these variables that are byte-identical. All others equal the planned cast.",
            value=attrgetter("held.identical"),
        ),
        Field(
            "checked_layers",
            COUNT,
            "Number of layers whose ops in the new graph have the compute dtype of their policy.",
            value=attrgetter("held.judged"),
        ),
        Field("optimizer_state", nullable(_OPTIMIZER_STATE), value=attrgetter("optimizer")),
    ),
)
_OUTPUT: Final[Record[PredictedOutput]] = Record(
    "output",
    (
        Field("name", TEXT),
        Field("dtype_before", TEXT),
        Field("dtype_after", TEXT),
        Field("values", COUNT),
        Field("equal", FLAG, "Whether the values are byte-identical and have the same dtype."),
        Field("max_abs", nullable(AMOUNT), "Null if the values are not floats."),
        Field(
            "relative",
            nullable(AMOUNT),
            "The largest difference divided by the largest value of the original.",
        ),
        Field("differing", COUNT),
        Field(
            "not_finite",
            pair(COUNT),
            "Number of values that are NaN or infinite, before and after.",
        ),
    ),
)
_CALL: Final[Record[PredictedCall]] = Record(
    "",
    (
        Field("signature", OPTIONAL_TEXT, "Null for a call of the model itself."),
        Field("outputs", items(_OUTPUT)),
    ),
)
_VERIFICATION: Final[Record[PredictionComparison]] = Record(
    "verification",
    (
        Field(
            "tolerance",
            AMOUNT,
            "Tolerance relative to the largest value of each output; 0 requires identical values.",
        ),
        Field("samples", POSITIVE),
        Field("versions", _VERSIONS),
        Field(
            "versions_after",
            nullable(_VERSIONS),
            "Versions in the process that loaded the converted result; null if one process loaded "
            "both files.",
        ),
        Field("missed", TEXTS, "Outputs whose differences exceed the tolerance."),
        Field("calls", items(_CALL)),
    ),
)
_VERIFIED: Final[Record[Verified]] = Record(
    "verified",
    (
        Field(
            "outcome",
            choice("verified", "missed", "not-verified"),
            "If the outcome is missed, nothing is written.",
        ),
        Field(
            "reason",
            OPTIONAL_TEXT,
            "Why the predictions were not compared, or which differences exceed the tolerance; "
            "null if verified.",
        ),
        Field(
            "releases",
            items(SENTENCE),
            "The releases that ran, such as Keras 3.15.1, starting with the one that loaded the "
            "source.",
        ),
        Field("samples", COUNT, "Number of input rows for which both files made predictions."),
        Field(
            "memory_limit",
            nullable(POSITIVE),
            "Bytes that TensorFlow could use for the comparison, in addition to its own start; "
            "null if there was no default limit.",
        ),
    ),
)


PLAN: Final[Record[Migration]] = Record(
    "plan",
    (
        *fields_of(
            "plan",
            (
                Field("path", TEXT),
                Field(
                    "weights",
                    OPTIONAL_TEXT,
                    "Path of the separate weights of an architecture; null without them.",
                ),
            ),
        ),
        Field(
            "output",
            OPTIONAL_TEXT,
            "Path of the result, or of the planned result; null if nothing changes.",
            value=lambda migration: display_path(migration.target) if migration.target else None,
        ),
        Field(
            "backup",
            OPTIONAL_TEXT,
            "Path of the original that --in-place kept.",
            value=lambda migration: (
                display_path(migration.written.backup)
                if migration.written and migration.written.backup
                else None
            ),
        ),
        Field("status", choice_of(Status)),
        *fields_of(
            "plan",
            (
                Field(
                    "format",
                    choice(*(name for name in TITLES if name in REWRITTEN)),
                ),
                Field("suffix", TEXT, "The suffix of the default output name."),
                Field(
                    "base_policy",
                    OPTIONAL_TEXT,
                    "The policy that --to replaces; null without --to.",
                ),
                Field("edits", items(_EDIT)),
                Field("written_by", OPTIONAL_TEXT, value=attrgetter("generation")),
            ),
        ),
        Field(
            "casts",
            items(_CAST),
            value=lambda migration: [
                CountedCast(cast, migration.counts.get(cast.tensor))
                for cast in migration.plan.casts
            ],
        ),
        *fields_of(
            "plan",
            (
                Field(
                    "state",
                    nullable(items(_SLOT)),
                    "The optimizer variables as the result stores them; null if they are "
                    "unchanged.",
                ),
                Field("kept", items(_KEPT), "Layers that --to does not change."),
                Field("notes", items(_NOTE)),
                Field(
                    "blockers",
                    items(_BLOCKER),
                    "Reasons why the file cannot be migrated. If there are any, the file is "
                    "unchanged.",
                    value=attrgetter("refusals"),
                ),
            ),
        ),
        Field(
            "releases",
            _RELEASES,
            "The verdict of each release before and after the migration.",
            value=attrgetter("plan"),
        ),
        Field(
            "conversion",
            nullable(_CONVERSION),
            "The conversion for another release or file format; null if the model is not "
            "converted.",
            value=lambda migration: None if migration.plan.conversion is None else migration.plan,
        ),
        *fields_of("plan", (Field("retrace", FLAG, "Whether the model is re-exported."),)),
        Field(
            "reexport",
            nullable(_REEXPORT),
            "The result of the re-export; null without a re-export.",
            value=attrgetter("retraced"),
        ),
        Field(
            "verification",
            nullable(_VERIFICATION),
            "The comparison of predictions; null if they were not compared.",
            value=attrgetter("comparison"),
        ),
        Field(
            "verified",
            nullable(_VERIFIED),
            "Whether predictions were compared, and by which releases, or why not; null if a "
            "comparison was neither requested nor the default.",
            value=compared_predictions,
        ),
    ),
)


def plan_values(migration: Migration) -> dict[str, Any]:
    """Return one plan and its outcome, as ``--plan`` reads it."""
    return PLAN.values(migration)


REPORT: Final[Report[Migrations]] = Report(
    "migrate",
    1,
    "The plans and results of migrate, one per file. migrate --plan applies saved plans. Additions "
    "keep the version number; any other change increases it.",
    (
        Field("plans", streamed_list(PLAN), value=attrgetter("migrations")),
        failures_field("Paths that could not be read or written"),
    ),
)


class Migrations(Struct, frozen=True, kw_only=True):
    """The results of a call of ``migrate``."""

    migrations: Sequence[Migration]
    failures: tuple[Failure, ...]
