"""
The rows of ``audit`` for spreadsheets and data frames: one for each finding.

A column has the name that its value has in the JSON report, keys of nested objects joined by a dot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from policytool.reports.findings._content import rules_of, with_fingerprints
from policytool.reports.findings.json_report import finding_values
from policytool.reports.parquet import parquet_reporter
from policytool.reports.rows import (
    OF_MODEL,
    CellType,
    RowColumn,
    csv_reporter,
    value_at,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.commands.audit import Audit
    from policytool.reports.layout import View

_OF_FINDING: Final = (
    *map(RowColumn, ("rule", "name", "severity", "message", "path", "detail")),
    RowColumn("address.part"),
    RowColumn("address.pointer"),
    RowColumn("fix.arguments", CellType.TEXTS),
    RowColumn("fix.safety"),
    RowColumn("advice"),
    RowColumn("fingerprint"),
)
COLUMNS: Final = (*OF_MODEL, *_OF_FINDING, RowColumn("by"), RowColumn("reason"))
"""Later releases add columns at the end; the last two are of suppressed findings."""


def _rows(audit: Audit, view: View) -> Iterator[list[Any]]:
    """Yield the values of each finding; suppressed ones follow those of their model if shown."""
    rules = rules_of(audit)
    for audited in audit.audited:
        of_model = (audited.path, audited.format, audited.generation)
        found = [
            *(
                (finding, fingerprint, None, None)
                for finding, fingerprint in with_fingerprints(audited)
            ),
            *(
                (one.finding, one.fingerprint, one.by, one.reason)
                for one in (audited.suppressed if view.suppressed else ())
            ),
        ]
        for finding, fingerprint, by, reason in found:
            values = finding_values(finding, fingerprint, rules[finding.rule])
            yield [
                *of_model,
                *(value_at(values, column.name) for column in _OF_FINDING),
                by,
                reason,
            ]


REPORTER: Final = csv_reporter(COLUMNS, _rows)
PARQUET_REPORTER: Final = parquet_reporter(COLUMNS, _rows)
