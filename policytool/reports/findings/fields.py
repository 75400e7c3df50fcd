"""The fields of ``audit`` in JSON and in the rows of CSV and Parquet."""

from __future__ import annotations

import json
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from policytool.reports.fields import (
    CODE,
    COUNT,
    OPTIONAL_TEXT,
    SENTENCE,
    TEXT,
    TEXTS,
    Field,
    Record,
    Report,
    choice_of,
    fields_of,
    items,
    json_text,
    nullable,
    streamed_list,
    text_type,
)
from policytool.reports.findings._page import rules_of, totals, with_fingerprints
from policytool.reports.rows import row_columns, row_values
from policytool.reports.shared_fields import (
    ADDRESS,
    FORMAT,
    PATH_TEXT,
    WRITTEN_BY_TEXT,
    failures_field,
)
from policytool.rules.base import Fix, Severity
from policytool.rules.fixes import FixOutcome

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from policytool.commands.audit import Audit
    from policytool.reports.findings._page import Totals
    from policytool.reports.layout import View
    from policytool.rules import Rule
    from policytool.rules.base import Audited, Finding, ModelCommand, Remedy, Suppressed
    from policytool.rules.fixes import FixedModel, UnfixedFinding

_SAFETY: Final = choice_of(
    Fix,
    name="safety",
    text="safe: predictions are unchanged; unsafe: numerics or training change.",
)
_RULE_ID: Final = text_type("^PT[1-9][0-9]{2}$")


class FingerprintedFinding(NamedTuple):
    """A finding with its rule and its fingerprint; for a suppressed one, with its suppression."""

    finding: Finding
    rule: Rule
    fingerprint: str
    suppressed: Suppressed | None = None


_REMEDY: Final[Record[Remedy]] = Record(
    "",
    (
        Field("arguments", TEXTS, "Arguments to append to `policytool migrate PATH`."),
        Field(
            "safety",
            _SAFETY,
            "safe: predictions are unchanged; unsafe: numerics or training change.",
            value=attrgetter("fix"),
        ),
    ),
)
_PLACE_FIELDS: Final[tuple[Field[Finding], ...]] = (
    Field("rule", _RULE_ID, "The ID of the rule."),
    Field(
        "path",
        OPTIONAL_TEXT,
        "The layer; null for findings about the whole model or its optimizer.",
    ),
    Field("detail", TEXT, "Distinguishes findings of the same rule and layer."),
)
_RULE, _PATH, _DETAIL = _PLACE_FIELDS
_FINDING_FIELDS: Final[tuple[Field[FingerprintedFinding], ...]] = (
    *fields_of("finding", (_RULE,)),
    Field("name", CODE, "The name of the rule.", value=attrgetter("rule.name")),
    *fields_of(
        "finding",
        (
            Field(
                "severity",
                choice_of(Severity),
                "error: the model fails to load, or it does not compute in the declared dtypes; "
                "warning: training or results may not be what the author intended; note: "
                "information that requires no action.",
            ),
            Field("message", SENTENCE, "The problem, as one sentence without a period."),
            _PATH,
            _DETAIL,
            Field(
                "address",
                nullable(ADDRESS),
                "The JSON document in the file and the JSON Pointer into it; null if the finding "
                "has no such location.",
            ),
            Field("advice", OPTIONAL_TEXT, "What to do if migrate cannot fix it."),
            Field(
                "fix",
                nullable(_REMEDY),
                "The fix that migrate applies; null if there is none.",
                value=attrgetter("remedy"),
            ),
        ),
    ),
    Field(
        "fingerprint",
        text_type("^[0-9a-f]{32}$"),
        "Identifies the finding, and does not change when the model is exported again.",
    ),
)
FINDING: Final[Record[FingerprintedFinding]] = Record("finding", _FINDING_FIELDS)
_SUPPRESSED: Final[Record[FingerprintedFinding]] = Record(
    "suppressed",
    (
        *_FINDING_FIELDS,
        *fields_of(
            "suppressed",
            (
                Field(
                    "by",
                    CODE,
                    "What suppressed the finding: suppression, baseline or per-file-ignores.",
                ),
                Field("reason", TEXT, "The reason given by the user who suppressed it."),
            ),
        ),
    ),
)
_COMMAND: Final[Record[ModelCommand]] = Record(
    "command",
    (
        Field(
            "target",
            OPTIONAL_TEXT,
            "The target as specified by the user; null without targets.",
        ),
        Field(
            "arguments",
            nullable(TEXTS),
            "Arguments to append to `policytool migrate PATH`. policytool has planned this "
            "migration and audited the planned result, which passes, except for the rules in "
            "`leaves`. Null if there is no such command.",
        ),
        Field(
            "leaves",
            TEXTS,
            "Rules for which the result still fails the audit. If a command that fixes the errors "
            "keeps predictions and a command that fixes everything does not, both are listed.",
        ),
        Field(
            "reason",
            OPTIONAL_TEXT,
            "The reason why there is no command, as one sentence without a period; null if there "
            "is a command.",
        ),
        Field(
            "safety",
            nullable(_SAFETY),
            "Whether the command is safe or unsafe; null if there is no command. A command is also "
            "unsafe if predictions depend on the code of custom classes.",
            value=attrgetter("fix"),
        ),
    ),
)


