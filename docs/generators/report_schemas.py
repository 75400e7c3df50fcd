"""The JSON schemas of the reports, from the declarations of their fields."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from policytool.reports import json_lines
from policytool.reports.checks.fields import REPORT as CHECK
from policytool.reports.differences.fields import REPORT as DIFF
from policytool.reports.explanations import REPORT as EXPLAIN
from policytool.reports.findings.fields import REPORT as AUDIT
from policytool.reports.inspection.fields import REPORT as INSPECT
from policytool.reports.plans.fields import REPORT as MIGRATE
from policytool.reports.summaries import REPORT as SUMMARY
from policytool.reports.tuning.fields import REPORT as TUNE
from policytool.support import project

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from policytool.reports.fields import Report

REPORTS: Final[Mapping[str, Report[Any]]] = {
    "audit": AUDIT,
    "check": CHECK,
    "diff": DIFF,
    "explain": EXPLAIN,
    "inspect": INSPECT,
    "migrate": MIGRATE,
    "summary": SUMMARY,
    "tune": TUNE,
}
"""The reports by the names of their schemas."""

_WIDTH: Final = 120
_INDENT: Final = "  "


def _schema(name: str) -> str:
    report = REPORTS[name]
    return _text(report.file_schema(project.schema_id(name, report.number)))


def _lines_schema() -> str:
    return _text(json_lines.file_schema(project.schema_id("lines", json_lines.VERSION)))


def _text(schema: Mapping[str, Any]) -> str:
    return "".join(_pieces(schema, "", 0)) + "\n"


def _pieces(value: object, indent: str, used: int) -> Iterator[str]:
    """
    Yield JSON text in which what fits into a line is one.

    :param used: characters before the value in its line
    """
    line = json.dumps(value)
    if (len(indent) + used + len(line) < _WIDTH and indent) or not isinstance(value, dict | list):
        yield line
        return
    inner = indent + _INDENT
    members = value.items() if isinstance(value, dict) else (("", item) for item in value)
    yield "{\n" if isinstance(value, dict) else "[\n"
    for number, (key, member) in enumerate(members):
        name = f"{json.dumps(key)}: " if isinstance(value, dict) else ""
        yield ",\n" if number else ""
        yield inner + name
        yield from _pieces(member, inner, len(name))
    yield f"\n{indent}" + ("}" if isinstance(value, dict) else "]")


_DIRECTORY: Final = "policytool/reports/schemas"
PAGES: Final[Mapping[str, Callable[[], str]]] = {
    **{f"{_DIRECTORY}/{name}.schema.json": partial(_schema, name) for name in REPORTS},
    f"{_DIRECTORY}/lines.schema.json": _lines_schema,
}
"""File to the function that returns its text."""
