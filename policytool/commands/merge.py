"""
``merge``: combines the JSON Lines reports of all shards into the report of one run.

Reports are not trusted, because they come from other machines. Each line is parsed with the limits
for JSON, and its position must be the next one of its shard. Only one line and one block of each
report are in memory.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from policytool.commands.batch.task import MOST, Shard
from policytool.formats.discovery import display_path
from policytool.support import limits
from policytool.support.errors import MergeError
from policytool.support.files import opening
from policytool.support.text import jsontext

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

VERSION: Final = 1
_HEADER: Final = frozenset(
    {"version", "tool", "command", "inputs", "options", "exit_code_without_models"}
)
_KINDS: Final = ("model", "failure")
_COUNTS: Final = ("models", "failures", "skipped")
_SHORT: Final = 2**16
"""Maximum size in bytes of the first line, and of the last line, of a report."""

_BLOCKS: Final = 2**20
"""Total size in bytes of the blocks of all reports."""

_LEAST_BLOCK: Final = 2**12
_DAMAGED: Final = "; copy it again, or run the shard again"
_CODES: Final = (70, 2, 3, 1)
"""
Exit codes that the merged run has if any shard has them, in the order of precedence. Only complete
runs have these codes.
"""

_WITHOUT_MODELS: Final = (0, 4)


class ShardReport(Struct, frozen=True, kw_only=True):
    """The report of a shard: its path, and the content of its first and last lines."""

    path: Path
    header: Mapping[str, Any]
    """The first line, without the shard."""

    shard: Shard | None
    end: Mapping[str, Any]

    @property
    def first(self) -> int:
        """The position of the shard's first input in the run."""
        return self.shard.index - 1 if self.shard is not None else 0

    @property
    def step(self) -> int:
        """The distance between the positions of two inputs of the shard."""
        return self.shard.count if self.shard is not None else 1