class AuditedModel(NamedTuple):
    """A model, and the rules of the audit by their ids."""

    audited: Audited
    rules: Mapping[str, Rule]

    @property
    def findings(self) -> Iterator[FingerprintedFinding]:
        """The findings that are not suppressed."""
        for finding, fingerprint in with_fingerprints(self.audited):
            yield FingerprintedFinding(finding, self.rules[finding.rule], fingerprint)

    @property
    def suppressed(self) -> Iterator[FingerprintedFinding]:
        """The suppressed findings."""
        for suppressed in self.audited.suppressed:
            finding = suppressed.finding
            rule = self.rules[finding.rule]
            yield FingerprintedFinding(finding, rule, suppressed.fingerprint, suppressed)


_NAMES: Final[tuple[Field[Audited], ...]] = (
    Field("path", TEXT, PATH_TEXT),
    Field("format", FORMAT, "The format of the model."),
    Field("layers", COUNT, "Number of layers, including the model itself."),
    Field("written_by", OPTIONAL_TEXT, WRITTEN_BY_TEXT, value=attrgetter("generation")),
)
_MODEL: Final[Record[AuditedModel]] = Record(
    "model",
    (
        *fields_of("audited", _NAMES),
        Field("findings", items(FINDING), "Findings sorted by rule, then by layer."),
        *fields_of(
            "audited",
            (
                Field(
                    "commands",
                    items(_COMMAND),
                    "For a model that fails: the commands for each target, or without a target if "
                    "there are none. Empty for a model that passes.",
                ),
            ),
        ),
        Field("suppressed", items(_SUPPRESSED), "Suppressed findings."),
    ),
)


def model_values(audited: Audited, rules: Mapping[str, Rule]) -> dict[str, Any]:
    """Return the entry of a model in the JSON report."""
    return _MODEL.values(AuditedModel(audited, rules))


def finding_values(finding: Finding, fingerprint: str, rule: Rule) -> dict[str, Any]:
    """Return the entry of a finding in the JSON report, as plain values."""
    entry = FINDING.values(FingerprintedFinding(finding, rule, fingerprint))
    values: dict[str, Any] = json.loads(json_text(entry, unicode=True))
    return values


_PLACE: Final[Record[Finding]] = Record("place", _PLACE_FIELDS)
_REMAINING: Final[Record[UnfixedFinding]] = Record(
    "remaining_finding",
    (*fields_of("finding", _PLACE_FIELDS), Field("reason", SENTENCE)),
)
_FIX: Final[Record[FixedModel]] = Record(
    "applied_fix",
    (
        Field("path", TEXT),
        Field(
            "outcome",
            choice_of(FixOutcome),
            "fixed: rewritten in place; planned: not written because of --diff; unchanged: not "
            "fixed, for the listed reasons; failed: could not be written and is unchanged.",
        ),
        Field(
            "arguments",
            TEXTS,
            "Arguments to append to `policytool migrate PATH` for the same result.",
        ),
        Field("warnings", TEXTS, "Information and releases that the model loses."),
        Field(
            "backup", OPTIONAL_TEXT, "Path of the backup of the original; null if there is none."
        ),
        Field(
            "resolved",
            items(_PLACE),
            "Fixed findings; with --diff, findings that would be fixed.",
            value=attrgetter("gone"),
        ),
        Field(
            "remaining",
            items(_REMAINING),
            "Findings whose fix was not applied, and findings without one that fail the audit.",
            value=attrgetter("left"),
        ),
    ),
)


