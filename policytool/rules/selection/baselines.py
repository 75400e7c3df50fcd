"""
Baselines: the accepted findings at the time of writing, and the signatures of all SavedModels.

A baseline is a JSON file with a finding per line, sorted, so that a change of a finding changes a
single line. A finding is identified by its file and its fingerprint.

Renamed files are detected: if a path of the baseline no longer exists, a file that is not in the
baseline and has exactly the same findings replaces it. Two files of the same architecture have the
same findings, so only paths without a file can be replaced, and each only once.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from policytool.formats.document import Signature
from policytool.rules.selection.suppressions import judge
from policytool.support.errors import BaselineError
from policytool.support.grouping import group_pairs
from policytool.support.text import jsontext

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from policytool.rules.base import Audited
    from policytool.rules.selection.suppressions import Suppressions

VERSION: Final = 1
_FINGERPRINT: Final = re.compile(r"[0-9a-f]{32}")


class Known(Struct, frozen=True, kw_only=True, order=True):
    """A finding in a baseline."""

    path: str
    """The path of the file in POSIX form."""

    rule: str
    layer: str
    """The path of the layer, for readers of the file; empty for the whole model."""

    fingerprint: str


class Baseline(Struct, frozen=True, kw_only=True):
    """
    The contents of a baseline. In the file, paths are relative to the directory of the baseline; in
    memory, they are the paths of reports.
    """

    findings: tuple[Known, ...] = ()
    signatures: tuple[tuple[str, Signature], ...] = ()
    """Signatures, each with the path of its file."""

    def at(self, moved: Callable[[str], str]) -> Baseline:
        """Return a copy with all paths changed by a function."""
        return Baseline(
            findings=tuple(replace(finding, path=moved(finding.path)) for finding in self.findings),
            signatures=tuple((moved(path), signature) for path, signature in self.signatures),
        )

    @property
    def fingerprints(self) -> Mapping[str, Counter[str]]:
        """The number of findings with each fingerprint, by path."""
        counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for finding in self.findings:
            counts[finding.path][finding.fingerprint] += 1
        return dict(counts)

    @property
    def by_path(self) -> Mapping[str, tuple[Signature, ...]]:
        """The signatures, by path."""
        by_file = group_pairs(self.signatures)
        return {path: tuple(signatures) for path, signatures in by_file.items()}


def of(every: Iterable[Audited], suppressions: Suppressions) -> Baseline:
    """
    Return the baseline of audited models: the findings that are not suppressed for other reasons,
    and the signatures.
    """
    findings: list[Known] = []
    signatures: list[tuple[str, Signature]] = []
    for audited in every:
        findings += (
            Known(
                path=audited.path,
                rule=finding.rule,
                layer=finding.path or "",
                fingerprint=fingerprint,
            )
            for finding, fingerprint, passed in judge(audited, suppressions)
            if passed is None
        )
        signatures += (
            (audited.path, replace(signature, ops=())) for signature in audited.signatures
        )
    return Baseline(findings=tuple(findings), signatures=tuple(signatures))


def known_findings(
    baseline: Baseline,
    every: Iterable[Audited],
    suppressions: Suppressions,
    exists: Callable[[str], bool],
) -> Mapping[str, Counter[str]]:
    """
    Return the known fingerprints of audited models, by path. A renamed file has those of its old
    path.
    """
    known = KnownFindings(baseline, exists)
    for audited in every:
        known.recognise(audited, suppressions)
    return known.by_path


class KnownFindings:
    """The known fingerprints by path; renamed files are detected in the order of their audits."""

    def __init__(self, baseline: Baseline, exists: Callable[[str], bool]) -> None:
        self.by_path = dict(baseline.fingerprints)
        self._gone = [path for path in sorted(self.by_path) if not exists(path)]

    def recognise(self, audited: Audited, suppressions: Suppressions) -> None:
        """Move the known fingerprints of an old path to an audited file if the file was renamed."""
        if not self._gone or audited.path in self.by_path:
            return
        current = Counter(
            fingerprint for _, fingerprint, passed in judge(audited, suppressions) if passed is None
        )
        old = next((path for path in self._gone if self.by_path[path] == current), None)
        if old is not None:
            self._gone.remove(old)
            self.by_path[audited.path] = self.by_path.pop(old)


def render(baseline: Baseline) -> str:
    """Return the text of a baseline's file."""
    findings = [
        {
            "path": entry.path,
            "rule": entry.rule,
            **({"layer": entry.layer} if entry.layer else {}),
            "fingerprint": entry.fingerprint,
        }
        for entry in sorted(baseline.findings)
    ]
    signatures = [
        {
            "path": path,
            "name": entry.name,
            "inputs": entry.inputs,
            "outputs": entry.outputs,
            "compute_dtypes": list(entry.compute_dtypes),
        }
        for path, entry in sorted(baseline.signatures, key=lambda pair: (pair[0], pair[1].name))
    ]
    return (
        f'{{\n"version": {VERSION},\n"findings": {_lines(findings)},\n"signatures": '
        f"{_lines(signatures)}\n}}\n"
    )