@dataclass(frozen=True, kw_only=True, slots=True)
class MergedReport:
    """The report of the whole run. Its lines are read when :meth:`lines` is iterated."""

    header: Mapping[str, Any]
    reports: tuple[ShardReport, ...] = field(repr=False)
    counts: Mapping[str, int]
    exit_code: int

    def lines(self) -> Iterator[str]:
        """
        Yield the lines of models and failures in the order of the inputs, each with its newline.

        :raises MergeError: if a line is damaged.
        """
        block = max(_LEAST_BLOCK, _BLOCKS // len(self.reports))
        streams = [_results(report, block) for report in self.reports]
        for _, line in heapq.merge(*streams, key=lambda numbered_line: numbered_line[0]):
            yield line


def merge(paths: Sequence[Path]) -> MergedReport:
    """
    Return the report of a whole run, from the reports of its shards.

    :raises MergeError: if a file is not a complete report, if reports are from different runs, or
        if a shard is missing or has two reports.
    """
    if len(paths) > MOST:
        raise MergeError(f"{len(paths):,} reports are more than a run can have ({MOST:,} shards)")
    reports = sorted((_read_report(path) for path in paths), key=lambda report: report.first)
    first = reports[0]
    for report in reports:
        _check_same_run(first, report)
    _check_shards(reports)
    counts = {
        key: sum(report.end[key] for report in reports)
        for key in first.end
        if key not in {"complete", "exit_code"}
    }
    codes = {report.end["exit_code"] for report in reports}
    failing = next((code for code in _CODES if code in codes), None)
    none: int = 0 if counts["models"] else first.header["exit_code_without_models"]
    return MergedReport(
        header=first.header,
        reports=tuple(reports),
        counts=counts,
        exit_code=none if failing is None else failing,
    )


def _read_report(path: Path) -> ShardReport:
    """
    Return a report, read from its first and its last line.

    :raises MergeError: if the file is not a report, or is incomplete.
    """
    name = display_path(path)
    try:
        head, tail = opening.read_head(path, _SHORT), opening.read_tail(path, _SHORT)
    except OSError as error:
        raise MergeError(f"report {name} cannot be read: {error.strerror or error}") from error
    header = _object(head.partition(b"\n")[0])
    if header is None or not _is_header(header):
        raise MergeError(
            f"report {name} is not in JSON Lines; expected a file written with --format jsonl"
        )
    shard = _shard(header.pop("shard")) if "shard" in header else None
    last = _object(tail.removesuffix(b"\n").rpartition(b"\n")[2]) if tail[-1:] == b"\n" else None
    end = last.get("end") if last is not None else None
    if not isinstance(end, dict) or end.get("complete") is not True:
        raise MergeError(f"report {name} is incomplete; run the shard again")
    report = ShardReport(path=path, header=header, shard=shard, end=end)
    if not _is_end(end, len(range(report.first, header["inputs"]["count"], report.step))):
        raise MergeError(f"the last line of report {name} is damaged{_DAMAGED}")
    return report


def _object(line: bytes, place: str = "") -> dict[str, Any] | None:
    """
    Return the JSON object in a line; None if the line is not an object, or has duplicate keys.

    :param place: the name of the line in messages; if empty, a line that exceeds a limit also
        returns None
    :raises MergeError: if the line exceeds a limit.
    """
    try:
        value, repeated = jsontext.parse(line)
    except jsontext.JsonError as error:
        if place and error.code == "json-limit":
            raise MergeError(f"{place} {error}") from error
        return None
    return value if isinstance(value, dict) and not repeated else None


def _is_header(header: Mapping[str, Any]) -> bool:
    """Return whether a JSON object is the first line of a report."""
    if not header.keys() >= _HEADER or header["version"] != VERSION:
        return False
    tool, inputs, options = header["tool"], header["inputs"], header["options"]
    return (
        isinstance(header["command"], str)
        and isinstance(tool, dict)
        and isinstance(tool.get("version"), str)
        and isinstance(inputs, dict)
        and _is_count(inputs.get("count"))
        and isinstance(inputs.get("sha256"), str)
        and isinstance(options, dict)
        and _is_count(header["exit_code_without_models"])
        and header["exit_code_without_models"] in _WITHOUT_MODELS
        and ("shard" not in header or _shard(header["shard"]) is not None)
    )


def _shard(encoded: object) -> Shard | None:
    if not isinstance(encoded, dict):
        return None
    index, count = encoded.get("index"), encoded.get("count")
    if type(index) is not int or type(count) is not int or not 1 <= index <= count <= MOST:
        return None
    return Shard(index=index, count=count)


def _is_end(end: Mapping[str, Any], inputs: int) -> bool:
    numbers = [value for key, value in end.items() if key != "complete"]
    return (
        end.keys() >= {*_COUNTS, "exit_code"}
        and all(map(_is_count, numbers))
        and end["exit_code"] in {0, *_CODES, *_WITHOUT_MODELS}
        and sum(end[key] for key in _COUNTS) == inputs
    )


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < 2**53


def _check_same_run(first: ShardReport, other: ShardReport) -> None:
    """
    Check that two reports are from the same run.

    :raises MergeError: if they are not.
    """
    a, b = display_path(first.path), display_path(other.path)
    for key, words in (
        ("tool", "versions of policytool"),
        ("command", "commands"),
        ("inputs", "lists of inputs"),
    ):
        if first.header[key] != other.header[key]:
            raise MergeError(f"reports {a} and {b} are from different {words}")
    if first.header != other.header or first.end.keys() != other.end.keys():
        raise MergeError(f"reports {a} and {b} are from runs with different options")
    if first.step != other.step or (first.shard is None) != (other.shard is None):
        raise MergeError(
            f"report {a} is from {_shard_words(first)}, but {b} is from {_shard_words(other)}; "
            "use the same N in --shard I/N for all shards"
        )


def _shard_words(report: ShardReport) -> str:
    return f"shard {report.shard}" if report.shard is not None else "a whole run"


def _check_shards(reports: Sequence[ShardReport]) -> None:
    """
    Check that each shard has exactly one report.

    :raises MergeError: if a shard is missing or has two reports.
    """
    for report, other in pairwise(reports):
        if report.first == other.first:
            raise MergeError(
                f"reports {display_path(report.path)} and {display_path(other.path)} are both from "
                f"{_shard_words(report)}; specify one of them"
            )
    missing = sorted(set(range(reports[0].step)) - {report.first for report in reports})
    if missing:
        several = f" and {len(missing) - 1:,} others" if missing[1:] else ""
        raise MergeError(
            f"the report of shard {missing[0] + 1}/{reports[0].step} is missing{several}"
        )


def _results(report: ShardReport, block: int) -> Iterator[tuple[int, str]]:
    """
    Yield the lines of models and failures, each with the position of its input.

    :raises MergeError: if a line is damaged or unexpected.
    """
    name, expected = display_path(report.path), report.first
    counts = dict.fromkeys(_KINDS, 0)
    most: int = report.header["inputs"]["count"]
    has_ended = False
    for number, line in _numbered_lines(report.path, block):
        if number == 1:
            continue
        is_text = line.isascii() and line.decode().isprintable()  # as in every written report
        value = _object(line, f"report {name} line {number}") if is_text else None
        if value is None or has_ended:
            raise MergeError(f"report {name} line {number} is damaged{_DAMAGED}")
        if value == {"end": report.end}:
            has_ended = True
            continue
        position, kind = (
            value.get("input"),
            next((known_kind for known_kind in _KINDS if known_kind in value), ""),
        )
        if (
            value.keys() != {"input", kind}
            or not isinstance(value[kind], dict)
            or type(position) is not int
            or not expected <= position < most
            or (position - report.first) % report.step
        ):
            raise MergeError(f"report {name} line {number} is damaged{_DAMAGED}")
        expected = position + report.step
        counts[kind] += 1
        yield position, f"{line.decode()}\n"
    if not has_ended or any(counts[kind] != report.end[f"{kind}s"] for kind in _KINDS):
        raise MergeError(f"report {name} lacks lines that its last line counts{_DAMAGED}")


def _numbered_lines(path: Path, block: int) -> Iterator[tuple[int, bytes]]:
    """
    Yield the lines of a file without newlines, with their numbers from 1.

    :raises MergeError: if a line is too long, or the file cannot be read.
    """
    name, number, size = display_path(path), 0, 0
    line_parts: list[bytes] = []  # the parts of an incomplete line, which are joined only once
    try:
        for data in opening.blocks(path, block):
            *lines, last = data.split(b"\n")
            for line in lines:
                number += 1
                yield number, b"".join((*line_parts, line))
                line_parts, size = [], 0
            line_parts.append(last)
            size += len(last)
            if excess := limits.JSON_BYTES.exceeded_message(size, counting=True):
                raise MergeError(f"report {name} line {number + 1} has {excess}")
    except OSError as error:
        raise MergeError(f"report {name} cannot be read: {error.strerror or error}") from error
    if size:
        raise MergeError(f"report {name} line {number + 1} is damaged{_DAMAGED}")