def _counts(members: type[Fix | Severity]) -> Record[Mapping[Any, int]]:
    return Record("", [Field(member.value, COUNT, value=itemgetter(member)) for member in members])


class AuditTotals(NamedTuple):
    """An audit and its totals."""

    audit: Audit
    totals: Totals


_SUMMARY: Final[Record[AuditTotals]] = Record(
    "summary",
    (
        Field("models", COUNT, value=attrgetter("totals.models")),
        Field(
            "releases",
            TEXTS,
            "Releases that the models were checked for: the targets, or the newest Keras if there "
            "are none.",
            value=attrgetter("audit.releases"),
        ),
        Field(
            "clean",
            COUNT,
            "Number of models without findings, not counting suppressed ones.",
            value=attrgetter("totals.clean"),
        ),
        Field(
            "findings",
            _counts(Severity),
            "Number of findings by severity.",
            value=attrgetter("totals.severities"),
        ),
        Field(
            "fixable",
            _counts(Fix),
            "Number of these findings that migrate can fix.",
            value=attrgetter("totals.fixes"),
        ),
        Field("suppressed", COUNT, value=attrgetter("totals.suppressed")),
        Field("failures", COUNT, value=attrgetter("totals.failures")),
        Field(
            "skipped",
            COUNT,
            "Number of files in directories or matched by globs that are not models.",
            value=attrgetter("audit.passed_over"),
        ),
    ),
)


def _models(audit: Audit) -> Iterator[AuditedModel]:
    rules = rules_of(audit)
    return (AuditedModel(audited, rules) for audited in audit.audited)


REPORT: Final[Report[Audit]] = Report(
    "audit",
    1,
    "Findings of the audit rules in saved models. Additions keep the version number; any other "
    "change increases it.",
    (
        Field("models", streamed_list(_MODEL), "Models in the order of the inputs.", value=_models),
        Field(
            "fixes",
            items(_FIX),
            "With --fix or --diff: the result for each model that has fixable findings. The "
            "remaining findings are in models.",
            value=attrgetter("fixed"),
        ),
        failures_field(),
        Field("summary", _SUMMARY, value=lambda audit: AuditTotals(audit, totals(audit))),
    ),
)

_ROW_MODEL: Final[Record[Audited]] = Record(
    "", [field for field in _NAMES if field.name != "layers"]
)
ROW_COLUMNS: Final = (
    *row_columns(_ROW_MODEL, ("path", "format", "written_by"), "model."),
    *row_columns(
        _SUPPRESSED,
        (
            *("rule", "name", "severity", "message", "path", "detail"),
            *("address.part", "address.pointer", "fix.arguments", "fix.safety"),
            *("advice", "fingerprint", "by", "reason"),
        ),
    ),
)
"""
The columns of CSV and Parquet, one row for each finding; later releases add columns at the end. The
last two are of suppressed findings.
"""


def rows(audit: Audit, view: View) -> Iterator[list[Any]]:
    """Yield the values of each finding; suppressed ones follow those of their model if shown."""
    for model in _models(audit):
        of_model = {"model": _ROW_MODEL.values(model.audited)}
        for finding in model.findings:
            values = {**of_model, "by": None, "reason": None, **FINDING.values(finding)}
            yield row_values(ROW_COLUMNS, values)
        for finding in model.suppressed if view.suppressed else ():
            yield row_values(ROW_COLUMNS, {**of_model, **_SUPPRESSED.values(finding)})