def parse(text: str) -> Baseline:
    """
    Parse the text of a baseline file.

    :raises BaselineError: if it is not valid, with a sentence part that follows the file name.
    """
    try:
        document, _ = jsontext.parse(text)
    except jsontext.JsonError as error:
        raise BaselineError(f"{error}; regenerate it with --write-baseline") from error
    if not isinstance(document, dict) or not {"version", "findings"} <= document.keys():
        raise BaselineError("is not a baseline; expected a file written by --write-baseline")
    if document["version"] != VERSION:
        raise BaselineError(
            f"is a version {document['version']!r} baseline, but policytool supports "
            f"version {VERSION}; regenerate it with --write-baseline"
        )
    return Baseline(
        findings=tuple(
            _parse_entry(entry, number) for number, entry in _entries(document, "findings")
        ),
        signatures=tuple(
            _signature(entry, number) for number, entry in _entries(document, "signatures")
        ),
    )


def _lines(entries: Sequence[Mapping[str, object]]) -> str:
    """Return a JSON list with an entry per line."""
    lines = ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in entries)
    return f"[\n{lines}\n]" if lines else "[]"


def _entries(document: Mapping[str, object], key: str) -> list[tuple[int, Mapping[str, object]]]:
    entries = document.get(key, [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise BaselineError(f"is an invalid baseline: {key!r} is not a list of objects")
    return list(enumerate(entries, start=1))


def _parse_entry(entry: Mapping[str, object], number: int) -> Known:
    path, rule, layer, fingerprint = (
        entry.get(key, "") for key in ("path", "rule", "layer", "fingerprint")
    )
    if not (isinstance(path, str) and path and isinstance(rule, str) and isinstance(layer, str)):
        raise BaselineError(
            f"is an invalid baseline: finding {number} lacks a path or a rule, or its layer "
            "is not text"
        )
    if not isinstance(fingerprint, str) or not _FINGERPRINT.fullmatch(fingerprint):
        raise BaselineError(
            f"is an invalid baseline: the fingerprint of finding {number} is missing or is not 32 "
            "hexadecimal digits"
        )
    return Known(path=path, rule=rule, layer=layer, fingerprint=fingerprint)


def _signature(entry: Mapping[str, object], number: int) -> tuple[str, Signature]:
    path, name, inputs, outputs, computes = (
        entry.get(key) for key in ("path", "name", "inputs", "outputs", "compute_dtypes")
    )
    if not (
        isinstance(path, str)
        and isinstance(name, str)
        and isinstance(computes, list)
        and all(isinstance(dtype, str) for dtype in computes)
    ):
        raise BaselineError(
            f"is an invalid baseline: signature {number} lacks a path, a name, or compute dtypes"
        )
    return path, Signature(
        name=name,
        inputs=_dtypes(inputs, number),
        outputs=_dtypes(outputs, number),
        compute_dtypes=tuple(computes),
    )


def _dtypes(value: object, number: int) -> Mapping[str, str]:
    if not isinstance(value, dict) or not all(isinstance(dtype, str) for dtype in value.values()):
        raise BaselineError(
            f"is an invalid baseline: signature {number} has inputs or outputs that do not "
            "map names to dtypes"
        )
    return dict(value)
