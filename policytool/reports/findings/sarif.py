"""
SARIF 2.1.0 (https://docs.oasis-open.org/sarif/sarif/v2.1.0/), for code scanning. It contains only
findings, not passed checks.

Paths below the working directory are relative to ``%SRCROOT%``, layers are logical locations, and
fingerprints stay as models are exported anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from policytool.reports import topics
from policytool.reports.fields import JsonItems, json_pieces
from policytool.reports.findings._page import annotation, with_fingerprints
from policytool.reports.layout import clean
from policytool.reports.reporter import streaming_reporter
from policytool.support import project
from policytool.support.files.remote_path import is_url
from policytool.support.project import VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.commands.audit import Audit
    from policytool.commands.inspect import Failure
    from policytool.reports.layout import View
    from policytool.rules import Rule
    from policytool.rules.base import Audited, Finding

_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
_ROOT: Final = "%SRCROOT%"
_REGION: Final = {"startLine": 1, "startColumn": 1, "endLine": 1, "endColumn": 1}
"""The start of a file: models have no lines, but GitHub's code scanning requires a region."""


def pieces(audit: Audit, view: View) -> Iterator[str]:
    """Yield the report as JSON text."""
    return json_pieces(_document(audit, suppressed=view.suppressed), unicode=view.unicode)


def _document(audit: Audit, *, suppressed: bool) -> dict[str, Any]:
    """
    Return the report as JSON values, whose results are created one at a time.

    Suppressed findings are included only on request, because GitHub ignores ``suppressions`` and
    opens alerts for them (https://github.com/github/codeql-action/issues/1230).
    """
    positions = {rule.id: position for position, rule in enumerate(audit.rules)}
    driver = {
        "name": "policytool",
        "version": VERSION,
        "informationUri": project.URL,
        "rules": [_rule(rule) for rule in audit.rules],
    }
    invocation = {
        "executionSuccessful": not audit.failures,
        "toolExecutionNotifications": [_notification(failure) for failure in audit.failures],
    }
    run = {
        "tool": {"driver": driver},
        "originalUriBaseIds": {
            _ROOT: {"description": {"text": "The directory in which policytool was run."}}
        },
        "invocations": [invocation],
        "results": JsonItems(
            result
            for audited in audit.audited
            for result in _results(audited, positions, suppressed=suppressed)
        ),
    }
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(rule: Rule) -> dict[str, Any]:
    tags = [
        topics.family(rule)[0],
        *([f"fix:{rule.fix.value}"] if rule.fix else []),
        *rule.references,
    ]
    return {
        "id": rule.id,
        "name": rule.name,
        "shortDescription": _message(topics.plain(rule.summary)),
        "fullDescription": _message(topics.as_text(rule.doc)),
        "help": {
            **_message(topics.as_text(rule.doc)),
            "markdown": topics.as_markdown(rule),
        },
        "helpUri": project.page(f"reference/rules.md#{topics.anchor(rule)}"),
        "defaultConfiguration": {"level": rule.severity.value},
        "properties": {"tags": tags},
    }


def _results(
    audited: Audited, positions: dict[str, int], *, suppressed: bool
) -> list[dict[str, Any]]:
    results = [
        _result(finding, fingerprint, audited, positions)
        for finding, fingerprint in with_fingerprints(audited)
    ]
    for suppressed_finding in audited.suppressed if suppressed else ():
        suppression = {
            "kind": "external",
            "status": "accepted",
            "justification": clean(suppressed_finding.reason),
            "properties": {"by": suppressed_finding.by},
        }
        results.append(
            {
                **_result(
                    suppressed_finding.finding, suppressed_finding.fingerprint, audited, positions
                ),
                "suppressions": [suppression],
            }
        )
    return results


def _result(
    finding: Finding, fingerprint: str, audited: Audited, positions: dict[str, int]
) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    if finding.address is not None:
        properties["address"] = {"part": finding.address.part, "pointer": finding.address.pointer}
    if finding.remedy is not None:
        properties["remedy"] = {
            "fix": finding.remedy.fix.value,
            "arguments": list(finding.remedy.arguments),
        }
    return {
        "ruleId": finding.rule,
        "ruleIndex": positions[finding.rule],
        "level": finding.severity.value,
        "message": _message(clean(annotation(audited, finding))),
        "locations": [_location(_file(audited), finding.path)],
        # GitHub compares the first; where it is missing, the upload action hashes a line of the
        # file, the same for all that is found in it.
        "partialFingerprints": {
            "primaryLocationLineHash": f"{fingerprint}:1",
            "policytool/v1": fingerprint,
        },
        **({"properties": properties} if properties else {}),
    }


def _location(path: str, layer: str | None) -> dict[str, Any]:
    location: dict[str, Any] = {
        "physicalLocation": {"artifactLocation": _artifact(path), "region": _REGION}
    }
    if layer is not None:
        location["logicalLocations"] = [
            {
                "name": clean(layer.rpartition("/")[2]),
                "fullyQualifiedName": clean(layer),
                "kind": "layer",
            }
        ]
    return location


def _file(audited: Audited) -> str:
    """Return the file of the model or its config: GitHub displays no results for directories."""
    if audited.config_file is None:
        return audited.path
    return f"{audited.path.rstrip('/')}/{audited.config_file}"  # PurePosixPath shortens URLs


def _artifact(path: str) -> dict[str, str]:
    """
    Return the location of a file: a URL unchanged, a path with another root as a URL, and all other
    paths relative to the working directory.
    """
    try:
        data = path.encode("utf-8", "surrogateescape")  # the bytes of a name that is no UTF-8
    except UnicodeEncodeError:
        data = path.encode("utf-8", "surrogatepass")
    if is_url(path):
        return {"uri": quote(data, safe="/:@?=&%+~")}
    return (
        {"uri": f"file://{quote(data)}"}
        if path.startswith("/")
        else {"uri": quote(data), "uriBaseId": _ROOT}
    )


def _notification(failure: Failure) -> dict[str, Any]:
    return {
        "level": "error",
        "descriptor": {"id": failure.code},
        "message": _message(clean(f"{failure.path} {failure.message}.")),
        "locations": [{"physicalLocation": {"artifactLocation": _artifact(failure.path)}}],
    }


def _message(text: str) -> dict[str, str]:
    """
    Return a plain text message: nothing in it is a placeholder (SARIF 3.11.5) or a link (3.11.6).
    """
    return {"text": text.replace("](", "] (").replace("{", "{{").replace("}", "}}")}


REPORTER: Final = streaming_reporter("sarif", pieces)
